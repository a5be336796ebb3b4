#pragma once
// Numbers of f32, f16 and bf16 in memory of the host, as floats and back.

#include <cstddef>
#include <cstdint>

#include "subbyte/format.h"

namespace subbyte {
class Execution;
}  // namespace subbyte

namespace subbyte::device {

/// Converts on this thread.
void load_numbers(float* to, const std::byte* from, int64_t count, Format format);

/// Convert on all threads; to nearest even. load_floats() says that none is a subnormal bf16.
bool load_floats(Execution& execution, float* to, const std::byte* from, int64_t count,
                 Format format);
void store_floats(Execution& execution, std::byte* to, const float* from, int64_t count,
                  Format format);

}  // namespace subbyte::device
