#pragma once
// What has come of some of the requests of a session and nobody has taken yet. A step hands its
// events out in one go, so that an exception of Python between two of its instructions, as Ctrl-C
// raises one, loses no end of a request. Who has the turn of the session uses it.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "subbyte/answer.h"
#include "subbyte/request.h"

namespace subbyte::python {

class EventQueue {
 public:
  void open(RequestId request, int64_t num_samples) { open_[request] = num_samples; }

  /// Tells whether the request has ended with this event.
  bool push(Delta event) {
    const auto found = open_.find(event.request);
    const bool has_ended = event.is_last() && --found->second == 0;
    if (has_ended) open_.erase(found);
    events_.push_back(std::move(event));
    return has_ended;
  }

  /// Forgets a request, and the events of it that are here.
  void drop(RequestId request) {
    open_.erase(request);
    std::erase_if(events_, [&](const Delta& event) { return event.request == request; });
  }

  std::vector<Delta> take() { return std::exchange(events_, {}); }

  /// No request is added to it any more.
  void close() { is_closed_ = true; }
  bool is_closed() const { return is_closed_; }

  /// Tells whether there are requests that have not ended.
  bool is_open() const { return !open_.empty(); }
  /// Those requests.
  std::vector<RequestId> open_requests() const {
    std::vector<RequestId> ids;
    for (const auto& [id, samples] : open_) ids.push_back(id);
    return ids;
  }

 private:
  std::map<RequestId, int64_t> open_;  // samples that have not ended
  std::vector<Delta> events_;
  bool is_closed_ = false;
};

}  // namespace subbyte::python
