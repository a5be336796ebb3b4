// FP8: see fp8_parts.h. The method of the config says which shapes factors may have.

#include "checkpoints/flavours/fp8_parts.h"

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/float16.h"
#include "base/quote.h"
#include "checkpoints/expert_names.h"
#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/flavours/modelopt_parts.h"
#include "checkpoints/import_parts.h"

namespace subbyte {

extern const Importer fp8_importer;

namespace {

using fp8::Block;
using Method = QuantizationConfig::Method;

constexpr std::string_view kFactors[] = {".weight_scale_inv", ".weight_scale"};
constexpr std::string_view kFactorsOfStack = "_scale_inv";
/// Scales of activations.
constexpr std::string_view kActivations[] = {".input_scale", ".input_scale_inv",
                                             ".activation_scale", ".activation_scale_inv"};

/// Factors of a module, which may be a part of a tensor.
struct Factors {
  const FileTensor* tensor = nullptr;
  Shape shape = {};
  int64_t first = 0;  // number of the first one in the tensor
};

/// Factors of one expert among those of all in a tensor; gate is the first half of them.
Factors find_factors_of_expert(const TensorSource& tensors, std::string_view module) {
  const auto parts = parse_expert_name(module);
  if (!parts) return {};
  std::string_view stack = parts->stack;
  const std::size_t last = stack.rfind('.') + 1;
  const std::string_view matrix = stack.substr(last);
  const bool is_gate = matrix == "gate_proj";
  const bool is_half = is_gate || matrix == "up_proj";
  const FileTensor* const all = tensors.find(fmt::format(
      "{}{}{}", stack.substr(0, last), is_half ? "gate_up_proj" : matrix, kFactorsOfStack));
  if (all == nullptr || all->shape.size() != 3) return {};
  const auto experts = all->shape[0];
  const uint64_t rows = all->shape[1];
  const uint64_t cols = all->shape[2];
  const auto expert = static_cast<uint64_t>(parts->expert);
  if (expert >= experts || (is_half && rows % 2 != 0)) return {};
  const uint64_t count = is_half ? rows / 2 : rows;
  const uint64_t row = expert * rows + (is_half && !is_gate ? count : 0);
  return {all, {count, cols}, static_cast<int64_t>(row * cols)};
}

Factors find_factors(const TensorSource& tensors, std::string_view module) {
  for (const std::string_view suffix : kFactors) {
    if (const FileTensor* factors = find_tensor(tensors, module, suffix))
      return {factors, factors->shape};
  }
  return find_factors_of_expert(tensors, module);
}

bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* weight = find_tensor(tensors, module, ".weight");
  return weight != nullptr && weight->dtype == DType::kF8E4M3 &&
         find_factors(tensors, module).tensor != nullptr;
}

/// Type of the scales that factors become: F16 has no kernels, and F32 holds all of its numbers.
Result<Format> scale_format(const FileTensor& factors) {
  switch (factors.dtype) {
    case DType::kF32:
    case DType::kF16:
      return Format::kF32;
    case DType::kBF16:
      return Format::kBF16;
    case DType::kF8E8M0:
    case DType::kU8:
      return Format::kE8M0;
    default:
      return tensor_error("import.dtype", factors,
                          fmt::format("expected dtype F32, BF16, F16, F8_E8M0 or U8, found {}",
                                      name(factors.dtype)));
  }
}

/// Shape that factors of such blocks have.
Shape scales_shape(const Block& block, uint64_t rows, uint64_t cols) {
  const auto block_rows = static_cast<uint64_t>(fp8::rows_of(block, static_cast<int64_t>(rows)));
  return {ceil_div(rows, block_rows),
          block.cols == 0 ? 1 : ceil_div(cols, static_cast<uint64_t>(block.cols))};
}

/// Two dimensions, whatever way they are written.
Shape plain_shape(const Shape& shape) {
  if (shape.empty()) return {1, 1};
  if (shape.size() == 1) return {shape[0], 1};
  if (shape.size() == 4 && shape[1] == 1 && shape[3] == 1) return {shape[0], shape[2]};
  return shape;
}

/// What the config lets factors be of.
std::vector<Block> blocks_of(const QuantizationConfig& config) {
  constexpr Block kTensor = {-1, 0};
  constexpr Block kRows = {1, 0};
  constexpr Block kMx = {1, 32};
  std::vector<Block> blocks;
  if (config.method == Method::kCompressedTensors) {
    for (const CompressedScheme& scheme : config.schemes) {
      if (scheme.format != CompressedScheme::Format::kFp8) continue;
      blocks.push_back({scheme.block_rows, scheme.group_size == -1 ? 0 : scheme.group_size});
    }
    return blocks;
  }
  if (config.block_cols != 0) blocks.push_back({config.block_rows, config.block_cols});
  const auto makes = [&](ModeloptWeights weights) {
    return std::ranges::find(config.modelopt, weights) != config.modelopt.end();
  };
  if (makes(ModeloptWeights::kMxfp8)) blocks.push_back(kMx);
  if (blocks.empty() || makes(ModeloptWeights::kFp8)) {
    blocks.insert(blocks.end(), {kTensor, kRows});
  }
  return blocks;
}

Status check_method(const ImportContext& context, std::string_view module) {
  const QuantizationConfig& config = context.config;
  if (config.method == Method::kCompressedTensors) {
    return require_scheme(context, module, CompressedScheme::Format::kFp8);
  }
  if (config.method == Method::kModelopt) {
    return require_modelopt(context, module, {ModeloptWeights::kFp8, ModeloptWeights::kMxfp8});
  }
  return require_method(context, module, Method::kFp8);
}

Result<Block> find_block(const ImportContext& context, const FileTensor& weight,
                         const Factors& factors) {
  const Shape found = plain_shape(factors.shape);
  std::string expected;
  for (const Block& block : blocks_of(context.config)) {
    const Shape shape = scales_shape(block, weight.shape[0], weight.shape[1]);
    if (found == shape) return block;
    if (!expected.empty()) expected += " or ";
    expected += to_string(shape);
  }
  return tensor_error(
      "import.shape", *factors.tensor,
      fmt::format("expected shape {} for {} weights, as {} says, found {}", expected,
                  to_string(weight.shape), context.config.where, to_string(factors.shape)));
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  const TensorSource& tensors = context.tensors;
  SUBBYTE_TRY(const FileTensor* weight, require_tensor(tensors, module, ".weight"));
  SUBBYTE_CHECK(require_dtype(*weight, DType::kF8E4M3));
  SUBBYTE_CHECK(require_rank(*weight, 2));
  const Factors factors = find_factors(tensors, module);
  if (factors.tensor == nullptr) return require_tensor(tensors, module, kFactors[0]).error();
  SUBBYTE_TRY(const auto named, find_same(tensors, {fmt::format("{}{}", module, kFactors[0]),
                                                    fmt::format("{}{}", module, kFactors[1])}));
  SUBBYTE_CHECK(check_method(context, module));
  ModuleInfo result;
  SUBBYTE_TRY(result.format.scale, scale_format(*factors.tensor));
  SUBBYTE_TRY(const Block block, find_block(context, *weight, factors));
  result.importer = "fp8";
  result.format.element = Format::kE4M3;
  result.format.group_size = block.cols;
  result.rows = static_cast<int64_t>(weight->shape[0]);
  result.cols = static_cast<int64_t>(weight->shape[1]);
  result.tensors = {weight, factors.tensor};
  if (named.size() > 1) result.tensors.push_back(named.back());
  result.scales = factors.tensor;
  for (const std::string_view suffix : kActivations) {
    if (const FileTensor* unused = find_tensor(tensors, module, suffix))
      result.tensors.push_back(unused);
  }
  return result;
}

/// Factor `index` as a scale of `width` bytes.
void load_factor(const FileTensor& factors, int64_t index, std::byte* to, std::size_t width) {
  if (factors.dtype == DType::kF16) {
    Float16 half;
    __builtin_memcpy(&half, factors.bytes.data() + 2 * index, 2);
    const float value = to_float(half);
    __builtin_memcpy(to, &value, 4);
    return;
  }
  __builtin_memcpy(to, factors.bytes.data() + index * static_cast<int64_t>(width), width);
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& weight = *info.tensors[0];
  const std::string_view name = weight.name;
  const Factors factors =
      find_factors(context.tensors, name.substr(0, name.size() - fp8_importer.anchor.size()));
  SUBBYTE_CHECK(check_scales(context, info));
  SUBBYTE_TRY(const Block block, find_block(context, weight, factors));
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format = info.format;
  view.rows = info.rows;
  view.cols = info.cols;
  view.codes = weight.bytes;
  matrix.owners.push_back(weight.file);
  const auto width = static_cast<std::size_t>(subbyte::info(info.format.scale).bits / 8);
  const int64_t groups = view.groups();
  const int64_t block_rows = fp8::rows_of(block, view.rows);
  const std::size_t bytes = static_cast<std::size_t>(view.rows * groups) * width;
  const auto scales = allocate_bytes(bytes);
  for (int64_t n = 0; n < view.rows; ++n) {
    for (int64_t g = 0; g < groups; ++g) {
      load_factor(*factors.tensor, factors.first + n / block_rows * groups + g,
                  scales.get() + static_cast<std::size_t>(n * groups + g) * width, width);
    }
  }
  view.scales = {scales.get(), bytes};
  matrix.owners.push_back(scales);
  return std::vector<Matrix>{std::move(matrix)};
}

}  // namespace

using Module = modelopt::WithInputFactors<describe, import>;
const Importer fp8_importer = {"fp8",          ".weight",   matches, Module::describe,
                               Module::import, check_scales};

}  // namespace subbyte
