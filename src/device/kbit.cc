#include "device/kbit.h"

#include <algorithm>
#include <string>

#include "codebook/kbit_codes.h"
#include "codebook/vq.h"
#include "matrix/codebook.h"
#include "quantize/kbit.h"

namespace subbyte::device {

Status quantize_kbit(const void* numbers, Format number, int64_t count, const KbitBlocks& to,
                     bool nearest_scales, const Gpu& gpu) {
  if (to.p != 0) {
    SUBBYTE_CHECK(codebook::check_vq_codebook(to.vectors, to.p));
    return cuda::quantize_vq(numbers, number, count, {to.vectors, to.p}, to.buffers, gpu.stream());
  }
  SUBBYTE_TRY(const auto found, codebook::kbit_thresholds(to.codebook, to.buffers.k));
  cuda::KbitThresholds thresholds;
  std::ranges::copy(found, thresholds.values);
  return cuda::quantize_kbit(numbers, number, count, thresholds, to.buffers, gpu.stream(),
                             nearest_scales);
}

Status dequantize_kbit(const KbitBlocks& from, int64_t rows, int64_t cols, bool is_tiled,
                       Format number, void* out, const Gpu& gpu) {
  cuda::KbitDequantization call;
  call.from = from.buffers;
  call.rows = rows;
  call.cols = cols;
  call.is_tiled = is_tiled;
  call.number = number;
  call.out = out;
  if (from.p != 0) {
    SUBBYTE_CHECK(codebook::check_vq_codebook(from.vectors, from.p));
    return cuda::dequantize_vq(call, {from.vectors, from.p}, gpu.stream());
  }
  const std::string fault = codebook_fault(from.codebook, kbit_element(from.buffers.k));
  if (!fault.empty()) return Error{"kbit.codebook", "kbit: codebook: expected " + fault};
  call.codebook = from.codebook;
  return cuda::dequantize_kbit(call, gpu.stream());
}

}  // namespace subbyte::device
