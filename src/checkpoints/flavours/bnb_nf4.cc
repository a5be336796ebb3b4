// bitsandbytes, 4 bits, quant_type "nf4": blocks of 64 (or 32 to 4096) weights over a matrix [N, K]
// read row after row. Where K is no multiple of the block, blocks cross rows: then the canonical
// groups are as small as what blocks and rows have in common, and repeat the scale of their block.
//
//   weight                U8 [N*K/2, 1]  (the same bytes may be labelled I8, BF16, F16 or F32)
//
//     byte 0            byte 1            ...
//     k=0:hi  k=1:lo    k=2:hi  k=3:lo          high nibble first: canonical bytes, nibbles swapped
//
//   weight.absmax         F32 [B]   the scales of the B = N*K/64 blocks
//   weight.quant_map      F32 [16]  the values of the codes; must be those of NF4
//   weight.quant_state.bitsandbytes__nf4  U8, JSON: {"quant_type": "nf4", "blocksize": 64,
//                                   "dtype": "bfloat16", "shape": [N, K]}
//   w(n, k) = quant_map[code] * absmax[block]
//
// With double quantization absmax is U8 [B], and the JSON has nested_blocksize and nested_offset:
//
//   weight.nested_quant_map  F32 [256]
//   weight.nested_absmax     F32 [B/256]
//   absmax[i] = nested_quant_map[byte i] * nested_absmax[i / 256] + nested_offset
//
// in float32, rounded after the product and after the sum, as bitsandbytes computes it. The
// canonical scales are the results: what is written is without double quantization.

#include <algorithm>
#include <cmath>

#include "base/quote.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/bnb_nf4_state.h"
#include "checkpoints/foreign_software.h"
#include "checkpoints/import_parts.h"
#include "quantize/quantizers.h"

namespace subbyte {
namespace {

constexpr int64_t kBytesAtOnce = 1 << 16;

/// What a config says.
struct State : FlavourState {
  bool double_quant = false;  // the scales are quantized too
};

struct Parts {
  const FileTensor* weight;
  const FileTensor* state;
  const FileTensor* quant_map;
  const FileTensor* absmax;
  const FileTensor* nested_absmax;     // nullptr without double quantization
  const FileTensor* nested_quant_map;  // the same
};

bool matches(const TensorSource& tensors, std::string_view module) {
  return find_tensor(tensors, module, ".weight.absmax") != nullptr ||
         find_tensor(tensors, module, kBnbNf4State) != nullptr ||
         find_tensor(tensors, module, kBnbFp4State) != nullptr;
}

Result<Parts> find_parts(const TensorSource& tensors, std::string_view module) {
  if (const FileTensor* fp4 = find_tensor(tensors, module, kBnbFp4State)) {
    return tensor_error("bnb_nf4.quant_type", *fp4,
                        "quant_type fp4 of bitsandbytes is not supported, nf4 is");
  }
  Parts parts = {};
  SUBBYTE_TRY(parts.weight, require_tensor(tensors, module, ".weight"));
  SUBBYTE_TRY(parts.state, require_tensor(tensors, module, kBnbNf4State));
  SUBBYTE_TRY(parts.quant_map, require_tensor(tensors, module, ".weight.quant_map"));
  SUBBYTE_TRY(parts.absmax, require_tensor(tensors, module, ".weight.absmax"));
  parts.nested_absmax = find_tensor(tensors, module, ".weight.nested_absmax");
  if (parts.nested_absmax != nullptr) {
    SUBBYTE_TRY(parts.nested_quant_map,
                require_tensor(tensors, module, ".weight.nested_quant_map"));
  }
  return parts;
}

Status check_weight(const FileTensor& weight, const BnbState& state) {
  const bool bytes = weight.dtype == DType::kU8 || weight.dtype == DType::kI8;
  if (!bytes && float_format(weight.dtype) == Format::kNone) {
    return tensor_error(
        "import.dtype", weight,
        fmt::format("expected dtype U8, I8, BF16, F16 or F32, found {}", name(weight.dtype)));
  }
  const auto elements = static_cast<uint64_t>(state.rows) * static_cast<uint64_t>(state.cols);
  const auto width = static_cast<uint64_t>(bits(weight.dtype));
  if (elements * 4 % width != 0) {
    return tensor_error(
        "import.shape", weight,
        fmt::format("{} codes do not fill elements of {}", elements, name(weight.dtype)));
  }
  return require_shape(weight, {elements * 4 / width, 1});
}

Status check_quant_map(const FileTensor& map) {
  SUBBYTE_CHECK(require_dtype(map, DType::kF32));
  SUBBYTE_CHECK(require_shape(map, {16}));
  for (uint32_t code = 0; code < 16; ++code) {
    const float found = load_f32(map, code);
    const double expected = info(Format::kNF4).decode(code);
    if (found == expected) continue;
    return tensor_error(
        "bnb_nf4.quant_map", map,
        fmt::format("code {} means {}, which in NF4 means {}", code, found, expected));
  }
  return {};
}

Status check_scale_tensors(const Parts& parts, const BnbState& state) {
  const auto blocks = static_cast<uint64_t>(state.blocks());
  const bool nested = parts.nested_absmax != nullptr;
  SUBBYTE_CHECK(require_dtype(*parts.absmax, nested ? DType::kU8 : DType::kF32));
  SUBBYTE_CHECK(require_shape(*parts.absmax, {blocks}));
  if (nested != state.nested_offset.has_value()) {
    return tensor_error("import.shape", *parts.state,
                        fmt::format("{} nested_offset, but there is {} nested_absmax",
                                    nested ? "no" : "has a", nested ? "a" : "no"));
  }
  if (!nested) return {};
  SUBBYTE_CHECK(require_dtype(*parts.nested_absmax, DType::kF32));
  const auto nested_block = static_cast<uint64_t>(state.nested_blocksize);
  SUBBYTE_CHECK(require_shape(*parts.nested_absmax, {(blocks - 1) / nested_block + 1}));
  SUBBYTE_CHECK(require_dtype(*parts.nested_quant_map, DType::kF32));
  return require_shape(*parts.nested_quant_map, {256});
}

Status check_label(const ImportContext& context, std::string_view module, bool nested) {
  SUBBYTE_TRY(const State* const said, require_state<State>(context, module, "bitsandbytes"));
  if (said->double_quant == nested) return {};
  return Error{"import.config",
               fmt::format("{}: bnb_4bit_use_double_quant is {}, but {} has {} nested_absmax",
                           context.config.where, said->double_quant, quote_name(module),
                           nested ? "a" : "no")};
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const Parts parts, find_parts(context.tensors, module));
  const bool nested = parts.nested_absmax != nullptr;
  SUBBYTE_CHECK(check_label(context, module, nested));
  SUBBYTE_TRY(const BnbState state, read_bnb_state(*parts.state));
  SUBBYTE_CHECK(check_weight(*parts.weight, state));
  SUBBYTE_CHECK(check_quant_map(*parts.quant_map));
  SUBBYTE_CHECK(check_scale_tensors(parts, state));
  ModuleInfo result;
  result.format = {Format::kNF4, Format::kF32, Zero::kNone, state.group_size()};
  result.rows = state.rows;
  result.cols = state.cols;
  result.tensors = {parts.weight, parts.absmax, parts.state, parts.quant_map};
  result.scales = parts.absmax;
  if (nested) {
    result.tensors.push_back(parts.nested_absmax);
    result.tensors.push_back(parts.nested_quant_map);
  }
  return result;
}

/// Float32 scales of double quantization. The product and the sum of two floats are exact enough in
/// a double that rounding it gives what float arithmetic gives, whatever the compiler contracts.
std::shared_ptr<std::byte[]> resolve_scales(const ModuleInfo& info, const BnbState& state) {
  const FileTensor& absmax = *info.tensors[1];
  const FileTensor& nested_absmax = *info.tensors[4];
  const FileTensor& map = *info.tensors[5];
  auto scales = allocate_bytes(absmax.bytes.size() * 4);
  for (std::size_t i = 0; i < absmax.bytes.size(); ++i) {
    const double value = load_f32(map, std::to_integer<std::size_t>(absmax.bytes[i]));
    const auto product =
        static_cast<float>(value * load_f32(nested_absmax, i / state.nested_blocksize));
    const auto scale = static_cast<float>(static_cast<double>(product) + *state.nested_offset);
    __builtin_memcpy(scales.get() + 4 * i, &scale, 4);
  }
  return scales;
}

Status check_finite(const FileTensor& absmax, std::span<const std::byte> scales) {
  for (std::size_t i = 0; i < scales.size() / 4; ++i) {
    float scale = 0;
    __builtin_memcpy(&scale, scales.data() + 4 * i, 4);
    if (std::isfinite(scale)) continue;
    return tensor_error("import.scale_not_finite", absmax,
                        fmt::format("the scale of block {} is {}", i, scale));
  }
  return {};
}

std::shared_ptr<std::byte[]> swap_nibbles(const FileTensor& weight, Executor& pool) {
  auto codes = allocate_bytes(weight.bytes.size());
  const std::byte* from = weight.bytes.data();
  std::byte* to = codes.get();
  pool.parallel_for(static_cast<int64_t>(weight.bytes.size()), kBytesAtOnce,
                    [=](int64_t begin, int64_t end, int) {
                      for (int64_t i = begin; i < end; ++i) to[i] = from[i] << 4 | from[i] >> 4;
                    });
  weight.file->release(weight.bytes);
  return codes;
}

/// The scales of blocks that cross rows as those of the groups of each row.
void spread_scales(const BnbState& state, Matrix& matrix) {
  const std::span<const std::byte> blocks = matrix.view.scales;
  const int64_t groups = state.rows * (state.cols / state.group_size());
  const auto scales = allocate_bytes(groups * 4);
  for (int64_t i = 0; i < groups; ++i) {
    const int64_t block = i * state.group_size() / state.blocksize;
    std::copy_n(blocks.data() + 4 * block, 4, scales.get() + 4 * i);
  }
  matrix.view.scales = {scales.get(), static_cast<std::size_t>(groups) * 4};
  matrix.owners.push_back(scales);
}

/// Puts them into `matrix`, as many as there are blocks.
Status take_scales(const ModuleInfo& info, const BnbState& state, Matrix& matrix) {
  const FileTensor& absmax = *info.scales;
  if (absmax.dtype == DType::kU8) {
    const auto scales = resolve_scales(info, state);
    matrix.view.scales = {scales.get(), absmax.bytes.size() * 4};
    matrix.owners.push_back(scales);
  } else {
    matrix.view.scales = aligned_bytes(absmax, matrix.owners);
  }
  return check_finite(absmax, matrix.view.scales);
}

Status check_resolved_scales(const ImportContext&, const ModuleInfo& info) {
  SUBBYTE_TRY(const BnbState state, read_bnb_state(*info.tensors[2]));
  Matrix none;
  return take_scales(info, state, none);
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& weight = *info.tensors[0];
  Matrix matrix = matrix_of(info);
  MatrixView& view = matrix.view;
  SUBBYTE_TRY(const BnbState state, read_bnb_state(*info.tensors[2]));
  SUBBYTE_CHECK(take_scales(info, state, matrix));
  if (state.group_size() != state.blocksize) spread_scales(state, matrix);
  const auto codes = swap_nibbles(weight, context.pool);
  view.codes = {codes.get(), weight.bytes.size()};
  matrix.owners.push_back(codes);
  return std::vector<Matrix>{std::move(matrix)};
}

int64_t blocksize_of(const ExportShape& shape) {
  return shape.format.group_size == 0 ? shape.cols : shape.format.group_size;
}

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_plain(shape, module));
  const WeightFormat& format = shape.format;
  const int64_t blocksize = blocksize_of(shape);
  if (format.element != Format::kNF4 || format.scale != Format::kF32 ||
      format.zero != Zero::kNone || !is_bnb_blocksize(blocksize)) {
    return not_held(module,
                    "NF4 of bitsandbytes is nf4 with scales in f32 for 32, 64, ... 4096 inputs",
                    format);
  }
  SUBBYTE_TRY(const int64_t groups, count_groups(format, shape.cols, module));
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto cols = static_cast<uint64_t>(shape.cols);
  const std::string state = bnb_state_json(shape.rows, shape.cols, blocksize);
  return std::vector<ExportedTensor>{
      {".weight", DType::kU8, {rows * cols / 2, 1}, {}},
      {".weight.absmax", DType::kF32, {rows * static_cast<uint64_t>(groups)}, {}},
      {".weight.quant_map", DType::kF32, {16}, {}},
      {kBnbNf4State, DType::kU8, {state.size()}, {}}};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  const ExportShape shape = shape_of(matrix);
  SUBBYTE_TRY(auto tensors, allocate(describe(shape, module), matrix, module));
  std::ranges::transform(matrix.codes, tensors[0].bytes.begin(),
                         [](std::byte pair) { return pair << 4 | pair >> 4; });
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  for (uint32_t code = 0; code < 16; ++code) {
    const auto value = static_cast<float>(info(Format::kNF4).decode(code));
    __builtin_memcpy(tensors[2].bytes.data() + 4 * code, &value, 4);
  }
  const std::string state = bnb_state_json(shape.rows, shape.cols, blocksize_of(shape));
  std::ranges::copy(std::as_bytes(std::span(state)), tensors[3].bytes.begin());
  return tensors;
}

/// Of one row after the other, so a row's only scale is that of a block of its size.
TargetFormat target(const ExportShape& from) {
  return {from.format, TensorFactor::kNone, false};
}

ExportedConfig config(const ExportedModel& model) {
  return {{{"quant_method", "bitsandbytes"},
           {"load_in_4bit", true},
           {"load_in_8bit", false},
           {"_load_in_4bit", true},
           {"_load_in_8bit", false},
           {"bnb_4bit_quant_type", "nf4"},
           {"bnb_4bit_use_double_quant", false},
           {"bnb_4bit_compute_dtype", "bfloat16"},
           {"bnb_4bit_quant_storage", "uint8"},
           {"llm_int8_enable_fp32_cpu_offload", false},
           {"llm_int8_has_fp16_weight", false},
           {"llm_int8_skip_modules", model.kept},
           {"llm_int8_threshold", 6.0}}};
}

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_FLAVOUR_KEY("bitsandbytes", "load_in_4bit", kComputed, "", "true"),
    SUBBYTE_FLAVOUR_KEY("bitsandbytes", "load_in_8bit", kComputed, "", "false"),
    SUBBYTE_FLAVOUR_KEY("bitsandbytes", "bnb_4bit_quant_type", kComputed, "", "nf4; absent: fp4"),
    SUBBYTE_FLAVOUR_KEY("bitsandbytes", "bnb_4bit_use_double_quant", kComputed, "",
                        "absent: false"),
    SUBBYTE_FLAVOUR_KEY("bitsandbytes", "llm_int8_skip_modules", kComputed, "",
                        "modules that must not be quantized"),
    SUBBYTE_FLAVOUR_KEY("bitsandbytes", "_load_in_4bit", kIgnored, "", "load_in_4bit says it"),
    SUBBYTE_FLAVOUR_KEY("bitsandbytes", "_load_in_8bit", kIgnored, "", "load_in_8bit says it"),
    SUBBYTE_FLAVOUR_KEY("bitsandbytes", "bnb_4bit_compute_dtype", kIgnored, "",
                        "how it is computed"),
    SUBBYTE_FLAVOUR_KEY("bitsandbytes", "bnb_4bit_quant_storage", kIgnored, "",
                        "tensors have their types"),
    SUBBYTE_FLAVOUR_KEY(
        "bitsandbytes",
        "llm_int8_enable_fp32_cpu_offload llm_int8_has_fp16_weight llm_int8_threshold", kIgnored,
        "", "of 8 bits"),
};

Status read(const json::Object& section, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto eight, section.boolean("load_in_8bit"));
  if (eight.value_or(false)) {
    return foreign_error("quantization.bits", section.where() + ".load_in_8bit",
                         "bitsandbytes in 8 bits");
  }
  SUBBYTE_TRY(const auto four, section.boolean("load_in_4bit"));
  if (!four.value_or(false)) return section.error("quantization.bits", "load_in_4bit", "true");
  SUBBYTE_TRY(const auto type, section.word("bnb_4bit_quant_type"));
  if (type.value_or("fp4") != "nf4") {  // fp4 is what an absent key means
    return section.error("quantization.quant_type", "bnb_4bit_quant_type", "\"nf4\"");
  }
  SUBBYTE_TRY(const auto twice, section.boolean("bnb_4bit_use_double_quant"));
  auto state = std::make_shared<State>();
  state->double_quant = twice.value_or(false);
  config.state = state;
  return {};
}

constexpr Importer kImporter = {"bnb_nf4", ".weight", matches,
                                describe,  import,    check_resolved_scales};
constexpr int64_t kGroups[] = {32, 64, 128, 256, 512, 1024, 2048, 4096};
constexpr QuantizeFormat kQuantized[] = {{.name = "nf4",
                                          .other_name = "bnb",
                                          .bits = k4Bits,
                                          .group_sizes = kGroups,
                                          .default_group = 64,
                                          .format = nf4_format,
                                          .quantize = to_nf4}};
constexpr Exporter kExporter = {.name = "bnb_nf4",
                                .other_name = "nf4",
                                .quantized = kQuantized,
                                .describe = describe,
                                .target = target,
                                .config = config,
                                .write = write,
                                .readers = SUBBYTE_READERS("bnb_nf4", "tools transformers")};

}  // namespace

const Flavour bitsandbytes_flavour = {.name = "bitsandbytes",
                                      .keys = kKeys,
                                      .read = read,
                                      .importers = {&kImporter},
                                      .exporters = {&kExporter}};

}  // namespace subbyte
