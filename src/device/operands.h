#pragma once
// Operands of functions: their types, and refusals in the caller's words for them.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/operands.h"
#include "base/status.h"
#include "subbyte/format.h"

namespace subbyte::device {

/// Code of errors about an operand of the caller's, whom each interface calls by a prefix of its
/// own (c.argument, torch.argument).
inline constexpr std::string_view kArgument = "argument";

/// "NAME: expected EXPECTED, found FOUND", code kArgument.
inline Error refuse(std::string_view name, std::string_view expected, std::string_view found) {
  std::string line(name);
  line.append(": expected ").append(expected).append(", found ").append(found);
  return {kArgument, line};
}
inline Error refuse(std::string_view name, std::string_view expected, int64_t found) {
  return refuse(name, expected, std::to_string(found));
}

/// The element that kernels call f32, f16 or bf16.
constexpr Element element_of(Format format) {
  return format == Format::kF32   ? Element::kF32
         : format == Format::kF16 ? Element::kF16
                                  : Element::kBF16;
}

}  // namespace subbyte::device
