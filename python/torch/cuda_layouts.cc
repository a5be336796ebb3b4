// Weights and scales in the layouts of other software on GPUs of NVIDIA.

#include "kernels/cuda/ops/dequantize.h"
#include "kernels/cuda/ops/other_layouts.h"
#include "on_device.h"

namespace subbyte::torch_operators {
namespace {

cuda::NibbleBlocks blocks_of(const Tensor& packed, const Tensor& absmax, const Tensor& numbers,
                             int64_t blocksize) {
  return {packed.data<uint8_t>(),       absmax.data<float>(), numbers.data(),
          element_of(numbers.format()), numbers.count(),      blocksize};
}

}  // namespace

Status quantize_nibbles_on_gpu(const Tensor& numbers, const Rising& rising, int64_t blocksize,
                               Tensor& packed, Tensor& absmax) {
  const OnDevice device(numbers);
  return cuda::quantize_nibbles(blocks_of(packed, absmax, numbers, blocksize),
                                {rising.codes, rising.middles}, device.stream());
}

Status dequantize_nibbles_on_gpu(const Tensor& packed, const Tensor& absmax, const Table& table,
                                 int64_t blocksize, Tensor& out) {
  const OnDevice device(out);
  return cuda::dequantize_nibbles(blocks_of(packed, absmax, out, blocksize), table,
                                  device.stream());
}

Status dequantize_awq_on_gpu(const Tensor& words, const Tensor& scales, const Tensor& zeros,
                             Tensor& out) {
  const OnDevice device(out);
  cuda::AwqWords awq;
  awq.out = out.data();
  awq.words = words.data<const uint32_t>();
  awq.scales = scales.data();
  awq.zeros = zeros.data<const uint32_t>();
  awq.element = element_of(out.format());
  awq.rows = out.size(1);
  awq.cols = out.size(0);
  awq.groups = scales.size(0);
  return cuda::dequantize_awq(awq, device.stream());
}

Status dequantize_fp4_on_gpu(const BlockQuantization& blocks, const Tensor& codes,
                             const Tensor& scales, double factor, Tensor& out) {
  if (out.count() == 0) return {};
  const OnDevice device(out);
  const Tensor from = aligned(codes);
  MatrixView view;
  view.format = {blocks.element(), blocks.scale(), Zero::kNone, blocks.group()};
  view.rows = blocks.rows;
  view.cols = blocks.cols;
  view.codes = from.span();
  view.scales = scales.span();
  view.tensor_scale = factor;
  Tensor linear = bytes_on_gpu(blocks.rows * view.groups(), out);
  if (blocks.layout != ScaleLayout::kLinear) {
    cuda::ScaleMove move;
    move.to = linear.data();
    move.from = scales.data();
    move.rows = blocks.rows;
    move.cols = view.groups();
    move.padded_rows = blocks.scale_rows();
    move.padded_cols = blocks.scale_cols();
    move.layout = static_cast<int>(blocks.layout);
    move.to_rows = true;
    SUBBYTE_CHECK(cuda::move_scales(move, device.stream()));
    view.scales = linear.span();
  }
  return cuda::dequantize(view, Element::kF32, out.data(), device.stream());
}

Status interleave_scales_on_gpu(const Tensor& in, int64_t experts, Tensor& out) {
  const OnDevice device(out);
  cuda::ScaleMove move;
  move.to = out.data();
  move.from = in.data();
  move.matrices = experts;
  move.rows = in.size(-2);
  move.cols = in.size(-1);
  move.padded_rows = (move.rows + 127) / 128 * 128;
  move.padded_cols = (move.cols + 3) / 4 * 4;
  move.width = in.dtype() == numbers().u8 ? 1 : 2;
  return cuda::move_scales(move, device.stream());
}

}  // namespace subbyte::torch_operators
