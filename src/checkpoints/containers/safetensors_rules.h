#pragma once
// The rules that one tensor of a safetensors file obeys, for the reader and for the writer.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "checkpoints/containers/safetensors.h"

namespace subbyte {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's limit
inline constexpr std::size_t kMaxRank = 16;
inline constexpr std::size_t kMaxNameBytes = 64 * 1024;

/// Codes safetensors.bad_name: a NUL, or longer than kMaxNameBytes.
Status check_tensor_name(std::string_view name, std::string_view where);

/// Bytes that a tensor of this type and shape occupies.
/// Codes safetensors.rank, .shape_overflow, .misaligned_bits.
Result<uint64_t> tensor_bytes(std::string_view name, DType dtype, const Shape& shape,
                              std::string_view where);

}  // namespace subbyte
