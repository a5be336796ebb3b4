#pragma once
// How the experts of a layer are named: some flavours keep all of them in one tensor, a stack, and
// others have a module for each.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoints/config/quantization_config.h"

namespace subbyte {

/// "layer.experts.3.up_proj" as "layer.experts.up_proj" and 3; nullopt for other names. This is how
/// flavours with one matrix in a tensor name the experts that others keep in one.
struct ExpertName {
  std::string stack;
  int64_t expert = 0;
};
std::optional<ExpertName> parse_expert_name(std::string_view name);

/// Checks that `module`, an expert's "gate_proj" of gpt-oss, holds the rows of gate. GPTQModel puts
/// there the first half of the rows that gate and up take in turns, the second in "up_proj". Code
/// model.unsupported.
Status check_gate_of_expert(const QuantizationConfig& config, std::string_view module);

/// The inverse of parse_expert_name: the name of one expert of a stack. Stacks without "experts."
/// before the last part of their name get the number at the end.
std::string expert_name(std::string_view stack, int64_t expert);

}  // namespace subbyte
