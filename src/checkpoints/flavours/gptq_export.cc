// Writes GPTQ, versions 1 and 2. The layout is drawn in gptq.cc, whose inverse this is. g_idx is
// always written: some readers want it, none minds it.

#include <algorithm>
#include <map>

#include "checkpoints/act_order.h"
#include "checkpoints/code_stream.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/flavours/integer_config.h"
#include "quantize/quantizers.h"

namespace subbyte {
namespace {

constexpr int64_t kColumnsPerTile = 16;  // a cache line of qweight
// What GPTQModel 7.7 takes; 0 is the whole row.
constexpr int64_t kGroupSizes[] = {0, 16, 32, 64, 128, 256, 512, 1024};

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  const auto& [format, rows, cols, act_order, experts, symmetric] = shape;
  const bool known = format.element == Format::kU2 || format.element == Format::kU3 ||
                     format.element == Format::kU4 || format.element == Format::kU8;
  const Zero zero = format.element == Format::kU8 ? Zero::kU16 : Zero::kU8;
  if (!known || format.zero != zero) {
    return not_held(module, "GPTQ holds u2, u3, u4 or u8 codes with zero points", format);
  }
  SUBBYTE_TRY(const DType scale, scale_dtype(format.scale, module));
  if (std::ranges::find(kGroupSizes, format.group_size) == std::end(kGroupSizes)) {
    return export_error("export.group_size", module,
                        fmt::format("readers of GPTQ take groups of 16, 32, 64, 128, 256, 512 or "
                                    "1024 inputs or whole rows, not of {}",
                                    format.group_size));
  }
  const int64_t bits = info(format.element).bits;
  if (rows <= 0 || rows * bits % 32 != 0 || cols * bits % 32 != 0 || cols % 8 != 0) {
    return export_error("export.shape", module,
                        fmt::format("{} outputs and {} inputs of {} bits do not fill words of 32",
                                    rows, cols, bits));
  }
  const auto num_groups = static_cast<uint64_t>(shape.groups());
  const auto num_rows = static_cast<uint64_t>(rows);
  return std::vector<ExportedTensor>{
      {".g_idx", DType::kI32, {static_cast<uint64_t>(cols)}, {}},
      {".qweight", DType::kI32, {static_cast<uint64_t>(cols * bits / 32), num_rows}, {}},
      {".qzeros", DType::kI32, {num_groups, static_cast<uint64_t>(rows * bits / 32)}, {}},
      {".scales", scale, {num_groups, num_rows}, {}}};
}

void pack_codes(std::byte* qweight, const MatrixView& matrix, Executor& pool) {
  const int64_t row_bytes = matrix.row_bytes();
  const bool sorted = !matrix.input_order.empty();
  pool.parallel_for(matrix.rows, kColumnsPerTile, [=](int64_t begin, int64_t end, int) {
    std::vector<std::byte> unsorted(sorted ? kColumnsPerTile * row_bytes : 0);
    for (int64_t first = begin; first < end; first += kColumnsPerTile) {
      const int64_t last = std::min(first + kColumnsPerTile, end);
      const std::byte* tile = matrix.codes.data() + first * row_bytes;
      if (sorted) {
        for (int64_t n = first; n < last; ++n) {
          unsort_row(unsorted.data() + (n - first) * row_bytes, matrix, n);
        }
        tile = unsorted.data();
      }
      for (int64_t r = 0; r < row_bytes / 4; ++r) {
        for (int64_t n = first; n < last; ++n) {
          store_u32(qweight + (r * matrix.rows + n) * 4,
                    load_u32(tile + (n - first) * row_bytes + r * 4));
        }
      }
    }
  });
}

/// Version 1 stores z - 1, so it can say 1 to 2^bits; version 2 says 0 to 2^bits - 1.
Status pack_zeros(std::byte* qzeros, const MatrixView& matrix, uint32_t offset,
                  std::string_view module) {
  const int bits = info(matrix.format.element).bits;
  const uint32_t max = (uint32_t{1} << bits) - 1 + offset;
  const int64_t row_bytes = matrix.rows * bits / 8;
  for (int64_t g = 0; g < matrix.groups(); ++g) {
    for (int64_t n = 0; n < matrix.rows; ++n) {
      const uint32_t zero = load_zero(matrix, n, g);
      if (zero < offset || zero > max) {
        return export_error("export.zero_range", module,
                            fmt::format("zero point {} of output {}, group {}: this version of "
                                        "GPTQ stores {} to {}",
                                        zero, n, g, offset, max));
      }
      put_code(qzeros + g * row_bytes, n, bits, zero - offset);
    }
  }
  return {};
}

Result<std::vector<ExportedTensor>> write_version(const MatrixView& matrix, std::string_view module,
                                                  Executor& pool, uint32_t offset) {
  SUBBYTE_TRY(auto tensors, allocate(describe(shape_of(matrix), module), matrix, module));
  write_group_indices(tensors[0].bytes.data(), matrix);
  pack_codes(tensors[1].bytes.data(), matrix, pool);
  SUBBYTE_CHECK(pack_zeros(tensors[2].bytes.data(), matrix, offset, module));
  transpose_scales(tensors[3].bytes, matrix);
  return tensors;
}

Result<std::vector<ExportedTensor>> write_v1(const MatrixView& matrix, std::string_view module,
                                             Executor& pool) {
  return write_version(matrix, module, pool, 1);
}

Result<std::vector<ExportedTensor>> write_v2(const MatrixView& matrix, std::string_view module,
                                             Executor& pool) {
  return write_version(matrix, module, pool, 0);
}

/// Its readers want scales of 16 bits and a zero point in every group, symmetric or not.
TargetFormat target(const ExportShape& from) {
  TargetFormat result = {with_zero_points(from.format), TensorFactor::kNone, true};
  if (float_bits(from.format.scale) == 32) result.format.scale = Format::kF16;
  return result;
}

/// A module's name as a regular expression for nothing else.
std::string exactly(std::string_view name) {
  std::string pattern = "^";
  for (const char c : name) {
    if (c == '.') pattern += '\\';
    pattern += c;
  }
  return pattern + "$";
}

/// A module's name within its layer, which begins after the layer's number; of others the whole.
std::string_view within_layer(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.find_first_not_of("0123456789") == part.npos && end < name.size()) {
      return name.substr(end + 1);
    }
    begin = end + 1;
  }
  return name;
}

/// The quantized modules for readers that know no `dynamic` (optimum, and so transformers) and make
/// a layer of codes, without any, of all other linear layers. They look for each name at the end of
/// a module's, so it is the whole name where another layer keeps a module of that name.
json::Value quantized_names(const ExportedModel& model) {
  std::map<std::string_view, bool> is_kept_elsewhere;
  json::Value names = json::Value::array();
  for (const ExportedModule& module : model.modules) {
    const std::string_view local = within_layer(module.name);
    const auto [found, is_new] = is_kept_elsewhere.try_emplace(local, false);
    if (is_new) {
      found->second = std::ranges::any_of(
          model.kept, [&](const std::string& kept) { return kept.find(local) != kept.npos; });
      if (!found->second) names.push_back(std::string(local));
    }
    if (found->second) names.push_back(module.name);
  }
  return names;
}

ExportedConfig config(const ExportedModel& model, std::string_view version) {
  struct Sizes {
    int bits;
    int64_t group_size;
    bool operator==(const Sizes&) const = default;
  };
  const auto alike = group_alike(model.modules, [](const ExportShape& shape) {
    return Sizes{info(shape.format.element).bits, config_group_size(shape.format)};
  });
  json::Value dynamic = json::Value::object();
  for (std::size_t i = 1; i < alike.size(); ++i) {
    for (const ExportedModule* module : alike[i].modules) {
      dynamic["+:" + exactly(module->name)] = {{"bits", alike[i].key.bits},
                                               {"group_size", alike[i].key.group_size}};
    }
  }
  for (const std::string& name : model.kept) {
    if (name != "lm_head") dynamic["-:" + exactly(name)] = json::Value::object();
  }
  const auto& modules = model.modules;
  json::Value section = {
      {"quant_method", "gptq"},
      {"bits", alike.front().key.bits},
      {"group_size", alike.front().key.group_size},
      {"desc_act", std::ranges::any_of(modules, [](const auto& m) { return m.shape.act_order; })},
      {"sym", std::ranges::all_of(modules, [](const auto& m) { return m.shape.symmetric; })},
      {"lm_head", std::ranges::any_of(modules, [](const auto& m) { return m.name == "lm_head"; })},
      {"true_sequential", true},
      {"static_groups", false},
      {"checkpoint_format", version},
      {"pack_dtype", "int32"}};
  if (!dynamic.empty()) section["dynamic"] = dynamic;
  if (std::ranges::any_of(model.kept, [](const auto& name) { return name != "lm_head"; })) {
    section["modules_in_block_to_quantize"] = json::Value::array({quantized_names(model)});
  }
  return {section, "quantize_config.json", section};
}

ExportedConfig config_v1(const ExportedModel& model) {
  return config(model, "gptq");
}

ExportedConfig config_v2(const ExportedModel& model) {
  return config(model, "gptq_v2");
}

/// As AutoGPTQ writes it.
json::Value synthetic_config(int64_t group_size) {
  return {{"quant_method", "gptq"},
          {"bits", 4},
          {"group_size", group_size},
          {"desc_act", false},
          {"sym", false},
          {"lm_head", false},
          {"damp_percent", 0.01},
          {"true_sequential", true},
          {"checkpoint_format", "gptq"},
          {"pack_dtype", "int32"}};
}

constexpr RandomElements kRandom[] = {RandomElements::kGroups, RandomElements::kCodes,
                                      RandomElements::kZerosLessOne, RandomElements::kScales};
constexpr SyntheticFormat kSynthetic[] = {{.name = "gptq",
                                           .format = {Format::kU4, Format::kF16, Zero::kU8},
                                           .tensors = kRandom,
                                           .floats = DType::kF16,
                                           .config = synthetic_config}};

constexpr int64_t kQuantizedGroups[] = {16, 32, 64, 128, 256, 512, 1024};

constexpr QuantizeFormat quantized(std::string_view name, Quantizer* by) {
  return {.name = name,
          .is_meant_by_text = false,
          .bits = kGptqBits,
          .group_sizes = kQuantizedGroups,
          .whole_rows = true,
          .symmetry = Symmetry::kByDefault,
          .mixed = true,
          .format = integer_format,
          .quantize = by};
}

constexpr QuantizeFormat kQuantized[] = {quantized("gptq", to_integers_from_1)};
constexpr QuantizeFormat kQuantizedV2[] = {quantized("gptq_v2", to_integers)};

}  // namespace

const Exporter gptq_exporter = {.name = "gptq",
                                .quantized = kQuantized,
                                .synthetic = kSynthetic,
                                .tells_symmetry = true,
                                .instead_for_alternating = "pack_quantized",
                                .describe = describe,
                                .target = target,
                                .config = config_v1,
                                .write = write_v1,
                                .readers = SUBBYTE_READERS("gptq", "tools transformers-gptq")};
const Exporter gptq_v2_exporter = {
    .name = "gptq_v2",
    .quantized = kQuantizedV2,
    .tells_symmetry = true,
    .instead_for_alternating = "pack_quantized",
    .describe = describe,
    .target = target,
    .config = config_v2,
    .write = write_v2,
    .readers = SUBBYTE_READERS("gptq_v2", "tools transformers-gptq")};

}  // namespace subbyte
