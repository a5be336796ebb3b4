// The quantization_config of compressed-tensors:
//
//   {"quant_method": "compressed-tensors", "format": "pack-quantized",
//    "config_groups": {"group_0": {"targets": ["Linear"], "format": null,
//      "weights": {"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group",
//                  "group_size": 128, "dynamic": false, "actorder": null},
//      "input_activations": null, "output_activations": null}},
//    "ignore": ["lm_head"], "sparsity_config": {}, "transform_config": {}}
//
// A group may have a format of its own, or be the name of a preset: {"W4A16": ["Linear"]}. The
// tensors of a module have to agree with some group; which modules a group has by their names
// counts where they agree with several. Classes and patterns of targets are not read.
//
// Activations stay floats here, whatever input_activations says, as in other weight-only readers.

#include <algorithm>
#include <limits>

#include "base/small_letters.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/unread_parts.h"

namespace subbyte {
namespace {

using Scheme = CompressedScheme;

constexpr int64_t kMaxGroupSize = int64_t{1} << 24;
constexpr int64_t kNvfp4Group = 16;
constexpr int64_t kMxGroup = 32;
constexpr int64_t kFp8Block = 128;

struct Preset {
  std::string_view name;
  Scheme scheme;
};

const Preset kPresets[] = {
    {"W8A16", {Scheme::Format::kPackQuantized, 8, true, -1, false}},
    {"W4A16", {Scheme::Format::kPackQuantized, 4, true, 128, false}},
    {"W4A16_ASYM", {Scheme::Format::kPackQuantized, 4, false, 128, false}},
    {"NVFP4A16", {Scheme::Format::kNvfp4, 4, true, kNvfp4Group, false}},
    {"NVFP4", {Scheme::Format::kNvfp4, 4, true, kNvfp4Group, false}},
    {"MXFP4A16", {Scheme::Format::kMxfp4, 4, true, kMxGroup, false}},
    {"MXFP4", {Scheme::Format::kMxfp4, 4, true, kMxGroup, false}},
    {"MXFP8A16", {Scheme::Format::kFp8, 8, true, kMxGroup, false}},
    {"MXFP8", {Scheme::Format::kFp8, 8, true, kMxGroup, false}},
    {"W8A8", {Scheme::Format::kNaive, 8, true, -1, false}},
    {"FP8", {Scheme::Format::kFp8, 8, true, -1, false, -1}},
    {"FP8_DYNAMIC", {Scheme::Format::kFp8, 8, true, -1, false, 1}},
    {"FP8_BLOCK", {Scheme::Format::kFp8, 8, true, kFp8Block, false, kFp8Block}},
};

Result<Scheme::Format> read_format(const json::Object& object, std::string_view format) {
  if (format == "pack-quantized") return Scheme::Format::kPackQuantized;
  if (format == "nvfp4-pack-quantized") return Scheme::Format::kNvfp4;
  if (format == "mxfp4-pack-quantized") return Scheme::Format::kMxfp4;
  if (format == "naive-quantized" || format == "int-quantized") return Scheme::Format::kNaive;
  if (format == "float-quantized" || format == "mxfp8-quantized") return Scheme::Format::kFp8;
  return object.error("quantization.format", "format",
                      "\"pack-quantized\", \"naive-quantized\", \"int-quantized\", "
                      "\"float-quantized\", \"mxfp8-quantized\", \"nvfp4-pack-quantized\" or "
                      "\"mxfp4-pack-quantized\"");
}

Result<int64_t> read_integer(const json::Object& weights, std::string_view key, int64_t absent) {
  SUBBYTE_TRY(const auto value, weights.integer(key, std::numeric_limits<int64_t>::min(),
                                                std::numeric_limits<int64_t>::max()));
  return value.value_or(absent);
}

/// Which weights share a scale: strategy "group" with its size, "channel", the whole row, or
/// "tensor".
Status read_strategy(const json::Object& weights, bool floats, Scheme& scheme) {
  SUBBYTE_TRY(const int64_t size, read_integer(weights, "group_size", 0));
  SUBBYTE_TRY(const auto given, weights.word("strategy"));
  const std::string strategy = given.value_or(size > 0 ? "group" : size == -1 ? "channel" : "");
  const bool of_tensor = strategy == "tensor";
  if ((of_tensor || strategy == "channel") && !floats) {
    scheme.group_size = -1;
    scheme.block_rows = of_tensor ? -1 : 1;
    return {};
  }
  if (strategy != "group" && (strategy != "tensor_group" || !floats)) {
    return weights.error(
        "quantization.strategy", "strategy",
        floats ? "\"tensor_group\" or \"group\"" : "\"group\", \"channel\" or \"tensor\"");
  }
  if (size < 8 || size % 8 != 0 || size > kMaxGroupSize) {
    return weights.error("quantization.group_size", "group_size", "a positive multiple of 8");
  }
  scheme.group_size = size;
  return {};
}

/// null, false, "weight" and "static" leave groups contiguous; true, "group" and "dynamic" do not.
Result<bool> read_act_order(const json::Object& weights) {
  const json::Value* value = weights.find("actorder");
  if (value == nullptr || value->is_null()) return false;
  if (value->is_boolean()) return value->get<bool>();
  SUBBYTE_TRY(const std::string order, weights.required_word("actorder"));
  if (order == "group" || order == "dynamic") return true;
  if (order == "weight" || order == "static") return false;
  return weights.error("quantization.activation_order", "actorder",
                       "null, \"group\" or \"weight\"");
}

Status check_floats(const json::Object& weights, const Scheme& scheme) {
  const int64_t group = scheme.format == Scheme::Format::kNvfp4 ? kNvfp4Group : kMxGroup;
  if (scheme.bits != 4) return weights.error("quantization.bits", "num_bits", "4");
  if (scheme.group_size != group) {
    return weights.error("quantization.group_size", "group_size", group == 16 ? "16" : "32");
  }
  if (!scheme.symmetric) return weights.error("quantization.format", "symmetric", "true");
  return {};
}

/// Outputs and inputs that share a scale of FP8: strategy "tensor", "channel", "group" with its
/// size, or "block" with "block_structure": [128, 128].
Status read_fp8_strategy(const json::Object& weights, Scheme& scheme) {
  SUBBYTE_TRY(const std::string strategy, weights.required_word("strategy"));
  scheme.group_size = -1;
  if (strategy == "channel") return {};
  if (strategy == "tensor") {
    scheme.block_rows = -1;
    return {};
  }
  if (strategy == "group") {
    SUBBYTE_TRY(scheme.group_size, read_integer(weights, "group_size", 0));
  } else if (strategy == "block") {
    const json::Value* const size = weights.find("block_structure");
    const auto is_size = [](const json::Value& value) {
      return json::is_integer(value, 1, kMaxGroupSize);
    };
    if (size == nullptr || !size->is_array() || size->size() != 2 || !is_size((*size)[0]) ||
        !is_size((*size)[1])) {
      return weights.error("quantization.group_size", "block_structure", "two positive numbers");
    }
    scheme.block_rows = (*size)[0].get<int64_t>();
    scheme.group_size = (*size)[1].get<int64_t>();
  } else {
    return weights.error("quantization.strategy", "strategy",
                         "\"tensor\", \"channel\", \"group\" or \"block\"");
  }
  if (scheme.group_size < 8 || scheme.group_size % 8 != 0 || scheme.group_size > kMaxGroupSize) {
    return weights.error("quantization.group_size",
                         strategy == "group" ? "group_size" : "block_structure",
                         "a positive multiple of 8 inputs");
  }
  return {};
}

/// E4M3 codes; its type says "float" also where the format is "naive-quantized".
Result<Scheme> read_fp8_weights(const json::Object& weights) {
  Scheme scheme;
  scheme.format = Scheme::Format::kFp8;
  SUBBYTE_TRY(const auto type, weights.word("type"));
  if (type.value_or("int") != "float") {
    return weights.error("quantization.format", "type", "\"float\"");
  }
  SUBBYTE_TRY(const auto dynamic, weights.boolean("dynamic"));
  if (dynamic.value_or(false)) return weights.error("quantization.format", "dynamic", "false");
  SUBBYTE_TRY(scheme.bits, read_integer(weights, "num_bits", 8));
  if (scheme.bits != 8) return weights.error("quantization.bits", "num_bits", "8");
  SUBBYTE_TRY(const auto symmetric, weights.boolean("symmetric"));
  if (!symmetric.value_or(true)) return weights.error("quantization.format", "symmetric", "true");
  SUBBYTE_CHECK(read_fp8_strategy(weights, scheme));
  return scheme;
}

Result<Scheme> read_weights(const json::Object& weights, Scheme::Format format) {
  SUBBYTE_TRY(const auto type, weights.word("type"));
  const bool naive_fp8 = format == Scheme::Format::kNaive && type == "float";
  if (format == Scheme::Format::kFp8 || naive_fp8) return read_fp8_weights(weights);
  const bool floats = format == Scheme::Format::kNvfp4 || format == Scheme::Format::kMxfp4;
  Scheme scheme;
  scheme.format = format;
  if (type.value_or("int") != (floats ? "float" : "int")) {
    return weights.error("quantization.format", "type", floats ? "\"float\"" : "\"int\"");
  }
  SUBBYTE_TRY(const auto dynamic, weights.boolean("dynamic"));
  if (dynamic.value_or(false)) return weights.error("quantization.format", "dynamic", "false");
  SUBBYTE_TRY(scheme.bits, read_integer(weights, "num_bits", 8));
  if (scheme.bits < 2 || scheme.bits > 8) {
    return weights.error("quantization.bits", "num_bits", "2 to 8");
  }
  SUBBYTE_TRY(const auto symmetric, weights.boolean("symmetric"));
  scheme.symmetric = symmetric.value_or(true);
  SUBBYTE_CHECK(read_strategy(weights, floats, scheme));
  SUBBYTE_TRY(scheme.act_order, read_act_order(weights));
  if (floats) SUBBYTE_CHECK(check_floats(weights, scheme));
  return scheme;
}

/// The modules that the last scheme is for.
void read_targets(const json::Value* targets, CompressedState& state) {
  if (targets == nullptr || !targets->is_array()) return;
  for (const json::Value& target : *targets) {
    if (target.is_string()) state.name_scheme(target.string(), state.schemes.size() - 1);
  }
}

Status read_preset(const json::Object& groups, const std::string& name, const json::Value& targets,
                   CompressedState& state) {
  for (const Preset& preset : kPresets) {
    if (small_letters(preset.name) != small_letters(name)) continue;
    state.schemes.push_back(preset.scheme);
    read_targets(&targets, state);
    return {};
  }
  return groups.error("quantization.format", name,
                      "an object, or targets of the preset W8A16, W4A16, W4A16_ASYM, NVFP4A16, "
                      "NVFP4, MXFP4A16, MXFP4, MXFP8A16, MXFP8, W8A8, FP8, FP8_DYNAMIC or "
                      "FP8_BLOCK");
}

/// Whether all targets of a group, or of a preset, are modules of parts that nobody reads.
bool is_for_unread_parts(const json::Value& group) {
  const json::Value* const own = group.find("targets");
  const json::Value* const targets = group.is_array() ? &group : own != nullptr ? own : nullptr;
  if (targets == nullptr || !targets->is_array() || targets->empty()) return false;
  return std::ranges::all_of(*targets, [](const json::Value& target) {
    return target.is_string() && names_unread_part(target.string());
  });
}

Status read_group(const json::Object& object, const json::Object& group, CompressedState& state) {
  SUBBYTE_CHECK(json::check_keys(group, flavour_rules("ct-group"), "config.not_computed"));
  SUBBYTE_TRY(const auto weights, group.object("weights"));
  if (!weights) return {};  // only activations
  SUBBYTE_CHECK(json::check_keys(*weights, flavour_rules("ct-weights"), "config.not_computed"));
  SUBBYTE_TRY(const auto own, group.word("format"));
  SUBBYTE_TRY(const auto common, object.word("format"));
  SUBBYTE_TRY(const auto format,
              read_format(own ? group : object, own ? *own : common.value_or("")));
  SUBBYTE_TRY(const Scheme scheme, read_weights(*weights, format));
  state.schemes.push_back(scheme);
  read_targets(group.find("targets"), state);
  return {};
}

/// Weights that were rotated or made sparse mean something only together with what undoes it.
Status refuse_transforms(const json::Object& object) {
  const json::Value* transform = object.find("transform_config");
  if (transform != nullptr && !transform->is_null() && !transform->empty()) {
    return object.error("quantization.transform", "transform_config", "none");
  }
  SUBBYTE_TRY(const auto sparsity, object.object("sparsity_config"));
  if (!sparsity) return {};
  SUBBYTE_TRY(const auto format, sparsity->word("format"));
  if (format.value_or("dense") != "dense") {
    return sparsity->error("quantization.sparsity", "format", "\"dense\"");
  }
  return {};
}

Status read(const json::Object& section, QuantizationConfig& config) {
  SUBBYTE_CHECK(refuse_transforms(section));
  SUBBYTE_CHECK(read_kv_cache_scheme(section, config.kv_cache));
  SUBBYTE_TRY(const auto groups, section.object("config_groups"));
  if (!groups) return section.error("json.missing", "config_groups", "an object");
  auto state = std::make_shared<CompressedState>();
  bool has_unread = false;
  for (const auto& [name, value] : section.find("config_groups")->items()) {
    if (is_for_unread_parts(value)) {
      has_unread = true;
      continue;
    }
    if (value.is_array()) {
      SUBBYTE_CHECK(read_preset(*groups, name, value, *state));
      continue;
    }
    SUBBYTE_TRY(const auto group, json::Object::of(value, groups->where() + "." + name));
    SUBBYTE_CHECK(read_group(section, group, *state));
  }
  if (state->schemes.empty() && !has_unread) {
    return section.error("json.missing", "config_groups", "a group with weights");
  }
  config.state = state;
  return {};
}

void find_unknown(const json::Object& section, const std::string& prefix,
                  std::vector<std::string>& keys) {
  const auto groups = section.object("config_groups");
  if (!groups.ok() || !*groups) return;
  for (const auto& [name, value] : (*groups)->members()) {
    const auto group = json::Object::of(value, name);
    if (!group.ok()) continue;
    const std::string path = prefix + "config_groups." + name + ".";
    add_unknown_keys(*group, path, "ct-group", keys);
    const auto weights = group->object("weights");
    if (!weights.ok() || !*weights) continue;
    add_unknown_keys(**weights, path + "weights.", "ct-weights", keys);
  }
}

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_FLAVOUR_KEY("compressed-tensors", "format", kComputed, "", "of groups that have none"),
    SUBBYTE_FLAVOUR_KEY("compressed-tensors", "config_groups", kComputed, "", "must be there"),
    SUBBYTE_FLAVOUR_KEY("compressed-tensors", "ignore", kComputed, "",
                        "modules that must not be quantized"),
    SUBBYTE_FLAVOUR_KEY("compressed-tensors", "sparsity_config", kComputed, "",
                        "of the format dense, or none"),
    SUBBYTE_FLAVOUR_KEY("compressed-tensors", "transform_config", kComputed, "", "none"),
    SUBBYTE_FLAVOUR_KEY("compressed-tensors", "global_compression_ratio", kIgnored, "",
                        "how much smaller it became"),
    SUBBYTE_FLAVOUR_KEY("compressed-tensors", "moe_sparsity_config", kRefused, "{}",
                        "weights that are left out"),
    SUBBYTE_FLAVOUR_KEY("compressed-tensors", "quantization_status", kIgnored, "",
                        "tensors say what they are"),
    SUBBYTE_FLAVOUR_KEY("compressed-tensors", "run_compressed", kIgnored, "", "how it is computed"),
    SUBBYTE_FLAVOUR_KEY("compressed-tensors", "version", kIgnored, "", "who wrote it"),
    SUBBYTE_FLAVOUR_KEY("ct-group", "format", kComputed, "", "of this group"),
    SUBBYTE_FLAVOUR_KEY("ct-group", "weights", kComputed, "", "how weights are stored"),
    SUBBYTE_FLAVOUR_KEY("ct-group", "targets", kIgnored, "", "tensors say which group they are of"),
    SUBBYTE_FLAVOUR_KEY("ct-group", "input_activations output_activations", kIgnored, "",
                        "activations stay floats"),
    SUBBYTE_FLAVOUR_KEY("ct-weights", "actorder", kComputed, "", "absent: groups of neighbours"),
    SUBBYTE_FLAVOUR_KEY("ct-weights", "dynamic", kComputed, "", "false"),
    SUBBYTE_FLAVOUR_KEY("ct-weights", "group_size", kComputed, "", "with the strategy"),
    SUBBYTE_FLAVOUR_KEY("ct-weights", "num_bits", kComputed, "", "absent: 8"),
    SUBBYTE_FLAVOUR_KEY("ct-weights", "strategy", kComputed, "", "absent: by the group size"),
    SUBBYTE_FLAVOUR_KEY("ct-weights", "symmetric", kComputed, "", "absent: true"),
    SUBBYTE_FLAVOUR_KEY("ct-weights", "type", kComputed, "", "absent: int"),
    SUBBYTE_FLAVOUR_KEY("ct-weights", "block_structure", kComputed, "",
                        "outputs and inputs of a scale of FP8"),
    SUBBYTE_FLAVOUR_KEY("ct-weights", "observer observer_kwargs", kIgnored, "",
                        "how the quantizer was run"),
    SUBBYTE_FLAVOUR_KEY("ct-weights", "scale_dtype zp_dtype", kIgnored, "",
                        "tensors have their types"),
};

}  // namespace

const Flavour compressed_tensors_flavour = {
    .name = "compressed-tensors",
    .keys = kKeys,
    .read = read,
    .find_unknown = find_unknown,
    .importers = {&pack_quantized_importer, &naive_quantized_importer,
                  &nvfp4_pack_quantized_importer, &mxfp4_pack_quantized_importer},
    .exporters = {&pack_quantized_exporter, &pack_quantized_lanes_exporter,
                  &nvfp4_pack_quantized_exporter, &mxfp4_pack_quantized_exporter,
                  &mixed_precision_exporter, &naive_quantized_exporter},
    .choose = choose_compressed};

const CompressedScheme* CompressedState::named_scheme(std::string_view module) const {
  if (scheme_of_module.empty()) return nullptr;
  const auto found = scheme_of_module.find(without_wrapper(module));
  return found == scheme_of_module.end() ? nullptr : &schemes[found->second];
}

void CompressedState::name_scheme(std::string_view module, std::size_t scheme) {
  scheme_of_module.emplace(without_wrapper(module), scheme);
}

Result<std::vector<fp8::Block>> CompressedState::blocks(const ImportContext& context,
                                                        std::string_view module) const {
  SUBBYTE_CHECK(require_scheme(context, module, Scheme::Format::kFp8));
  std::vector<fp8::Block> blocks;
  for (const Scheme& scheme : schemes) {
    if (scheme.format != Scheme::Format::kFp8) continue;
    blocks.push_back({scheme.block_rows, scheme.group_size == -1 ? 0 : scheme.group_size});
  }
  return blocks;
}

std::string to_string(const CompressedScheme& scheme) {
  if (scheme.format == Scheme::Format::kNvfp4) return "nvfp4-pack-quantized";
  if (scheme.format == Scheme::Format::kMxfp4) return "mxfp4-pack-quantized";
  if (scheme.format == Scheme::Format::kFp8) {
    const std::string size = std::to_string(scheme.group_size);
    if (scheme.group_size == -1) {
      return scheme.block_rows == -1 ? "float-quantized tensor" : "float-quantized channel";
    }
    return "float-quantized " + (scheme.block_rows == 1
                                     ? "group " + size
                                     : "block " + std::to_string(scheme.block_rows) + " x " + size);
  }
  std::string text = scheme.format == Scheme::Format::kNaive ? "naive" : "pack";
  text += "-quantized " + std::to_string(scheme.bits) + " bits ";
  text += scheme.symmetric ? "symmetric " : "asymmetric ";
  if (scheme.group_size == -1) {
    text += scheme.block_rows == -1 ? "tensor" : "channel";
  } else {
    text += "group " + std::to_string(scheme.group_size);
  }
  if (scheme.act_order) text += " actorder group";
  return text;
}

}  // namespace subbyte
