#include "app/statistics.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/cpu_features.h"
#include "kernels/cpu/read_bandwidth.h"

namespace subbyte::app {
namespace {

constexpr uint64_t kCacheMultiple = 2;  // how far beyond the caches a measurement has to be

std::string_view describe(StopReason reason) {
  switch (reason) {
    case StopReason::kStopToken:
      return "end token";
    case StopReason::kLength:
      return "-n reached";
    case StopReason::kContextFull:
      return "context full";
    case StopReason::kCaller:
      return "stop string";
  }
  return "";
}

std::string bandwidth_line(const LoadedModel& loaded, const KvCache& cache,
                           const GenerateStats& stats) {
  const double tokens_per_second = stats.decode_tokens_per_second();
  const auto weights = static_cast<double>(loaded.model->bytes_per_token());
  // On average a token of the decode saw the prompt and half of what was generated.
  const double positions =
      static_cast<double>(stats.prompt_tokens) + static_cast<double>(stats.generated_tokens) / 2;
  const double bytes = weights + positions * static_cast<double>(cache.bytes_per_position());
  const double rate = bytes * tokens_per_second;
  std::string line = fmt::format("{:.1f} MB read per token", bytes / 1e6);
  if (tokens_per_second == 0) return line;
  line += fmt::format(", {:.1f} GB/s", rate / 1e9);
  const auto memory = loaded.model->largest_weights();
  if (memory.size() < kCacheMultiple * last_level_cache_bytes()) {
    return line + " (weights fit into the caches: no share of the memory bandwidth)";
  }
  const auto bandwidth = cpu::measure_read_bandwidth(memory, loaded.execution->pool());
  return line + fmt::format(" = {:.0f} % of the read bandwidth measured now ({:.1f} GB/s)",
                            100 * rate / bandwidth.bytes_per_second,
                            bandwidth.bytes_per_second / 1e9);
}

}  // namespace

void print_statistics(const LoadedModel& loaded, const KvCache& cache, const GenerateStats& stats) {
  const std::string report = fmt::format(
      "\nload    {:8.2f} s   ({} kernels, {} threads)\n"
      "prefill {:8.1f} tokens/s ({} tokens)\n"
      "decode  {:8.1f} tokens/s ({} tokens, {})\n"
      "memory  {}\n",
      loaded.load_seconds, loaded.execution->kernels().name, loaded.execution->pool().size(),
      stats.prefill_tokens_per_second(), stats.prompt_tokens, stats.decode_tokens_per_second(),
      stats.generated_tokens, describe(stats.reason), bandwidth_line(loaded, cache, stats));
  std::fputs(report.c_str(), stderr);
}

}  // namespace subbyte::app
