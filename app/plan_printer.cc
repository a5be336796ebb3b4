#include "app/plan_printer.h"

#include <fmt/format.h>

#include <cstdio>

#include "app/output.h"

namespace subbyte::app {

void PlanPrinter::begin(const Batch& batch) {
  int64_t tokens = 0;
  for (const Part& part : batch.parts) tokens += std::ssize(part.tokens);
  step_ = fmt::format(
      "{} of {}", tokens == 1 ? "1 token" : fmt::format("{} tokens", tokens),
      batch.parts.size() == 1 ? "1 sequence" : fmt::format("{} sequences", batch.parts.size()));
  backend_.begin(batch);
}

void PlanPrinter::end() {
  backend_.end();
  const std::string way = backend_.last_step();
  const std::string text = fmt::format("{}: {}", step_, way.empty() ? "by the CPU" : way);
  if (said_.insert(text).second) print(stderr, line("subbyte: step of {}", text));
}

}  // namespace subbyte::app
