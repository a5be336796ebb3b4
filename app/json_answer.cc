#include "app/json_answer.h"

#include "app/output.h"

#include "base/sha256.h"

namespace subbyte::app {
namespace {

/// By which the answer is known again: the same for the same question.
std::string digest_of(const JsonQuestion& question) {
  const std::string text = json_text({{"model", question.model},
                                      {"prompt", question.prompt},
                                      {"sampling", to_json(question.generation.sampling)}});
  return sha256(std::as_bytes(std::span(text)));
}

}  // namespace

Result<json::Value> answer_as_json(const LoadedModel& loaded, const Tokenizer& tokenizer,
                                   const JsonQuestion& question, Sequence& sequence,
                                   const Interruptible& ctrl_c) {
  Choice choice(question.request, tokenizer, question.format);
  json::Value ids = json::Value::array();
  SUBBYTE_TRY(const GenerateStats stats,
              generate(
                  *loaded.model, *loaded.backend, sequence, question.prompt, question.generation,
                  [&](TokenId id) {
                    ids.push_back(id);
                    choice.push(id, std::nullopt);
                    return !choice.stopped() && !ctrl_c.interrupted();
                  },
                  [&] { return !ctrl_c.interrupted(); }));
  choice.finish(stats.reason);
  json::Value answer = choice.take_json(0, {});
  answer["token_ids"] = std::move(ids);
  if (ctrl_c.interrupted()) answer["finish_reason"] = "abort";
  json::Value body =
      response_body(question.request, digest_of(question), question.model,
                    json::Value::array({std::move(answer)}),
                    {.prompt = stats.prompt_tokens, .generated = stats.generated_tokens});
  body["sampling"] = to_json(question.generation.sampling);
  body["timings"] = {{"load_seconds", loaded.load_seconds},
                     {"prompt_tokens_per_second", stats.prefill_tokens_per_second()},
                     {"completion_tokens_per_second", stats.decode_tokens_per_second()}};
  body["device"] = loaded.backend->description();
  return body;
}

}  // namespace subbyte::app
