#include "request.h"

#include <algorithm>
#include <iterator>

namespace subbyte::python {

Result<std::unique_ptr<Request>> Request::read(const json::Value& body,
                                               std::shared_ptr<const TextSetup> setup,
                                               bool parse_special,
                                               std::optional<int64_t> num_prompt_logprobs) {
  std::unique_ptr<Request> result(new Request(std::move(setup)));
  const TextSetup& text = *result->text_;
  SUBBYTE_TRY(const json::Object object, json::Object::of(body, "request"));
  SUBBYTE_TRY(result->request_, read_completion(object, {}));
  CompletionRequest& request = result->request_;
  if (!request.sampling.seed) request.sampling.seed = text.sampling.alone.seed;
  if (parse_special) request.special = SpecialTokens::kRecognize;
  if (num_prompt_logprobs) {
    request.scores_prompt = true;
    request.num_top_logprobs = std::max(*num_prompt_logprobs, request.num_top_logprobs.value_or(0));
  }
  SUBBYTE_TRY(result->prompt_, text.encode(request));
  SUBBYTE_CHECK(result->read_echo());
  for (int64_t i = 0; i < request.num_samples; ++i) {
    result->choices_.emplace_back(request, text.tokenizer);
  }
  return result;
}

Status Request::read_echo() {
  if (!request_.echo) return {};
  echo_.tokens = prompt_;
  echo_.text = request_.prompt;
  if (!echo_.text.empty()) return {};
  SUBBYTE_TRY(echo_.text, text_->tokenizer.decode(prompt_, /*skip_special=*/false));
  return {};
}

void Request::take(const Delta& delta) {
  std::ranges::copy(delta.prompt_logprobs, std::back_inserter(echo_.logprobs));
  num_generated_ += std::ssize(delta.tokens) + (delta.end && delta.end->stop_token ? 1 : 0);
  choices_[static_cast<std::size_t>(delta.sample)].take(delta);
}

json::Value Request::choice_of(const Delta& delta) const {
  Choice choice(request_, text_->tokenizer);
  choice.take(delta);
  choice.set_offset(choices_[static_cast<std::size_t>(delta.sample)].num_characters() -
                    choice.num_characters());
  return choice.take_json(delta.sample, {});
}

json::Value Request::take_answer(const std::string& digest, const std::string& model) {
  json::Value choices = json::Value::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    choices.push_back(choices_[i].take_json(static_cast<int64_t>(i), echo_));
  }
  return response_body(request_, digest, model, std::move(choices),
                       {.prompt = std::ssize(prompt_), .generated = num_generated_});
}

}  // namespace subbyte::python
