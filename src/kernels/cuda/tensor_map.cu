#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include <string>

#include "kernels/cuda/common/arguments.h"

namespace subbyte::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                               12000, cudaEnableDefault, &found);
    const bool ok = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return ok ? reinterpret_cast<EncodeTiled>(entry) : nullptr;
  }();
  return function;
}

/// A matrix of rows of `cols` elements, `row_bytes` from one to the next, in boxes of `box_cols` by
/// `box_rows`.
struct Described {
  const void* data;
  CUtensorMapDataType type;
  CUtensorMapSwizzle swizzle;
  int64_t rows;
  int64_t cols;
  int64_t row_bytes;
  int box_rows;
  int box_cols = kTileCols;
};

Status encode(CUtensorMap& map, const Described& d) {
  const cuuint64_t size[2] = {static_cast<cuuint64_t>(d.cols), static_cast<cuuint64_t>(d.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(d.row_bytes)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(d.box_cols),
                             static_cast<cuuint32_t>(d.box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  const EncodeTiled function = encode_tiled();
  if (function == nullptr) {
    return Error{"cuda.launch", "the driver has no cuTensorMapEncodeTiled"};
  }
  const CUresult result =
      function(&map, d.type, 2, const_cast<void*>(d.data), size, strides, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, d.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return Error{"cuda.launch", "the driver refused a tensor map, error " +
                                  std::to_string(static_cast<int>(result))};
}

}  // namespace

Status describe_activations(CUtensorMap& map, const void* x, int64_t m, int64_t cols,
                            int64_t stride, int tokens, Number number) {
  const CUtensorMapDataType type =
      number == Number::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  return encode(map, {x, type, CU_TENSOR_MAP_SWIZZLE_128B, m, cols, stride * 2, tokens});
}

Status describe_bytes(CUtensorMap& map, const uint8_t* x, int64_t m, int64_t cols, int tokens) {
  return encode(
      map, {x, CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_64B, m, cols, cols, tokens});
}

Status describe_pairs_of_bytes(CUtensorMap& map, const uint8_t* x, int64_t m, int64_t cols,
                               int tokens) {
  return encode(map, {x, CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_128B, m, cols, cols,
                      tokens, 2 * kTileCols});
}

Status describe_strips(CUtensorMap& map, const uint8_t* data, int64_t rows, int64_t row_bytes,
                       int box) {
  constexpr int kStrips = 8;
  constexpr int kLongest = 256;  // elements of a box
  const bool in_bytes = box <= kLongest;
  const int element = in_bytes ? 1 : 8;
  return encode(
      map,
      {data, in_bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_UINT64,
       CU_TENSOR_MAP_SWIZZLE_NONE, rows, row_bytes / element, row_bytes, kStrips, box / element});
}

}  // namespace subbyte::cuda
