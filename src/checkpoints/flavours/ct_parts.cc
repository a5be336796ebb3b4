#include "checkpoints/flavours/ct_parts.h"

#include <algorithm>

#include "base/quote.h"
#include "checkpoints/flavour.h"

namespace subbyte {

std::string list_of(const std::vector<CompressedScheme>& schemes) {
  std::string text;
  for (const CompressedScheme& scheme : schemes) {
    if (!text.empty()) text += ", or ";
    text += to_string(scheme);
  }
  return text;
}

Result<int64_t> groups_of_rows(const FileTensor& scale, uint64_t rows) {
  SUBBYTE_CHECK(require_float(scale));
  const Shape& shape = scale.shape;
  if (shape.empty() || shape == Shape{1} || (shape == Shape{1, 1} && rows > 1)) {
    return kOneForTensor;
  }
  if (shape.size() == 1) {
    SUBBYTE_CHECK(require_shape(scale, {rows}));
    return 1;
  }
  SUBBYTE_CHECK(require_rank(scale, 2));
  SUBBYTE_CHECK(require_shape(scale, {rows, shape[1]}));
  return static_cast<int64_t>(shape[1]);
}

int64_t groups_of_rows(const CompressedScheme& scheme, int64_t cols) {
  if (scheme.group_size == -1) return scheme.block_rows == -1 ? kOneForTensor : 1;
  return (cols + scheme.group_size - 1) / scheme.group_size;
}

std::string groups_text(int64_t groups) {
  return groups == kOneForTensor ? "one scale" : std::to_string(groups) + " groups";
}

WeightFormat integers_of(const CompressedScheme& scheme, const FileTensor& scale, int64_t groups,
                         bool has_zeros) {
  constexpr Format kSigned[] = {Format::kI2, Format::kI3, Format::kI4, Format::kI5,
                                Format::kI6, Format::kI7, Format::kI8};
  constexpr Format kUnsigned[] = {Format::kU2, Format::kU3, Format::kU4, Format::kU5,
                                  Format::kU6, Format::kU7, Format::kU8};
  WeightFormat format = {kSigned[scheme.bits - 2], float_format(scale.dtype), Zero::kNone,
                         groups > 1 ? scheme.group_size : 0};
  if (!has_zeros) return format;
  format.element = kUnsigned[scheme.bits - 2];
  format.zero = scheme.bits == 8 ? Zero::kU16 : Zero::kU8;
  return format;
}

std::span<const std::byte> scales_of_rows(const FileTensor& scale, int64_t rows,
                                          std::vector<std::shared_ptr<const void>>& owners) {
  const std::size_t width = static_cast<std::size_t>(bits(scale.dtype)) / 8;
  if (scale.bytes.size() > width || rows == 1) return aligned_bytes(scale, owners);
  const auto size = static_cast<std::size_t>(rows) * width;
  const auto repeated = allocate_bytes(size);
  for (std::size_t at = 0; at < size; at += width) {
    std::ranges::copy(scale.bytes, repeated.get() + at);
  }
  owners.push_back(repeated);
  return {repeated.get(), size};
}

Result<const CompressedState*> require_scheme(const ImportContext& context, std::string_view module,
                                              CompressedScheme::Format format) {
  SUBBYTE_TRY(const auto* const state,
              require_state<CompressedState>(context, module, compressed_tensors_flavour.name));
  const auto& schemes = state->schemes;
  if (std::ranges::find(schemes, format, &CompressedScheme::format) != schemes.end()) return state;
  CompressedScheme of_tensors;
  of_tensors.format = format;
  return Error{"import.config", fmt::format("{}: the weights are {}, but the tensors of {} are {}",
                                            context.config.where, list_of(schemes),
                                            quote_name(module), to_string(of_tensors))};
}

namespace {

json::Value weights_of_fp8(const ExportShape& shape) {
  json::Value weights = {{"num_bits", 8}, {"type", "float"}, {"symmetric", true}};
  if (shape.format.group_size == 0) {
    weights["strategy"] = "channel";
  } else {
    weights["strategy"] = "block";
    weights["block_structure"] = {shape.format.group_size, shape.format.group_size};
  }
  weights["dynamic"] = false;
  return weights;
}

/// What one config group says of its weights.
json::Value weights_of(const ExportShape& shape) {
  const Format element = shape.format.element;
  if (element == Format::kE4M3) return weights_of_fp8(shape);
  const bool floats = element == Format::kE2M1;
  const bool channel = shape.format.group_size == 0;
  const bool nvfp4 = shape.format.scale == Format::kE4M3;
  json::Value weights = {
      {"num_bits", info(element).bits},
      {"type", floats ? "float" : "int"},
      {"symmetric", shape.format.zero == Zero::kNone},
      {"strategy", channel ? "channel"
                   : nvfp4 ? "tensor_group"
                           : "group"},
      {"group_size", channel ? json::Value(nullptr) : json::Value(shape.format.group_size)},
      {"dynamic", false},
      {"actorder", shape.act_order ? json::Value("group") : json::Value(nullptr)}};
  if (nvfp4) weights["scale_dtype"] = "torch.float8_e4m3fn";
  if (floats && !nvfp4) weights["scale_dtype"] = "torch.uint8";
  return weights;
}

/// How the weights of a group are stored, where groups differ.
std::string_view format_of(const ExportShape& shape) {
  if (shape.format.element == Format::kE4M3) return "float-quantized";
  if (shape.format.element != Format::kE2M1) return "pack-quantized";
  return shape.format.scale == Format::kE4M3 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
}

/// null where there is none.
json::Value kv_cache_of(const KvCacheScheme& scheme) {
  if (scheme.form == KvCacheScheme::Form::kFp8) {
    return {{"num_bits", 8},        {"type", "float"},  {"symmetric", true},
            {"strategy", "tensor"}, {"dynamic", false}, {"observer", nullptr}};
  }
  if (scheme.form == KvCacheScheme::Form::kNone) return nullptr;
  auto value = json::parse(scheme.text, "kv_cache_scheme");
  return value.ok() ? *std::move(value) : json::Value();
}

}  // namespace

bool says_compressed_kv_cache(const KvCacheScheme& scheme, const Flavour* from) {
  return scheme.form != KvCacheScheme::Form::kOther || from == &compressed_tensors_flavour;
}

ExportedConfig compressed_config(const ExportedModel& model, std::string_view format) {
  const auto alike = group_alike(model.modules, weights_of);
  json::Value groups = json::Value::object();
  for (std::size_t i = 0; i < alike.size(); ++i) {
    json::Value targets = json::Value::array();
    const bool is_only = alike.size() == 1;
    if (is_only) targets.push_back("Linear");
    for (const ExportedModule* module : alike[i].modules) {
      // An embedding is of another class than what "Linear" stands for.
      const bool embedding = module->name.ends_with("embed_tokens");
      if (!is_only || embedding) targets.push_back(module->name);
    }
    const std::string_view own =
        format == kMixedPrecision ? format_of(alike[i].modules.front()->shape) : format;
    groups[fmt::format("group_{}", i)] = {{"targets", targets},
                                          {"weights", alike[i].key},
                                          {"input_activations", nullptr},
                                          {"output_activations", nullptr},
                                          {"format", own}};
  }
  return {{{"quant_method", "compressed-tensors"},
           {"format", format},
           {"quantization_status", "compressed"},
           {"config_groups", groups},
           {"ignore", model.kept},
           {"kv_cache_scheme", kv_cache_of(model.kv_cache)}}};
}

}  // namespace subbyte
