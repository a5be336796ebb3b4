// subbyte perplexity: how well a model predicts a text.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/command.h"
#include "app/output.h"
#include "app/text_input.h"
#include "backends/processes.h"
#include "base/quote.h"
#include "engine/divergence.h"
#include "engine/perplexity.h"
#include "subbyte/json.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string model;
  int head_bits = 16;
  std::string file;
  int64_t window = 512;
  bool json = false;
  std::string kv_cache_type = "f16";
  std::string reference;
};

LoadOptions load_options(const Options& options, int head_bits) {
  return {.head_bits = head_bits,
          .cache_type = kv_element(options.kv_cache_type),
          .cache_positions = options.window,
          .step_tokens = kScoredChunk,
          .step_logits = kScoredChunk};
}

Json as_json(const Estimate& estimate) {
  return {{"value", estimate.value}, {"error", estimate.error}};
}

Json divergence_as_json(const Divergence& result) {
  return {{"perplexity", as_json(result.perplexity)},
          {"reference_perplexity", as_json(result.reference)},
          {"perplexity_ratio", as_json(result.ratio)},
          {"kl", as_json(result.kl)},
          {"kl_median", result.kl_median},
          {"kl_99", result.kl_99},
          {"kl_999", result.kl_999},
          {"kl_largest", result.kl_largest},
          {"same_top", as_json(result.same_top)}};
}

std::string divergence_as_text(const Divergence& result) {
  return line("perplexity {:.4f} +- {:.4f} per token", result.perplexity.value,
              result.perplexity.error) +
         line("of the reference {:.4f} +- {:.4f}, ratio {:.5f} +- {:.5f}", result.reference.value,
              result.reference.error, result.ratio.value, result.ratio.error) +
         line(
             "KL divergence {:.6f} +- {:.6f} nats, median {:.6f}, 99 % {:.6f}, 99.9 % {:.6f}, "
             "largest {:.6f}",
             result.kl.value, result.kl.error, result.kl_median, result.kl_99, result.kl_999,
             result.kl_largest) +
         line("same most likely token {:.3f} +- {:.3f} %", 100 * result.same_top.value,
              100 * result.same_top.error);
}

/// Compares with the reference, which has to cut the text into the same tokens.
Result<ExitCode> compare(const Invocation& invocation, const Options& options,
                         const ReadyModel& loaded, const std::string& text,
                         std::span<const int32_t> tokens) {
  SUBBYTE_TRY(ReadyModel reference, open(invocation, options.reference));
  SUBBYTE_TRY(const Tokenizer tokenizer, load_tokenizer(reference.files));
  SUBBYTE_TRY(const auto same, tokenizer.encode_prompt(text, SpecialTokens::kAsText));
  if (!std::ranges::equal(tokens, same)) {
    return Error{"divergence.tokens",
                 fmt::format("{}: expected a tokenizer that cuts the text into the same {} tokens, "
                             "found one that makes {} others",
                             options.reference, tokens.size(), same.size())};
  }
  SUBBYTE_CHECK(check_context(reference.config, options.window));
  SUBBYTE_CHECK(load(invocation, reference, load_options(options, 16)));
  Result<Divergence> measured = [&] {
    Progress progress(invocation, "divergence");
    return divergence({*loaded.model, *loaded.backend}, {*reference.model, *reference.backend},
                      kv_element(options.kv_cache_type), tokens, options.window,
                      [&](int64_t done, int64_t total, double value) {
                        progress.update(done, total, fmt::format("{:.6f}", value));
                      });
  }();
  SUBBYTE_TRY(const Divergence result, std::move(measured));
  if (options.json) {
    Json root = divergence_as_json(result);
    root["tokens"] = tokens.size();
    root["scored"] = result.scored;
    root["bytes"] = text.size();
    root["window"] = options.window;
    print(stdout, json_text(root, -1));
    return kOk;
  }
  print(stdout, fitted(divergence_as_text(result) +
                           line("{} tokens ({} scored, windows of {}), {} bytes", tokens.size(),
                                result.scored, options.window, text.size()),
                       stdout, 2));
  return kOk;
}

/// Processes that have some of a model each meet for one model.
Status check_reference(const Invocation& invocation, const Options& options) {
  if (options.reference.empty()) return {};
  SUBBYTE_TRY(const DeviceOptions device, device_options(invocation));
  if (!is_one_of_several(device)) return {};
  return Error{"usage.arguments",
               "--compare runs two models in one process: leave mpirun out; there "
               "--tensor-parallel and --pipeline-parallel divide both, too"};
}

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_CHECK(check_reference(invocation, options));
  SUBBYTE_TRY(const std::string text, read_text(options.file));
  SUBBYTE_TRY(ReadyModel loaded, open(invocation, options.model));
  SUBBYTE_TRY(const Tokenizer tokenizer, load_tokenizer(loaded.files));
  SUBBYTE_TRY(const auto tokens, tokenizer.encode_prompt(text, SpecialTokens::kAsText));
  SUBBYTE_CHECK(check_context(loaded.config, options.window));
  if (tokens.size() < 2) {
    return Error{"perplexity.too_short", options.file + ": the text has fewer than two tokens"};
  }
  const Element kv_type = kv_element(options.kv_cache_type);
  SUBBYTE_CHECK(load(invocation, loaded, load_options(options, options.head_bits)));
  if (!options.reference.empty()) return compare(invocation, options, loaded, text, tokens);
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
      "  subbyte perplexity ./model novel.txt --window 2048 --json\n"
      "  subbyte perplexity ./Qwen3-8B-AWQ novel.txt --compare ./Qwen3-8B");
  auto options = std::make_shared<Options>();
  command.model(options->model);
  command.option("FILE", options->file, "the text (- is stdin)").required();
  command.option("-w,--window", options->window, "tokens per window; the first is not scored")
      .between(2, int64_t{1} << 20)
      .zero_is_default()
      .shows_default();
  command
      .option("--compare", options->reference,
              "another model, such as the one in 16 bits that MODEL was made of: print how far the "
              "predictions are from its own")
      .value("REF");
  command.flag("--json", options->json, "print one JSON object");
  add_head_bits(command, options->head_bits);
  add_kv_cache_type(command, options->kv_cache_type);
  command.shares(Shares::kModel);
  command.run([options, &invocation] { return run(invocation, *options); });
}

}  // namespace subbyte::app
