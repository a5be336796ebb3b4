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

}  // namespace

Status describe_activations(CUtensorMap& map, const void* x, int64_t m, int64_t cols,
                            int64_t stride, int tokens, Number number) {
  const CUtensorMapDataType type =
      number == Number::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const cuuint64_t size[2] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(m)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[2] = {kTileCols, static_cast<cuuint32_t>(tokens)};
  const cuuint32_t steps[2] = {1, 1};
  const EncodeTiled encode = encode_tiled();
  if (encode == nullptr) {
    return Error{"cuda.launch", "the driver has no cuTensorMapEncodeTiled"};
  }
  const CUresult result =
      encode(&map, type, 2, const_cast<void*>(x), size, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return Error{"cuda.launch", "the driver refused the tensor map of activations, error " +
                                    std::to_string(static_cast<int>(result))};
  }
  return {};
}

}  // namespace subbyte::cuda
