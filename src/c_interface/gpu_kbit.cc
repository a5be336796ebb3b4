// bitsandbytes' kbit and vectors with buffers of a GPU.

#include <algorithm>
#include <string>

#include "bitsandbytes/kbit_codes.h"
#include "c_interface/gpu.h"
#include "c_interface/gpu_memory.h"
#include "kernels/cuda/ops/kbit.h"
#include "matrix/codebook.h"
#include "quantize/kbit.h"

namespace subbyte::c {
namespace {

/// VQ has the words of as many planes.
cuda::KbitBuffers buffers_of(const subbyte_kbit& b) {
  cuda::KbitBuffers buffers;
  buffers.packed = b.packed;
  buffers.absmax = b.absmax;
  buffers.packed_words = b.packed_words;
  buffers.absmax_elements = b.absmax_elements;
  buffers.scale = static_cast<Format>(b.absmax_dtype);
  buffers.k = b.p == 0 ? b.k : 8 / b.p;
  return buffers;
}

std::span<const float> codebook_of(const subbyte_kbit& b) {
  return {static_cast<const float*>(b.codebook), std::size_t{1} << b.k};
}

cuda::VqVectors vectors_of(const subbyte_kbit& b) {
  const auto count = static_cast<std::size_t>(256 * b.p);
  return {{static_cast<const uint16_t*>(b.codebook), count}, b.p};
}

cuda::Stream stream_of(const subbyte_kbit& b) {
  return static_cast<cuda::Stream>(b.stream);
}

}  // namespace

Status quantize_kbit_on_gpu(const subbyte_kbit& to, const void* numbers, Format number,
                            int64_t count, int device) {
  const CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  if (to.p != 0) {
    return cuda::quantize_vq(numbers, number, count, vectors_of(to), buffers_of(to), stream_of(to));
  }
  SUBBYTE_TRY(const auto found, bitsandbytes::kbit_thresholds(codebook_of(to), to.k));
  cuda::KbitThresholds thresholds;
  std::ranges::copy(found, thresholds.values);
  return cuda::quantize_kbit(numbers, number, count, thresholds, buffers_of(to), stream_of(to));
}

Status dequantize_kbit_on_gpu(const subbyte_kbit& from, Format number, void* out, int device) {
  const CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  cuda::KbitDequantization call;
  call.from = buffers_of(from);
  call.is_tiled = from.tiled != 0;
  // Flat blocks are whole, however they are divided into rows.
  const int64_t count = from.k_dim == 0 ? from.n : from.n * from.k_dim;
  call.rows = call.is_tiled ? from.n : (count + 31) / 32;
  call.cols = call.is_tiled ? from.k_dim : 32;
  call.number = number;
  call.out = out;
  if (from.p != 0) return cuda::dequantize_vq(call, vectors_of(from), stream_of(from));
  const std::string fault = codebook_fault(codebook_of(from), kbit_element(from.k));
  if (!fault.empty()) return Error{"kbit.codebook", "kbit: codebook: expected " + fault};
  call.codebook = codebook_of(from);
  return cuda::dequantize_kbit(call, stream_of(from));
}

Status repack_kbit_on_gpu(const subbyte_kbit& from, const subbyte_kbit& to, int device) {
  const CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  return cuda::repack_kbit(buffers_of(from), buffers_of(to), to.n, to.k_dim, to.tiled != 0,
                           stream_of(to));
}

}  // namespace subbyte::c
