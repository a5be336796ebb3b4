#pragma once
// The checks of one module, from what was counted in it.

#include "checkpoints/importer.h"
#include "verify/findings.h"
#include "verify/statistics.h"

namespace subbyte {

struct CheckedModule {
  std::string_view name;
  const ModuleInfo& info;
  const QuantizationConfig& config;
  const MatrixStatistics& statistics;
};

/// Name of the tensor with the scales of a quantized module.
std::string_view scale_tensor(const ModuleInfo& info);

/// All of them, in the order of a table.
void check_module(const CheckedModule& module, Findings& findings);

}  // namespace subbyte
