#include "app/statistics.h"

#include <fmt/format.h>

#include "app/output.h"

namespace subbyte::app {
namespace {

std::string_view describe(StopReason reason) {
  switch (reason) {
    case StopReason::kStopToken:
      return "end token";
    case StopReason::kLength:
      return "-n reached";
    case StopReason::kContextFull:
      return "context full";
    case StopReason::kStopString:
      return "--stop reached";
    case StopReason::kCaller:
      return "stopped";
  }
  return "";
}

std::string bandwidth_text(const Session& session, const SampleEnd& stats) {
  const ReadyModel& ready = session.ready();
  const KvPool& cache = session.cache();
  const double tokens_per_second = stats.decode_tokens_per_second();
  const auto weights = static_cast<double>(ready.model->bytes_per_token());
  // On average a token of the decode saw the prompt and half of what was generated.
  const int64_t positions = stats.prompt_tokens + stats.generated_tokens / 2;
  const double bytes =
      weights + static_cast<double>(cache_read_bytes(cache.layout(), cache.type(), positions));
  const double rate = bytes * tokens_per_second;
  std::string text = fmt::format("{:8.1f} MB read per token", bytes / 1e6);
  if (tokens_per_second == 0) return text;
  text += fmt::format(", {:.1f} GB/s", rate / 1e9);
  const double bandwidth = ready.backend->measure_read_bandwidth(ready.model->largest_weight());
  if (bandwidth == 0) return text + " (from the caches)";
  return text + fmt::format(" ({:.0f} % of {:.1f} GB/s measured now)", 100 * rate / bandwidth,
                            bandwidth / 1e9);
}

/// What a GPU holds, in bytes; nothing on the CPU.
std::string device_memory_line(const Session& session) {
  const MachineMemory* const memory = session.ready().backend->memory();
  if (memory == nullptr) return {};
  MemoryNeed held = memory->held();
  held.cache = session.cache().total_bytes();
  return line("device  {} bytes of {} (weights {} + cache {} + workspace {})", held.sum(),
              memory->name(), held.weights, held.cache, held.workspace);
}

}  // namespace

std::string describe_statistics(const Session& session, const SampleEnd& stats) {
  const ReadyModel& ready = session.ready();
  return "\n" + line("load    {:8.2f} s   ({})", ready.load_seconds, ready.backend->description()) +
         line("prefill {:8.1f} tokens/s ({} tokens)", stats.prefill_tokens_per_second(),
              stats.prompt_tokens - stats.cached_tokens) +
         line("decode  {:8.1f} tokens/s ({} tokens, {})", stats.decode_tokens_per_second(),
              stats.generated_tokens, describe(stats.reason)) +
         line("memory {}", bandwidth_text(session, stats)) + device_memory_line(session);
}

std::string describe_stop(const SampleEnd& stats) {
  return line("(stopped after {} tokens: prefill {:.1f} tokens/s, decode {:.1f} tokens/s)",
              stats.generated_tokens, stats.prefill_tokens_per_second(),
              stats.decode_tokens_per_second());
}

}  // namespace subbyte::app
