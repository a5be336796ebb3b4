// Quantizing to blocks that share a scale.

#include <array>

#include "base/quote.h"
#include "c_interface/context.h"
#include "c_interface/errors.h"
#include "c_interface/gpu.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cuda/quantize/quantize.h"

using namespace subbyte;

namespace {

/// Index of `name` among `names`; the first if it is NULL and has a default.
template <std::size_t kCount>
Result<int> index_of(const char* what, const char* name,
                     const std::array<std::string_view, kCount>& names, bool has_default) {
  if (name == nullptr && has_default) return 0;
  std::string expected = "one of ";
  for (std::size_t i = 0; i < kCount; ++i) {
    if (name != nullptr && names[i] == name) return static_cast<int>(i);
    expected += (i == 0 ? "" : ", ") + std::string(names[i]);
  }
  return c::refuse(what, expected, name == nullptr ? "NULL" : quote(name));
}

constexpr std::array<std::string_view, 4> kFormats = {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4"};
constexpr std::array<std::string_view, 3> kLayouts = {"linear", "128x4", "8x4"};

Result<BlockQuantization> read_blocks(const subbyte_blocks* from) {
  SUBBYTE_TRY(const subbyte_blocks b, c::read_struct("blocks", from));
  SUBBYTE_TRY(const int format, index_of("blocks.format", b.format, kFormats, false));
  SUBBYTE_TRY(const int layout, index_of("blocks.layout", b.layout, kLayouts, true));
  BlockQuantization blocks;
  if (b.rule != nullptr) {
    SUBBYTE_TRY(blocks.rule, find_scale_rule(b.rule));
  }
  blocks.format = static_cast<BlockFormat>(format);
  SUBBYTE_TRY(blocks.input, c::float_of("blocks.input", b.input));
  blocks.layout = static_cast<ScaleLayout>(layout);
  blocks.rows = b.rows;
  blocks.cols = b.cols;
  blocks.alignment = b.alignment == 0 ? 32 : b.alignment;
  blocks.tensor_scale = b.tensor_scale == 0 ? 1 : b.tensor_scale;
  SUBBYTE_CHECK(check_block_quantization(blocks));
  return blocks;
}

Status measure(const subbyte_blocks* from, subbyte_blocks_sizes* sizes) {
  SUBBYTE_TRY(const BlockQuantization blocks, read_blocks(from));
  subbyte_blocks_sizes found = {};
  found.padded_cols = blocks.padded_cols();
  found.code_bytes = blocks.code_bytes();
  found.scale_rows = blocks.scale_rows();
  found.scale_cols = blocks.scale_cols();
  return c::write_struct("sizes", sizes, found);
}

Status quantize(const subbyte_context* context, const subbyte_blocks* from, const void* x,
                void* codes, void* scales, void* stream) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}}));
  SUBBYTE_TRY(const BlockQuantization blocks, read_blocks(from));
  static constexpr char kNothing = 0;  // in the place of what has no bytes
  SUBBYTE_CHECK(c::check_addresses({{"x", blocks.rows > 0 ? x : &kNothing},
                                    {"codes", blocks.rows > 0 ? codes : &kNothing},
                                    {"scales", blocks.rows > 0 ? scales : &kNothing}}));
  const int device = device::gpu_of(x);
  if (device >= 0) {
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(device, stream));
    return cuda::quantize_blocks(blocks, x, codes, scales, gpu.stream());
  }
  SUBBYTE_CHECK(c::check_on_host({{"codes", codes}, {"scales", scales}}));
  SUBBYTE_TRY(const auto turn, c::Turn::take(context->shared));
  Execution& execution = *context->shared->execution;
  return cpu::quantize_blocks(blocks, x, codes, scales, execution.kernels(), execution.pool());
}

}  // namespace

int subbyte_blocks_measure(const subbyte_blocks* blocks, subbyte_blocks_sizes* sizes) {
  return c::run([&] { return measure(blocks, sizes); });
}

int subbyte_blocks_quantize(subbyte_context* context, const subbyte_blocks* blocks, const void* x,
                            void* codes, void* scales, void* stream) {
  return c::run([&] { return quantize(context, blocks, x, codes, scales, stream); });
}
