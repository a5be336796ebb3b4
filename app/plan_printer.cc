#include "app/plan_printer.h"

#include <fmt/format.h>

#include <cstdio>

#include "app/output.h"

namespace subbyte::app {

void PlanPrinter::submit(const CompiledStep& step, const Batch& batch) {
  backend_.submit(step, batch);
  const int64_t tokens = batch.num_tokens();
  const std::string way = backend_.last_step();
  const std::string text = fmt::format(
      "{} of {}: {}", tokens == 1 ? "1 token" : fmt::format("{} tokens", tokens),
      batch.parts.size() == 1 ? "1 sequence" : fmt::format("{} sequences", batch.parts.size()),
      way.empty() ? "by the CPU" : way);
  if (said_.insert(text).second) tell(line("subbyte: step of {}", text));
}

}  // namespace subbyte::app
