#pragma once
// A backend that says on standard error how steps of each size ran: SUBBYTE_PRINT_PLAN=1.

#include <memory>
#include <set>
#include <string>

#include "ops/forwarding_backend.h"

namespace subbyte::app {

class PlanPrinter : public ForwardingBackend {
 public:
  explicit PlanPrinter(std::unique_ptr<Backend> backend)
      : ForwardingBackend(*backend), own_(std::move(backend)) {}

  void submit(const CompiledStep& step, const Batch& batch) override;

 private:
  std::unique_ptr<Backend> own_;
  std::set<std::string> said_;  // one line for each size and way
};

}  // namespace subbyte::app
