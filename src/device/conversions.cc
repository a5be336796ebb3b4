#include "device/conversions.h"

#include "kernels/cuda/layouts/other_layouts.h"
#include "kernels/cuda/quantize/dequantize.h"

namespace subbyte::device {
namespace {

/// Whether a word that a kernel has written is 0.
Result<bool> is_zero(const uint32_t* word, const Gpu& gpu) {
  if (gpu.is_captured()) return true;
  uint32_t found = 0;
  SUBBYTE_CHECK(gpu.fetch(&found, word, sizeof found));
  return found == 0;
}

uint32_t* words_of(const Buffer& memory) {
  return reinterpret_cast<uint32_t*>(memory.data());
}

}  // namespace

Result<bool> quantize_weights(const WeightRounding& how, cuda::WeightBuffers buffers,
                              const Gpu& gpu) {
  const bool as_bytes = cuda::needs_byte_codes(how, buffers.cols);
  SUBBYTE_TRY(const Buffer bytes, gpu.allocate(as_bytes ? buffers.rows * buffers.cols : 0));
  SUBBYTE_TRY(const Buffer state, gpu.allocate(2 * sizeof(uint32_t)));
  buffers.byte_codes = reinterpret_cast<uint8_t*>(bytes.data());
  buffers.state = words_of(state);
  SUBBYTE_CHECK(cuda::quantize_weights(how, buffers, gpu.stream()));
  return is_zero(buffers.state + 1, gpu);
}

Result<bool> repack_marlin(cuda::MarlinRepack repack, const Gpu& gpu) {
  SUBBYTE_TRY(const Buffer fault, gpu.allocate(sizeof(uint32_t)));
  if (repack.order != nullptr) repack.fault = words_of(fault);
  SUBBYTE_CHECK(cuda::repack_marlin(repack, gpu.stream()));
  if (repack.order == nullptr) return true;
  return is_zero(repack.fault, gpu);
}

Result<bool> convert_int4(cuda::NibbleCodes codes, std::byte* to, const cuda::Int4Codes& shape,
                          const Gpu& gpu) {
  SUBBYTE_TRY(const Buffer canonical, gpu.allocate(codes.count));
  SUBBYTE_TRY(const Buffer fault, gpu.allocate(sizeof(uint32_t)));
  codes.to = reinterpret_cast<uint8_t*>(canonical.data());
  if (codes.words != nullptr) codes.fault = words_of(fault);
  SUBBYTE_CHECK(cuda::narrow_nibbles(codes, gpu.stream()));
  SUBBYTE_CHECK(cuda::pack_int4(to, canonical.data(), shape, gpu.stream()));
  if (codes.words == nullptr) return true;
  return is_zero(codes.fault, gpu);
}

Status dequantize_blocks(const BlockQuantization& blocks, const std::byte* codes,
                         const std::byte* scales, double factor, float* out, const Gpu& gpu) {
  MatrixView view;
  view.format = {blocks.element(), blocks.scale(), Zero::kNone, blocks.group()};
  view.rows = blocks.rows;
  view.cols = blocks.cols;
  view.codes = {codes, static_cast<std::size_t>(blocks.rows * view.row_bytes())};
  view.tensor_scale = factor;
  const int64_t count = blocks.rows * view.groups();
  SUBBYTE_TRY(const Buffer linear, gpu.allocate(blocks.layout == ScaleLayout::kLinear ? 0 : count));
  if (blocks.layout != ScaleLayout::kLinear) {
    cuda::ScaleMove move;
    move.to = linear.data();
    move.from = scales;
    move.rows = blocks.rows;
    move.cols = view.groups();
    move.padded_rows = blocks.scale_rows();
    move.padded_cols = blocks.scale_cols();
    move.layout = static_cast<int>(blocks.layout);
    move.to_rows = true;
    SUBBYTE_CHECK(cuda::move_scales(move, gpu.stream()));
    scales = linear.data();
  }
  view.scales = {scales, static_cast<std::size_t>(count)};
  return cuda::dequantize(view, Element::kF32, out, gpu.stream());
}

}  // namespace subbyte::device
