// FP8: see fp8_parts.h. The config says which shapes factors may have. Written are
//
//   fp8               factors of blocks of 128 x 128, as transformers, vLLM and SGLang read them
//   float_quantized   with a config of compressed-tensors: the same, or factors of rows
//
// A canonical matrix has a scale for each row: those of a block must be equal.

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/float16.h"
#include "base/quote.h"
#include "checkpoints/expert_names.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/flavours/fp8_parts.h"
#include "checkpoints/flavours/input_factors.h"
#include "checkpoints/import_parts.h"
#include "quantize/quantizers.h"

namespace subbyte {

namespace {

using fp8::Block;

constexpr std::string_view kAnchor = ".weight";
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

Result<Block> find_block(const ImportContext& context, std::string_view module,
                         const FileTensor& weight, const Factors& factors) {
  SUBBYTE_TRY(const auto* const said,
              require_state<fp8::SaysBlocks>(context, module, fp8_flavour.name));
  SUBBYTE_TRY(const std::vector<Block> blocks, said->blocks(context, module));
  const Shape found = plain_shape(factors.shape);
  std::string expected;
  for (const Block& block : blocks) {
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
  SUBBYTE_TRY(const Block block, find_block(context, module, *weight, factors));
  ModuleInfo result;
  SUBBYTE_TRY(result.format.scale, scale_format(*factors.tensor));
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
  std::string_view module = weight.name;
  module.remove_suffix(kAnchor.size());
  const Factors factors = find_factors(context.tensors, module);
  SUBBYTE_CHECK(check_scales(context, info));
  SUBBYTE_TRY(const Block block, find_block(context, module, weight, factors));
  Matrix matrix = matrix_of(info);
  MatrixView& view = matrix.view;
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

constexpr int64_t kBlock = 128;
constexpr int64_t kLargestBlock = int64_t{1} << 24;

bool holds(const WeightFormat& format, bool rows_too) {
  const bool scale = format.scale == Format::kF32 || format.scale == Format::kBF16 ||
                     (format.scale == Format::kE8M0 && !rows_too);
  const bool group = format.group_size == kBlock || (rows_too && format.group_size == 0);
  return format.element == Format::kE4M3 && format.zero == Zero::kNone && scale && group;
}

DType dtype_of(Format scale) {
  if (scale == Format::kE8M0) return DType::kF8E8M0;
  return scale == Format::kBF16 ? DType::kBF16 : DType::kF32;
}

int64_t block_rows(const WeightFormat& format) {
  return format.group_size == 0 ? 1 : kBlock;
}

Result<std::vector<ExportedTensor>> describe_tensors(const ExportShape& shape,
                                                     std::string_view module, bool rows_too) {
  SUBBYTE_CHECK(require_plain(shape, module));
  const WeightFormat& format = shape.format;
  if (!holds(format, rows_too)) {
    return export_error(
        "export.format", module,
        fmt::format("FP8 here is e4m3 with scales f32 or bf16{} for blocks of 128 "
                    "x 128{}, not {}",
                    rows_too ? "" : " or e8m0", rows_too ? " or rows" : "", to_string(format)));
  }
  if (shape.rows <= 0 || shape.cols <= 0) {
    return export_error("export.shape", module, "expected some outputs and inputs, found none");
  }
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto cols = static_cast<uint64_t>(shape.cols);
  const Shape factors = {ceil_div(rows, static_cast<uint64_t>(block_rows(format))),
                         format.group_size == 0 ? 1 : ceil_div(cols, uint64_t{kBlock})};
  return std::vector<ExportedTensor>{
      {".weight", DType::kF8E4M3, {rows, cols}, {}},
      {rows_too ? ".weight_scale" : ".weight_scale_inv", dtype_of(format.scale), factors, {}}};
}

/// The scales of the first row of each block, with which the others must agree.
Status write_factors(const MatrixView& matrix, std::string_view module,
                     std::span<std::byte> factors) {
  const auto row_bytes =
      static_cast<std::size_t>(matrix.groups() * info(matrix.format.scale).bits / 8);
  const int64_t rows = block_rows(matrix.format);
  for (int64_t n = 0; n < matrix.rows; ++n) {
    const auto scales = matrix.scales.subspan(static_cast<std::size_t>(n) * row_bytes, row_bytes);
    const auto block = factors.subspan(static_cast<std::size_t>(n / rows) * row_bytes, row_bytes);
    if (n % rows == 0) {
      std::ranges::copy(scales, block.begin());
    } else if (!std::ranges::equal(scales, block)) {
      return export_error("export.blocks", module,
                          fmt::format("scales of output {} are not those of output {}, with which "
                                      "it would share a block",
                                      n, n / rows * rows));
    }
  }
  return {};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          bool rows_too) {
  SUBBYTE_TRY(auto tensors,
              allocate(describe_tensors(shape_of(matrix), module, rows_too), matrix, module));
  std::ranges::copy(matrix.codes, tensors[0].bytes.begin());
  SUBBYTE_CHECK(write_factors(matrix, module, tensors[1].bytes));
  return tensors;
}

/// Scales of a row become those of each of its blocks where there are only blocks.
template <bool rows_too>
TargetFormat target(const ExportShape& from) {
  TargetFormat result = {from.format, TensorFactor::kNone, false};
  if (from.format.element != Format::kE4M3) return result;
  if (rows_too && from.format.scale == Format::kE8M0) result.format.scale = Format::kF32;
  if (!rows_too) result.format.group_size = kBlock;
  return result;
}

ExportedConfig config(const ExportedModel& model) {
  json::Value section = {{"quant_method", "fp8"},
                         {"activation_scheme", "dynamic"},
                         {"fmt", "e4m3"},
                         {"weight_block_size", {kBlock, kBlock}},
                         {"modules_to_not_convert", model.kept}};
  const bool powers = model.modules.front().shape.format.scale == Format::kE8M0;
  if (powers) section["scale_fmt"] = "ue8m0";
  return {section};
}

ExportedConfig float_quantized_config(const ExportedModel& model) {
  return compressed_config(model, "float-quantized");
}

constexpr QuantizeFormat quantized(std::string_view name, bool is_meant_by_text) {
  return {.name = name,
          .is_meant_by_text = is_meant_by_text,
          .bits = k8Bits,
          .default_bits = 8,
          .group_sizes = kGroupsOf128,
          .short_groups = true,
          .format = fp8_format,
          .quantize = to_fp8};
}

template <bool rows_too>
constexpr QuantizeFormat kQuantized[] = {
    quantized(rows_too ? "float_quantized" : "fp8", !rows_too)};

constexpr RandomElements kRandom[] = {RandomElements::kE4M3, RandomElements::kFactors};
constexpr SyntheticFormat kSynthetic[] = {
    {.name = "fp8",
     .format = {Format::kE4M3, Format::kF32, Zero::kNone, kBlock},
     .tensors = kRandom}};

template <bool rows_too>
constexpr Exporter make_exporter(std::string_view name) {
  return {
      .name = name,
      .quantized = kQuantized<rows_too>,
      .says_kv_cache = rows_too ? says_compressed_kv_cache : nullptr,
      .describe = [](const ExportShape& shape,
                     std::string_view module) { return describe_tensors(shape, module, rows_too); },
      .target = target<rows_too>,
      .config = rows_too ? float_quantized_config : config,
      .write = [](const MatrixView& matrix, std::string_view module,
                  Executor&) { return write(matrix, module, rows_too); },
      .readers = rows_too ? SUBBYTE_READERS("float_quantized",
                                            "tools transformers, tools transformers-dequantized")
                          : SUBBYTE_READERS("fp8", "tools transformers-fp8")};
}

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_FLAVOUR_KEY("fp8", "weight_block_size", kComputed, "",
                        "outputs and inputs of a factor; absent: rows or the tensor"),
    SUBBYTE_FLAVOUR_KEY("fp8", "fmt", kComputed, "", "e4m3, or float8_e4m3fn, which is the same"),
    SUBBYTE_FLAVOUR_KEY("fp8", "ignored_layers", kComputed, "",
                        "modules that must not be quantized"),
    SUBBYTE_FLAVOUR_KEY("fp8", "activation_scheme", kComputed, "",
                        "dynamic, beside blocks: what `--activations fp8` is for; or static"),
    SUBBYTE_FLAVOUR_KEY("fp8", "scale_fmt", kIgnored, "", "tensors have their types"),
    SUBBYTE_FLAVOUR_KEY("fp8", "modules_to_convert is_checkpoint_fp8_serialized", kIgnored, "",
                        "tensors say which are quantized"),
    SUBBYTE_FLAVOUR_KEY("fp8", "expert_dtype", kRefused, "\"fp8\"", "experts in another type"),
    SUBBYTE_FLAVOUR_KEY("fp8", "dequantize", kIgnored, "", "how it is computed"),
    SUBBYTE_FLAVOUR_KEY("fp8", "kv_cache_scheme", kIgnored, "",
                        "`--kv-cache-type` says how keys and values are kept"),
    SUBBYTE_FLAVOUR_KEY("fbgemm_fp8", "activation_scale_ub", kIgnored, "",
                        "activations stay floats"),
};

/// What a config of transformers, vLLM or FBGEMM says.
struct State : FlavourState, fp8::SaysBlocks {
  Block block = {};  // no columns: factors are of rows or of tensors

  Result<std::vector<Block>> blocks(const ImportContext&, std::string_view) const override {
    if (block.cols != 0) return std::vector<Block>{block};
    return std::vector<Block>{fp8::kTensor, fp8::kRows};
  }
};

Status read(const json::Object& section, QuantizationConfig& config) {
  config.flavour = &fp8_flavour;
  auto state = std::make_shared<State>();
  config.state = state;
  SUBBYTE_TRY(const auto code, section.word("fmt"));
  if (code.value_or("e4m3") != "e4m3" && *code != "float8_e4m3fn") {
    return section.error("quantization.format", "fmt", "\"e4m3\"");
  }
  SUBBYTE_CHECK(read_kv_cache_scheme(section, config.kv_cache));
  SUBBYTE_TRY(const auto activations, section.word("activation_scheme"));
  if (activations.value_or("static") != "static" && *activations != "dynamic") {
    return section.error("quantization.activations", "activation_scheme",
                         "\"dynamic\" or \"static\"");
  }
  const json::Value* const size = section.find("weight_block_size");
  if (size == nullptr || size->is_null()) return {};
  const auto is_size = [](const json::Value& value) {
    return json::is_integer(value, 1, kLargestBlock);
  };
  if (!size->is_array() || size->size() != 2 || !is_size((*size)[0]) || !is_size((*size)[1]) ||
      (*size)[1].get<int64_t>() % 8 != 0) {
    return section.error("quantization.group_size", "weight_block_size",
                         "null, or two positive numbers, the second a multiple of 8");
  }
  state->block = {(*size)[0].get<int64_t>(), (*size)[1].get<int64_t>()};
  if (activations.value_or("") == "dynamic") config.rounded_inputs = state->block.cols;
  return {};
}

using Module = WithInputFactors<describe, import>;
constexpr Importer kImporter = {"fp8",          kAnchor,     matches, Module::describe,
                                Module::import, check_scales};
constexpr Exporter kExporter = [] {
  Exporter exporter = make_exporter<false>("fp8");
  exporter.synthetic = kSynthetic;
  return exporter;
}();

}  // namespace

const Exporter float_quantized_exporter = make_exporter<true>("float_quantized");

const Flavour fp8_flavour = {.name = "fp8",
                             .keys = kKeys,
                             .read = read,
                             .left_over = kFactors[0],
                             .importers = {&kImporter},
                             .exporters = {&kExporter, &float_quantized_exporter}};
/// The same layout, and keys of its own.
const Flavour fbgemm_fp8_flavour = {.name = "fbgemm_fp8", .read = read};

}  // namespace subbyte
