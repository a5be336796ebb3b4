#include "app/json_answer.h"

#include <algorithm>

#include "app/output.h"
#include "base/sha256.h"

namespace subbyte::app {
namespace {

/// By which the answer is known again: the same for the same question.
std::string digest_of(const Question& question, const std::string& model,
                      const json::Value& sampling) {
  const std::string text =
      json_text({{"model", model}, {"prompt", question.prompt}, {"sampling", sampling}});
  return sha256(std::as_bytes(std::span(text)));
}

}  // namespace

Result<json::Value> answer_as_json(const Invocation& invocation, Session& session,
                                   const Question& question, const std::string& model,
                                   const Interruptible& ctrl_c) {
  const SamplingOptions used = session.text().sampling.with(question.request.sampling);
  const json::Value sampling = to_json(used);
  int64_t held_bytes = 0;  // of the cache, at most after a token
  Question whole = question;
  whole.request.is_whole = true;
  whole.request.sampling.seed = used.seed;
  Choice choice(whole.request, session.text().tokenizer);
  const auto take = [&](const Delta& delta) {
    choice.take(delta);
    held_bytes = std::max(held_bytes, session.cache().held_bytes());
  };
  SUBBYTE_TRY(const SampleEnd end,
              answer_one(invocation, session, whole, take, [&] { return !ctrl_c.interrupted(); }));
  json::Value ids = choice.tokens();
  json::Value answer = choice.take_json(0, {});
  answer["token_ids"] = std::move(ids);
  if (ctrl_c.interrupted()) answer["finish_reason"] = "abort";
  json::Value body =
      response_body(whole.request, digest_of(question, model, sampling), model,
                    json::Value::array({std::move(answer)}),
                    {.prompt = end.prompt_tokens, .generated = end.generated_tokens});
  body["sampling"] = sampling;
  body["timings"] = {{"load_seconds", session.ready().load_seconds},
                     {"prompt_tokens_per_second", end.prefill_tokens_per_second()},
                     {"completion_tokens_per_second", end.decode_tokens_per_second()}};
  body["cache"] = {{"held_bytes", held_bytes}, {"total_bytes", session.cache().total_bytes()}};
  body["device"] = session.ready().backend->description();
  return body;
}

}  // namespace subbyte::app
