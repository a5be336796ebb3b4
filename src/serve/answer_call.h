#pragma once
// A call while it is answered, in the thread of the connections: events of the engine become the
// chunks of a stream, or the body of an answer.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "completions/chunks.h"
#include "http/server.h"
#include "serve/bodies.h"
#include "serve/metrics.h"

namespace subbyte::serve {

class AnswerCall : public Call {
 public:
  AnswerCall(std::shared_ptr<http::Exchange> client, CallBody read, AnswerHead head,
             const Tokenizer& tokenizer);

  http::Exchange& client() { return *exchange_; }
  /// Begins the stream, where it is one, as soon as the call is in the queue.
  using Finish = std::function<void(http::Response& response)>;  // adds fields
  void begin(const Finish& finish);
  /// Adds what a step gave.
  void take(Event event, Metrics& metrics);
  /// Sends what take() has made since the last time, and the end after the last event.
  void send(const Finish& finish);
  /// Ends it with an error.
  void fail(const Problem& problem, const Finish& finish);

  std::string request_text = {};  // for the log, where it has it

  bool has_ended() const { return num_left_ == 0; }
  /// How it ended, for the log: "stop", "length", or a code.
  const std::string& end() const { return end_; }
  const TokenCounts& counts() const { return counts_; }
  /// Seconds in the queue, to the first token and until now; the first two -1 where there is none.
  double queue_seconds() const;
  double first_token_seconds() const;
  double seconds() const;

 private:
  json::Value body();
  void count(Metrics& metrics);

  std::shared_ptr<http::Exchange> exchange_;
  AnswerHead head_;
  bool is_stream_;
  std::optional<Chunks> chunks_;                // of a stream
  std::deque<Choice> choices_;                  // else
  std::vector<int64_t> first_choice_;           // of each prompt
  std::vector<Clock::time_point> last_tokens_;  // of each choice
  TokenCounts counts_;
  int64_t num_left_;
  std::string text_;  // to be sent
  std::string end_;
  std::optional<Clock::time_point> first_token_;
};

}  // namespace subbyte::serve
