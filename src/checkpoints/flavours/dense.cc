// Unquantized weights: F32, F16 or BF16, used where they lie in the file.
//
//   X.weight [N, K]         a linear layer or an embedding. Beside one that it did not quantize, as
//                           its sides are no multiples of 128, transformers' FP8 leaves factors
//                           (X.weight_scale_inv), which stand for nothing
//   X        [E, N, K]      all experts of a layer; also X.weight
//   X        [E, K, N]      the same with inputs before outputs, as gpt-oss has them when it was
//                           dequantized: it is transposed here

#include "base/quote.h"
#include "checkpoints/flavour.h"
#include "checkpoints/foreign_software.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/transpose.h"

namespace subbyte {
namespace {

bool matches(const TensorSource& tensors, std::string_view module) {
  return find_tensor(tensors, module, ".weight") != nullptr || tensors.find(module) != nullptr;
}

/// What tools of the config's flavour leave beside such a module; nullptr without it.
const FileTensor* find_left_over(const ImportContext& context, std::string_view module) {
  const Flavour* const flavour = context.config.flavour;
  if (flavour == nullptr || flavour->left_over.empty()) return nullptr;
  return find_tensor(context.tensors, module, flavour->left_over);
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  const FileTensor* plain = find_tensor(context.tensors, module, ".weight");
  const FileTensor& tensor = plain != nullptr ? *plain : *context.tensors.find(module);
  const Format format = float_format(tensor.dtype);
  if (format == Format::kNone) {
    if (const auto name = foreign_weights(context.tensors, module); !name.empty()) {
      return foreign_error(
          "dense.dtype",
          fmt::format("{}: tensor {}", tensor.file->path().string(), quote_name(tensor.name)),
          name);
    }
    const bool lacks_factor = tensor.dtype == DType::kF8E4M3;
    return tensor_error(
        "dense.dtype", tensor,
        fmt::format("expected dtype F16, BF16 or F32, found {}{}", name(tensor.dtype),
                    lacks_factor ? " without a factor (.weight_scale_inv or .weight_scale)" : ""));
  }
  const bool is_stack = plain == nullptr || tensor.shape.size() == 3;
  SUBBYTE_CHECK(require_rank(tensor, is_stack ? 3 : 2));
  ModuleInfo result;
  result.format = {format, Format::kNone, Zero::kNone, 0};
  result.tensors = {&tensor};
  if (!is_stack) {
    if (const FileTensor* const unused = find_left_over(context, module)) {
      result.tensors.push_back(unused);
    }
    result.rows = static_cast<int64_t>(tensor.shape[0]);
    result.cols = static_cast<int64_t>(tensor.shape[1]);
  } else {
    result.experts = static_cast<int64_t>(tensor.shape[0]);
    result.cols = static_cast<int64_t>(tensor.shape[1]);
    result.rows = static_cast<int64_t>(tensor.shape[2]);
    if (!context.stacks_have_inputs_first) std::swap(result.rows, result.cols);
  }
  return result;
}

Matrix make_matrix(const ModuleInfo& info, std::span<const std::byte> codes,
                   std::shared_ptr<const void> owner) {
  Matrix matrix = matrix_of(info);
  matrix.view.codes = codes;
  matrix.owners = {std::move(owner)};
  return matrix;
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& tensor = *info.tensors[0];
  const int64_t width = subbyte::info(info.format.element).bits / 8;
  const bool transposed = tensor.shape.size() == 3 && context.stacks_have_inputs_first;
  const bool aligned = reinterpret_cast<uintptr_t>(tensor.bytes.data()) % width == 0;
  std::vector<Matrix> matrices;
  const std::size_t bytes = tensor.bytes.size() / info.experts;
  for (int64_t e = 0; e < info.experts; ++e) {
    const auto from = tensor.bytes.subspan(e * bytes, bytes);
    if (!transposed && aligned) {
      matrices.push_back(make_matrix(info, from, tensor.file));
      continue;
    }
    const auto copy = allocate_bytes(bytes);
    if (transposed) {
      transpose(copy.get(), from.data(), info.cols, info.rows, static_cast<int>(width),
                context.pool, tensor.file.get());
    } else {
      __builtin_memcpy(copy.get(), from.data(), bytes);
    }
    matrices.push_back(make_matrix(info, {copy.get(), bytes}, copy));
    tensor.file->release(from);
  }
  return matrices;
}

}  // namespace

extern const Importer dense_importer;
const Importer dense_importer = {"dense", ".weight", matches, describe, import, check_scales};

}  // namespace subbyte
