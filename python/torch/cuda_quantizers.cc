// What is done to weights once, quantizing and repacking, on GPUs of NVIDIA.

#include <cuda_runtime_api.h>

#include <array>

#include "kernels/cuda/ops/int4_operands.h"
#include "kernels/cuda/ops/quantize_weights.h"
#include "kernels/cuda/ops/repack.h"
#include "on_device.h"

namespace subbyte::torch_operators {
namespace {

/// A word that a kernel has written; 0 in a capture, which cannot wait for it.
Result<uint32_t> read_word(const uint32_t* there, const Tensor& like, cuda::Stream stream) {
  if (is_captured_on_gpu(like)) return uint32_t{0};
  uint32_t word = 0;
  const auto of_runtime = static_cast<cudaStream_t>(stream);
  cudaMemcpyAsync(&word, there, sizeof word, cudaMemcpyDeviceToHost, of_runtime);
  SUBBYTE_CHECK(wait_for(stream));
  return word;
}

Tensor word_on_gpu(const Tensor& like) {
  return bytes_on_gpu(sizeof(uint32_t), like);
}

cuda::Int4Order order_of(const Int4Words& words) {
  constexpr std::array kOfCpus = {cuda::Int4Order::kHalves64, cuda::Int4Order::kHalves32,
                                  cuda::Int4Order::kPairs32, cuda::Int4Order::kPairs16};
  if (words.tiles == 0) return kOfCpus[static_cast<std::size_t>(words.cpu_tile)];
  return words.tiles == 2   ? cuda::Int4Order::kTiles2
         : words.tiles == 4 ? cuda::Int4Order::kTiles4
                            : cuda::Int4Order::kTiles8;
}

}  // namespace

bool is_captured_on_gpu(const Tensor& tensor) {
  const OnDevice device(tensor);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(static_cast<cudaStream_t>(device.stream()), &status) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
  }
  return status != cudaStreamCaptureStatusNone;
}

Result<bool> quantize_weights_on_gpu(const WeightQuantization& how, const Tensor& weights,
                                     const QuantizedWeights& to) {
  const OnDevice device(weights);
  cuda::WeightBuffers buffers;
  buffers.weights = weights.data();
  buffers.element = element_of(weights.format());
  buffers.rows = weights.size(0);
  buffers.cols = weights.size(1);
  buffers.codes = to.codes.data<uint8_t>();
  buffers.scales = to.scales.data<uint8_t>();
  if (to.zeros) buffers.zeros = to.zeros->data<uint8_t>();
  if (to.factor) buffers.factor = to.factor->data<double>();
  const bool as_bytes = cuda::needs_byte_codes(how, buffers.cols);
  const Tensor bytes = bytes_on_gpu(as_bytes ? weights.count() : 0, weights);
  buffers.byte_codes = bytes.data<uint8_t>();
  const Tensor state = bytes_on_gpu(2 * sizeof(uint32_t), weights);
  buffers.state = state.data<uint32_t>();
  SUBBYTE_CHECK(cuda::quantize_weights(how, buffers, device.stream()));
  SUBBYTE_TRY(const uint32_t fault, read_word(buffers.state + 1, weights, device.stream()));
  return fault == 0;
}

Result<bool> repack_marlin_on_gpu(const MarlinWords& from, Tensor& out) {
  const OnDevice device(out);
  const Tensor fault = word_on_gpu(out);
  cuda::MarlinRepack repack;
  repack.to = out.data<uint32_t>();
  repack.words = from.words->data<const uint32_t>();
  repack.rows = from.rows;
  repack.cols = from.cols;
  repack.bits = from.bits;
  repack.is_awq = from.is_awq;
  if (from.perm != nullptr) {
    repack.order = from.perm->data<const int32_t>();
    repack.fault = fault.data<uint32_t>();
  }
  SUBBYTE_CHECK(cuda::repack_marlin(repack, device.stream()));
  if (from.perm == nullptr) return true;
  SUBBYTE_TRY(const uint32_t word, read_word(repack.fault, out, device.stream()));
  return word == 0;
}

Result<bool> convert_int4_on_gpu(const Int4Words& from, Tensor& out) {
  const OnDevice device(out);
  const Tensor fault = word_on_gpu(out);
  const Tensor canonical = bytes_on_gpu(out.num_bytes(), out);
  const bool has_words = from.codes->dtype() == numbers().i32;
  cuda::NibbleCodes codes;
  codes.to = canonical.data<uint8_t>();
  codes.count = out.num_bytes();
  if (has_words) {
    codes.words = from.codes->data<const int32_t>();
    codes.fault = fault.data<uint32_t>();
  } else {
    codes.bytes = from.codes->data<const uint8_t>();
  }
  SUBBYTE_CHECK(cuda::narrow_nibbles(codes, device.stream()));
  SUBBYTE_CHECK(cuda::pack_int4(out.data(), canonical.data(),
                                {order_of(from), from.rows, from.cols}, device.stream()));
  if (!has_words) return true;
  SUBBYTE_TRY(const uint32_t word, read_word(codes.fault, out, device.stream()));
  return word == 0;
}

}  // namespace subbyte::torch_operators
