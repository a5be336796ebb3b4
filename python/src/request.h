#pragma once
// One request on its way: what was asked for, its prompt as tokens, and what came of it until now.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "completions/answer.h"
#include "completions/request.h"
#include "session/text_setup.h"

namespace subbyte::python {

class Request {
 public:
  /// Reads a body with the fields of OpenAI's and vLLM's requests. `parse_special`: control tokens
  /// in a prompt that is a text are those. `num_prompt_logprobs`: so many alternatives are wanted
  /// for each token of the prompt. Codes: those of read_completion and of TextSetup::encode.
  static Result<std::unique_ptr<Request>> read(const json::Value& body,
                                               std::shared_ptr<const TextSetup> text,
                                               bool parse_special,
                                               std::optional<int64_t> num_prompt_logprobs);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const CompletionRequest& request() const { return request_; }
  /// Nobody reads the answer before its end.
  void set_whole(bool is_whole) { request_.is_whole = is_whole; }
  const std::vector<TokenId>& prompt() const { return prompt_; }

  /// Adds what a step has given.
  void take(const Delta& delta);
  /// The element of "choices" that a delta makes, which was taken, for streams.
  json::Value choice_of(const Delta& delta) const;
  /// All until now as the body of an answer. Once.
  json::Value take_answer(const std::string& digest, const std::string& model);

 private:
  explicit Request(std::shared_ptr<const TextSetup> text) : text_(std::move(text)) {}
  Status read_echo();

  std::shared_ptr<const TextSetup> text_;
  CompletionRequest request_;
  std::vector<TokenId> prompt_;
  Echo echo_;
  std::deque<Choice> choices_;  // of the samples
  int64_t num_generated_ = 0;
};

}  // namespace subbyte::python
