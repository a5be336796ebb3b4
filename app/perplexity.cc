// subbyte perplexity: how well a model predicts a text.

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/output.h"
#include "app/text_input.h"
#include "base/quote.h"
#include "engine/perplexity.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string model;
  int head_bits = 16;
  std::string file;
  int64_t window = 512;
  bool json = false;
  std::string kv_cache_type = "f16";
};

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const std::string text, read_text(options.file));
  SUBBYTE_TRY(ReadyModel loaded, open(invocation, options.model));
  SUBBYTE_TRY(const Tokenizer tokenizer, load_tokenizer(loaded.directory));
  SUBBYTE_TRY(const auto tokens, tokenizer.encode_prompt(text, SpecialTokens::kAsText));
  SUBBYTE_CHECK(check_context(loaded.config, options.window));
  if (tokens.size() < 2) {
    return Error{"perplexity.too_short", options.file + ": the text has fewer than two tokens"};
  }
  const Element kv_type = kKvTypes.at(options.kv_cache_type);
  SUBBYTE_CHECK(load(invocation, loaded,
                     {.head_bits = options.head_bits,
                      .cache_type = kv_type,
                      .cache_positions = options.window,
                      .step_tokens = kScoredChunk,
                      .step_logits = kScoredChunk}));
  Result<Perplexity> measured = [&] {
    Progress progress(invocation, "perplexity");
    return perplexity(*loaded.model, *loaded.backend, kv_type, tokens, options.window,
                      [&](int64_t done, int64_t total, double value) {
                        progress.update(done, total, fmt::format("{:.3f}", value));
                      });
  }();
  SUBBYTE_TRY(const Perplexity result, std::move(measured));
  const double nats_per_byte = result.nats / static_cast<double>(text.size());
  if (options.json) {
    print(stdout, json_text({{"perplexity", result.per_token},
                             {"nats_per_byte", nats_per_byte},
                             {"tokens", tokens.size()},
                             {"scored", result.scored},
                             {"bytes", text.size()},
                             {"window", options.window}},
                            -1));
    return kOk;
  }
  print(stdout, fitted(line("perplexity {:.4f} per token, {:.4f} nats per byte", result.per_token,
                            nats_per_byte) +
                           line("{} tokens ({} scored, windows of {}), {} bytes", tokens.size(),
                                result.scored, options.window, text.size()),
                       stdout, 2));
  return kOk;
}

}  // namespace

void add_perplexity(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "perplexity", "Measure the perplexity of a text, in windows that do not overlap",
      "  subbyte perplexity demo/model novel.txt\n"
      "  subbyte perplexity ./model novel.txt --window 2048 --json");
  auto options = std::make_shared<Options>();
  command
      .option("MODEL,-m,--model", options->model,
              "directory, ak47 or ak48 file, or org/name[@revision]")
      .required();
  command.option("FILE", options->file, "the text (- is stdin)").required();
  command.option("-w,--window", options->window, "tokens per window; the first is not scored")
      .between(2, int64_t{1} << 20)
      .shows_default();
  command.flag("--json", options->json, "print one JSON object");
  add_head_bits(command, options->head_bits);
  add_kv_cache_type(command, options->kv_cache_type);
  command.shares(Shares::kModel);
  command.run([options, &invocation] { return run(invocation, *options); });
}

}  // namespace subbyte::app
