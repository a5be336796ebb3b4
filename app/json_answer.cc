#include "app/json_answer.h"

#include <algorithm>

#include "app/output.h"
#include "base/sha256.h"

namespace subbyte::app {
namespace {

/// By which the answer is known again: the same for the same question.
std::string digest_of(const Question& question, const std::string& model) {
  const std::string text = json_text({{"model", model},
                                      {"prompt", question.prompt},
                                      {"sampling", to_json(question.request.sampling)}});
  return sha256(std::as_bytes(std::span(text)));
}

}  // namespace

Result<json::Value> answer_as_json(const Invocation& invocation, Session& session,
                                   const Question& question, const std::string& model,
                                   const Interruptible& ctrl_c) {
  Choice choice(question.request, session.text().tokenizer);
  int64_t held_bytes = 0;  // of the cache, at most after a token
  Question whole = question;
  whole.request.is_whole = true;
  const auto take = [&](const Delta& delta) {
    choice.take(delta);
    held_bytes = std::max(held_bytes, session.cache().held_bytes());
  };
  SUBBYTE_TRY(const SampleEnd end,
              answer_one(invocation, session, whole, take, [&] { return !ctrl_c.interrupted(); }));
  const GenerateStats& stats = end.stats;
  json::Value ids = choice.tokens();
  json::Value answer = choice.take_json(0, {});
  answer["token_ids"] = std::move(ids);
  if (ctrl_c.interrupted()) answer["finish_reason"] = "abort";
  json::Value body = response_body(
      question.request, digest_of(question, model), model, json::Value::array({std::move(answer)}),
      {.prompt = stats.prompt_tokens, .generated = stats.generated_tokens});
  body["sampling"] = to_json(question.request.sampling);
  body["timings"] = {{"load_seconds", session.ready().load_seconds},
                     {"prompt_tokens_per_second", stats.prefill_tokens_per_second()},
                     {"completion_tokens_per_second", stats.decode_tokens_per_second()}};
  body["cache"] = {{"held_bytes", held_bytes}, {"total_bytes", session.cache().total_bytes()}};
  body["device"] = session.ready().backend->description();
  return body;
}

}  // namespace subbyte::app
