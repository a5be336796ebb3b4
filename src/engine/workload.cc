#include "engine/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/generate.h"

namespace subbyte {

std::string to_string(const Workload& workload) {
  std::string text;
  if (workload.prompt > 0) text = fmt::format("pp{}", workload.prompt);
  if (workload.generated > 0) {
    text += fmt::format("{}tg{}", text.empty() ? "" : "+", workload.generated);
  }
  if (workload.streams > 1) text += fmt::format(" x {}", workload.streams);
  if (workload.depth > 0) text += fmt::format(" @ d{}", workload.depth);
  return text;
}

std::vector<int32_t> random_tokens(const Model& model, int64_t count, Random& random) {
  std::vector<int32_t> tokens(count);
  const auto vocab = static_cast<uint64_t>(model.config().vocab_size);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(vocab));
  return tokens;
}

Status append_tokens(const Model& model, Backend& backend, Sequence& sequence,
                     std::span<const int32_t> tokens) {
  Logits logits;
  while (!tokens.empty()) {
    const int64_t count = std::min(backend.prompt_chunk(), std::ssize(tokens));
    const Part part = {&sequence, tokens.first(count), 0};
    SUBBYTE_CHECK(model.forward(backend, {{&part, 1}}, logits));
    tokens = tokens.subspan(count);
  }
  return {};
}

Result<WorkloadTimes> WorkloadRunner::run(const Workload& workload) {
  SUBBYTE_CHECK(fill_context(workload.depth));
  // The first token to generate follows from the prompt; without one it is a prompt of its own, a
  // step of one token like those after it.
  const bool has_prompt = workload.prompt > 0;
  const std::vector<int32_t> prompt =
      random_tokens(model_, std::max<int64_t>(workload.prompt, 1), random_);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = workload.generated + (has_prompt ? 1 : 0);
  const auto on_token = [](int32_t) { return true; };
  SUBBYTE_TRY(const SampleEnd stats,
              generate(model_, backend_, sequence_, prompt, options, on_token));
  if (!has_prompt) return WorkloadTimes{0, stats.prefill_seconds + stats.decode_seconds};
  return WorkloadTimes{stats.prefill_seconds, workload.generated > 0 ? stats.decode_seconds : 0};
}

Status WorkloadRunner::fill_context(int64_t positions) {
  // Layers with a window may have given back what the tokens after the context see.
  if (positions == context_ && sequence_.rewind(positions) == positions) return {};
  sequence_.truncate(0);
  context_ = 0;
  const std::vector<int32_t> tokens = random_tokens(model_, positions, random_);
  SUBBYTE_CHECK(append_tokens(model_, backend_, sequence_, tokens));
  context_ = positions;
  return {};
}

}  // namespace subbyte
