// The sections of ModelOpt.
//
//   hf_quant_config.json:  {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
//   or config.json:        {"quant_method": "modelopt", "quant_algo": "NVFP4", ...}
//   several algorithms:    {"quant_algo": "MIXED_PRECISION", "quantized_layers":
//                           {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}, ...}}
//
// Activations stay floats here, as in other weight-only readers, whatever an algorithm makes of
// them.

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/quote.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/flavours/modelopt.h"
#include "checkpoints/unread_parts.h"

namespace subbyte {
namespace {

struct Algorithm {
  std::string_view name;  // in small letters
  ModeloptWeights weights;
  bool in_blocks = false;  // FP8
};

/// Some are names of ModelOpt's own, which it writes where it has none of TensorRT-LLM's.
constexpr Algorithm kAlgorithms[] = {
    {"nvfp4", ModeloptWeights::kNvfp4},
    {"w4a16_nvfp4", ModeloptWeights::kNvfp4},
    {"w4a8_nvfp4_fp8", ModeloptWeights::kNvfp4},
    {"nvfp4_awq", ModeloptWeights::kNvfp4},
    {"mxfp4", ModeloptWeights::kMxfp4},
    {"w4a8_mxfp4_fp8", ModeloptWeights::kMxfp4},
    {"fp8", ModeloptWeights::kFp8},
    {"fp8_per_channel_per_token", ModeloptWeights::kFp8},
    {"fp8_pb_wo", ModeloptWeights::kFp8, true},
    {"fp8_pb_real", ModeloptWeights::kFp8, true},
    {"mxfp8", ModeloptWeights::kMxfp8},
    {"int8", ModeloptWeights::kInt8},
    {"w8a16", ModeloptWeights::kInt8},
    {"int8_wo", ModeloptWeights::kInt8},
    {"w8a8_sq_per_channel", ModeloptWeights::kInt8},
    {"int8_sq", ModeloptWeights::kInt8},
    {"w4a16_awq", ModeloptWeights::kInt4},
    {"int4_awq", ModeloptWeights::kInt4},
    {"int4_blockwise", ModeloptWeights::kInt4},
};
constexpr std::string_view kMixed = "mixed_precision";
constexpr int64_t kFp8Block = 128;
constexpr int64_t kLargestGroup = int64_t{1} << 24;

struct WeightsOfAlgorithms {
  ModeloptWeights weights;
  std::string_view name;
};

constexpr WeightsOfAlgorithms kNames[] = {
    {ModeloptWeights::kNvfp4, "NVFP4"}, {ModeloptWeights::kMxfp4, "MXFP4"},
    {ModeloptWeights::kFp8, "FP8"},     {ModeloptWeights::kMxfp8, "MXFP8"},
    {ModeloptWeights::kInt8, "INT8"},   {ModeloptWeights::kInt4, "INT4"}};

/// "FP8" is E4M3 with a scale for each tensor; config.json may say it as compressed-tensors does.
Status read_kv_cache(const json::Object& object, KvCacheScheme& scheme) {
  SUBBYTE_TRY(const auto algorithm, object.word("kv_cache_quant_algo"));
  if (!algorithm) return read_kv_cache_scheme(object, scheme);
  scheme = {*algorithm == "fp8" ? KvCacheScheme::Form::kFp8 : KvCacheScheme::Form::kOther,
            json::to_text(*object.find("kv_cache_quant_algo"))};
  return {};
}

/// What a group may be of; empty: of any size.
std::vector<int64_t> sizes_of(ModeloptWeights weights) {
  if (weights == ModeloptWeights::kInt4) return {};
  if (weights == ModeloptWeights::kNvfp4) return {16, 32};
  return {32};
}

/// Inputs that share a scale, where it is said: absent, or 0, which ModelOpt writes where it does
/// not know, the tensors tell.
Status read_group_size(const json::Object& from, ModeloptWeights weights, ModeloptState& state) {
  SUBBYTE_TRY(const auto size, from.integer("group_size", std::numeric_limits<int64_t>::min(),
                                            std::numeric_limits<int64_t>::max()));
  if (size.value_or(0) == 0) {
    state.has_unsaid_group_size = true;
    return {};
  }
  const std::vector<int64_t> sizes = sizes_of(weights);
  const bool is_any = sizes.empty() && *size >= 8 && *size % 8 == 0 && *size <= kLargestGroup;
  if (!is_any && std::ranges::find(sizes, *size) == sizes.end()) {
    return from.error("quantization.group_size", "group_size",
                      sizes.empty()       ? "a positive multiple of 8"
                      : sizes.size() == 1 ? "32"
                                          : "16 or 32");
  }
  state.group_sizes.push_back(*size);
  return {};
}

Status read_algorithm(const json::Object& from, ModeloptState& state) {
  SUBBYTE_TRY(const std::string name, from.required_word("quant_algo"));
  const auto known = std::ranges::find(kAlgorithms, name, &Algorithm::name);
  if (known == std::end(kAlgorithms)) {
    return from.error("quantization.algorithm", "quant_algo",
                      "\"MIXED_PRECISION\" or one whose weights are NVFP4, MXFP4, FP8, MXFP8, INT8 "
                      "or INT4, such as \"W4A16_NVFP4\", \"FP8_PB_WO\", \"W8A8_SQ_PER_CHANNEL\" "
                      "and \"W4A16_AWQ\"");
  }
  state.weights.push_back(known->weights);
  state.fp8_in_blocks = state.fp8_in_blocks || known->in_blocks;
  const bool has_groups =
      known->weights != ModeloptWeights::kFp8 && known->weights != ModeloptWeights::kInt8;
  return has_groups ? read_group_size(from, known->weights, state) : Status();
}

Status read_quantized_layer(const json::Value& value, const std::string& where,
                            ModeloptState& state) {
  SUBBYTE_TRY(const auto layer, json::Object::of(value, where));
  SUBBYTE_CHECK(json::check_keys(layer, flavour_rules("modelopt"), "config.not_computed"));
  return read_algorithm(layer, state);
}

/// What modules have, each by its name: the tensors of a module may agree with any of them. An
/// entry that is not understood is an error of its module, if that is read.
Status read_quantized_layers(const json::Object& from, QuantizationConfig& config,
                             ModeloptState& state) {
  SUBBYTE_TRY(const auto layers, from.object("quantized_layers"));
  if (!layers) return from.error("json.missing", "quantized_layers", "an object");
  for (const auto& [name, value] : from.find("quantized_layers")->items()) {
    if (is_in_unread_part(name)) continue;
    Status read = read_quantized_layer(value, layers->where() + "." + name, state);
    if (!read.ok()) config.refuse(name, std::move(read).error());
  }
  return {};
}

template <typename T>
void keep_one_of_each(std::vector<T>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

std::string_view name_of(ModeloptWeights weights) {
  return std::ranges::find(kNames, weights, &WeightsOfAlgorithms::weights)->name;
}

Status read(const json::Object& section, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto inner, section.object("quantization"));
  if (inner) {
    SUBBYTE_CHECK(json::check_keys(*inner, flavour_rules("modelopt"), "config.not_computed"));
    SUBBYTE_CHECK(config.kept.add_lists(*inner));
  }
  const json::Object& from = inner ? *inner : section;
  auto state = std::make_shared<ModeloptState>();
  SUBBYTE_TRY(const std::string algorithm, from.required_word("quant_algo"));
  if (algorithm == kMixed) {
    SUBBYTE_CHECK(read_quantized_layers(from, config, *state));
  } else {
    SUBBYTE_CHECK(read_algorithm(from, *state));
  }
  keep_one_of_each(state->weights);
  keep_one_of_each(state->group_sizes);
  config.state = state;
  return read_kv_cache(from, config.kv_cache);
}

/// The file has all in a section, and sections of modules in it.
void find_unknown(const json::Object& object, const std::string& prefix,
                  std::vector<std::string>& keys) {
  const auto inner = object.object("quantization");
  const bool has_inner = inner.ok() && *inner;
  const json::Object& section = has_inner ? **inner : object;
  const std::string path = prefix + (has_inner ? "quantization." : "");
  if (has_inner) add_unknown_keys(section, path, "modelopt", keys);
  const auto layers = section.object("quantized_layers");
  if (!layers.ok() || !*layers) return;
  for (const auto& [name, value] : (*layers)->members()) {
    const auto layer = json::Object::of(value, name);
    if (!layer.ok()) continue;
    add_unknown_keys(*layer, path + "quantized_layers." + name + ".", "modelopt", keys);
  }
}

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_FLAVOUR_KEY("modelopt", "quant_algo", kComputed, "",
                        "NVFP4, MXFP4, FP8, MXFP8, INT8, INT4, or MIXED_PRECISION of them"),
    SUBBYTE_FLAVOUR_KEY("modelopt", "group_size", kComputed, "",
                        "of FP4, MXFP8 and INT4; absent or 0: as tensors say"),
    SUBBYTE_FLAVOUR_KEY("modelopt", "quantization", kComputed, "",
                        "the section of hf_quant_config.json"),
    SUBBYTE_FLAVOUR_KEY("modelopt", "exclude_modules", kComputed, "",
                        "modules that must not be quantized"),
    SUBBYTE_FLAVOUR_KEY("modelopt", "ignore", kComputed, "", "the same, newer"),
    SUBBYTE_FLAVOUR_KEY("modelopt", "config_groups", kIgnored, "",
                        "quant_algo says what it is; activations stay floats"),
    SUBBYTE_FLAVOUR_KEY("modelopt", "kv_cache_quant_algo", kIgnored, "",
                        "`--kv-cache-type` says how keys and values are kept"),
    SUBBYTE_FLAVOUR_KEY("modelopt", "producer", kIgnored, "", "who wrote it"),
    SUBBYTE_FLAVOUR_KEY("modelopt", "has_zero_point", kRefused, "false", "zero points"),
    SUBBYTE_FLAVOUR_KEY("modelopt", "pre_quant_scale", kIgnored, "",
                        "tensors say which inputs have factors"),
    SUBBYTE_FLAVOUR_KEY("modelopt", "quantized_layers", kComputed, "",
                        "the algorithms of MIXED_PRECISION, by module"),
};

}  // namespace

const Flavour modelopt_flavour = {
    .name = "modelopt",
    .side_file = "hf_quant_config.json",
    .keys = kKeys,
    .read = read,
    .find_unknown = find_unknown,
    .importers = {&modelopt_int4_importer, &modelopt_mxfp4_importer, &modelopt_nvfp4_importer,
                  &modelopt_experts_importer},
    .exporters = {&modelopt_nvfp4_exporter, &modelopt_mxfp4_exporter, &modelopt_experts_exporter}};

bool ModeloptState::makes(ModeloptWeights kind) const {
  return std::ranges::find(weights, kind) != weights.end();
}

Result<CompressedScheme> ModeloptState::scheme_of(const ImportContext& context,
                                                  std::string_view module,
                                                  const ByteIntegers& tensors) const {
  SUBBYTE_CHECK(require_modelopt(context, module, {ModeloptWeights::kInt8}));
  CompressedScheme scheme = {CompressedScheme::Format::kNaive, 8};
  if (tensors.groups == kOneForTensor) scheme.block_rows = -1;
  if (tensors.agree_with(scheme)) return scheme;
  return tensor_error("import.shape", *tensors.scale, "expected a scale for each row of 8 bits");
}

Result<std::vector<fp8::Block>> ModeloptState::blocks(const ImportContext& context,
                                                      std::string_view module) const {
  SUBBYTE_CHECK(
      require_modelopt(context, module, {ModeloptWeights::kFp8, ModeloptWeights::kMxfp8}));
  std::vector<fp8::Block> blocks;
  if (fp8_in_blocks) blocks.push_back({kFp8Block, kFp8Block});
  if (makes(ModeloptWeights::kMxfp8)) blocks.push_back({1, 32});
  if (blocks.empty() || makes(ModeloptWeights::kFp8)) {
    blocks.insert(blocks.end(), {fp8::kTensor, fp8::kRows});
  }
  return blocks;
}

Status require_modelopt(const ImportContext& context, std::string_view module,
                        std::initializer_list<ModeloptWeights> kinds) {
  SUBBYTE_TRY(const auto* const state,
              require_state<ModeloptState>(context, module, modelopt_flavour.name));
  const std::vector<ModeloptWeights>& said = state->weights;
  if (std::ranges::find_first_of(said, kinds) != said.end()) return {};
  std::vector<std::string_view> names;
  std::ranges::transform(said, std::back_inserter(names), name_of);
  return Error{"import.config",
               fmt::format("{}: quant_algo is one of {}, but the tensors of {} are those of {}",
                           context.config.where, fmt::join(names, " and "), quote_name(module),
                           name_of(*kinds.begin()))};
}

Result<int64_t> modelopt_group_size(const ImportContext& context, std::string_view module,
                                    const FileTensor& scales, int64_t cols,
                                    std::initializer_list<int64_t> sizes) {
  const auto groups = static_cast<int64_t>(scales.shape[1]);
  const int64_t size = groups > 0 && cols % groups == 0 ? cols / groups : 0;
  const bool fits =
      sizes.size() == 0 ? size % 8 == 0 : std::ranges::find(sizes, size) != sizes.end();
  if (size == 0 || !fits) {
    return tensor_error("import.shape", scales,
                        fmt::format("expected a scale for each {} of {} inputs, found {}",
                                    sizes.size() == 0 ? "multiple of 8"
                                                      : fmt::format("{}", fmt::join(sizes, " or ")),
                                    cols, groups));
  }
  const auto& state = *context.config.says<ModeloptState>();
  const std::vector<int64_t>& said = state.group_sizes;
  const bool is_said = std::ranges::find(said, size) != said.end();
  if (said.empty() || state.has_unsaid_group_size || is_said) return size;
  return group_error(context, module, said, cols, groups);
}

}  // namespace subbyte
