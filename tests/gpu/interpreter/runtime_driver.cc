// The functions of the driver that are looked up by name: contexts and tensor maps.
#include <cuda.h>

#include <cstring>
#include <string_view>

#include "interpreter.h"
#include "report.h"
#include "runtime.h"

namespace subbyte::interpreter {
namespace {

/// A map is opaque to programs. Here it has this mark and the address of a TensorMap.
constexpr uint64_t kMark = 0x7375626279746572;

struct OwnMap {
  uint64_t mark;
  const TensorMap* tensor;
};

CUresult retain_context(CUcontext* context, CUdevice device) {
  *context = reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1);
  return CUDA_SUCCESS;
}

CUresult push_context(CUcontext context) {
  push_device(static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1);
  return CUDA_SUCCESS;
}

CUresult pop_context(CUcontext* context) {
  static_cast<void>(retain_context(context, current_device()));
  return pop_device() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

int bytes_of(CUtensorMapDataType type) {
  constexpr int kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  const auto index = static_cast<size_t>(type);
  return index < std::size(kBytes) ? kBytes[index] : 0;
}

uint64_t widest_box(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE:
      return ~uint64_t{0};
    case CU_TENSOR_MAP_SWIZZLE_32B:
      return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      return 64;
    default:
      return 128;
  }
}

/// What the documentation of cuTensorMapEncodeTiled() forbids, or null.
const char* problem_with(const TensorMap& tensor, const void* map, const cuuint32_t* steps) {
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0) return "a map that is misaligned";
  if (tensor.address == 0 || tensor.address % 16 != 0) return "its address";
  if (tensor.element_bytes == 0) return "its type";
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.size[i] == 0 || tensor.size[i] > uint64_t{1} << 32) return "a size";
    if (tensor.box[i] == 0 || tensor.box[i] > 256) return "the size of its box";
    if (steps[i] != 1) return "steps, which are not known";
    if (i > 0 && (tensor.stride[i] % 16 != 0 || tensor.stride[i] >= uint64_t{1} << 40)) {
      return "a stride";
    }
  }
  const uint64_t row = uint64_t{tensor.box[0]} * uint64_t(tensor.element_bytes);
  if (row % 16 != 0) return "rows of a box that are no multiple of 16 bytes";
  const auto swizzle = static_cast<CUtensorMapSwizzle>(tensor.swizzle);
  return row > widest_box(swizzle) ? "rows that are wider than its swizzle" : nullptr;
}

CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                      const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  if (rank < 1 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  TensorMap tensor;
  tensor.address = reinterpret_cast<uint64_t>(address);
  tensor.rank = static_cast<int>(rank);
  tensor.element_bytes = bytes_of(type);
  tensor.swizzle = static_cast<int>(swizzle);
  for (cuuint32_t i = 0; i < rank; ++i) {
    tensor.size[i] = sizes[i];
    tensor.box[i] = box[i];
    if (i > 0) tensor.stride[i] = strides[i - 1];
  }
  if (const char* problem = problem_with(tensor, map, steps)) {
    remark("the map of a tensor has %s", problem);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const OwnMap own{kMark, new TensorMap(tensor)};  // maps are copied, and nobody says when they end
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &own, sizeof own);
  return CUDA_SUCCESS;
}

void* function_named(std::string_view name) {
  if (name == "cuTensorMapEncodeTiled") return reinterpret_cast<void*>(encode_tiled);
  if (name == "cuDevicePrimaryCtxRetain") return reinterpret_cast<void*>(retain_context);
  if (name == "cuCtxPushCurrent") return reinterpret_cast<void*>(push_context);
  if (name == "cuCtxPopCurrent") return reinterpret_cast<void*>(pop_context);
  return nullptr;
}

}  // namespace

const TensorMap* tensor_at(uint64_t address) {
  OwnMap own;
  std::memcpy(&own, reinterpret_cast<const void*>(address), sizeof own);
  return own.mark == kMark ? own.tensor : nullptr;
}

}  // namespace subbyte::interpreter

using namespace subbyte::interpreter;

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned,
                                                        unsigned long long,
                                                        cudaDriverEntryPointQueryResult* found) {
  *entry = function_named(name);
  if (*entry == nullptr) remark("the driver's %s is not known", name);
  if (found != nullptr) {
    *found = *entry != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}
