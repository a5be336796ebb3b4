#pragma once
// Tensors and linear layers of a checkpoint, as they lie in its files.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "subbyte/format.h"
#include "subbyte/status.h"

namespace subbyte {
class MappedFile;  // of the library's own layers
}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

/// The element types of safetensors, and what GGUF has beside them.
enum class DType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
  kBlocks,  // of GGUF: FileTensor::ggml_type says which
};

int bits(DType dtype);               // 0: it has blocks
std::string_view name(DType dtype);  // "F16", as the files say it

using Shape = std::vector<uint64_t>;  // the last dimension is contiguous

/// A tensor and where its bytes lie: in the mapping of a file that `file` keeps open.
/// The bytes need not be aligned to the size of the element.
struct FileTensor {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const MappedFile> file;
  /// The number that ggml has for its type; -1: the dtype says all.
  int32_t ggml_type = -1;
  /// Row i of the matrix is row (*rows)[i] of the bytes; nullptr: they lie in order.
  std::shared_ptr<const std::vector<uint32_t>> rows = nullptr;
  /// The columns are so many equal parts: part i is part (*cols)[i] of the bytes of a row; nullptr:
  /// they lie in order.
  std::shared_ptr<const std::vector<uint32_t>> cols = nullptr;
};

using TensorMap = std::map<std::string, FileTensor, std::less<>>;

/// Contents of the tensors of a module, known without reading the weights.
struct ModuleInfo {
  std::string_view importer = {};  // "awq", "gptq", "mxfp4", "dense", ...
  WeightFormat format;
  int64_t experts = 1;  // matrices under this name
  int64_t rows = 0;     // N, outputs (of each expert)
  int64_t cols = 0;     // K, inputs
  bool act_order = false;
  std::vector<const FileTensor*> tensors;  // of the checkpoint
  const FileTensor* scales = nullptr;      // the one of `tensors` that has them, if any has

  uint64_t bytes() const;  // in the file
};

struct FoundModule {
  std::string name;         // "model.layers.0.mlp.up_proj"
  Result<ModuleInfo> info;  // the error: why it cannot be read
  bool is_read = true;      // false: of a part that nothing here computes
};

SUBBYTE_END_NAMESPACE
