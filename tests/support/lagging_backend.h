#pragma once
// A backend that takes a second step before the first is finished, as GPUs do; underneath each is
// computed when it is enqueued.

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "ops/forwarding_backend.h"

namespace subbyte::testing {

class LaggingBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  int64_t steps_in_flight() const override { return 2; }

  void submit(const CompiledStep& compiled, const Batch& batch) override {
    std::vector<Part> parts(batch.parts.begin(), batch.parts.end());
    std::deque<std::vector<int32_t>> tokens;
    for (Part& part : parts) {
      std::vector<int32_t>& known_tokens = tokens.emplace_back();
      for (const int32_t token : part.tokens) known_tokens.push_back(known(token));
      part.tokens = known_tokens;
    }
    backend_.submit(compiled, {parts, batch.observer});
    Step step;
    step.status = backend_.wait(step.logits);
    chosen_ = step.logits.tokens;
    max_on_their_way_ = std::max(max_on_their_way_, std::ssize(steps_) + 1);
    steps_.push_back(std::move(step));
  }

  Status wait(Logits& logits) override {
    Step step = std::move(steps_.front());
    steps_.pop_front();
    logits = std::move(step.logits);
    return std::move(step.status);
  }

  /// Steps that were on their way at the same time.
  int64_t max_on_their_way() const { return max_on_their_way_; }

 private:
  struct Step {
    Logits logits;
    Status status;
  };

  int32_t known(int32_t token) const {
    if (!is_pending_token(token)) return token;
    return std::max(chosen_.at(pending_token(0) - token), 0);
  }

  std::vector<int32_t> chosen_;  // by the last step
  std::deque<Step> steps_;
  int64_t max_on_their_way_ = 0;
};

}  // namespace subbyte::testing
