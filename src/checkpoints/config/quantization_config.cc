#include "checkpoints/config/quantization_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/quote.h"
#include "base/small_letters.h"
#include "checkpoints/config/quantization_methods.h"
#include "checkpoints/config/quantization_sections.h"
#include "checkpoints/foreign_software.h"
#include "checkpoints/unread_parts.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Method = QuantizationConfig::Method;

constexpr int64_t kMaxGroupSize = int64_t{1} << 24;
constexpr std::string_view kContradiction = "quantization.contradiction";

Status read_bits(const json::Object& object, std::string_view key, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto bits, object.integer(key, std::numeric_limits<int64_t>::min(),
                                              std::numeric_limits<int64_t>::max()));
  if (!bits) return {};
  const bool supported = config.method == Method::kAwq
                             ? *bits == 4
                             : *bits == 2 || *bits == 3 || *bits == 4 || *bits == 8;
  if (!supported) {
    return object.error("quantization.bits", key,
                        config.method == Method::kAwq ? "4" : "2, 3, 4 or 8");
  }
  config.bits.push_back(*bits);
  return {};
}

Status read_group_size(const json::Object& object, std::string_view key,
                       QuantizationConfig& config) {
  SUBBYTE_TRY(const auto size, object.integer(key, std::numeric_limits<int64_t>::min(),
                                              std::numeric_limits<int64_t>::max()));
  if (!size) return {};
  if (*size != -1 && (*size < 8 || *size % 8 != 0 || *size > kMaxGroupSize)) {
    return object.error("quantization.group_size", key, "-1 or a positive multiple of 8");
  }
  config.group_sizes.push_back(*size);
  return {};
}

/// Of an override, read after the general value.
Status read_other_symmetry(const json::Object& rule, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto sym, rule.boolean("sym"));
  config.sym_differs = config.sym_differs || (sym && *sym != config.sym);
  return {};
}

/// AutoRound names itself in the configs that it writes for others.
bool is_by_auto_round(const json::Object& object) {
  const auto provider = object.word("provider");
  return object.has("autoround_version") || (provider.ok() && *provider == "auto-round");
}

/// GPTQ: {"+:regex": {"bits": 8}, "-:regex": {}}. What stands beside "-:", which keeps modules out,
/// is read by nobody.
Status read_overrides(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto dynamic, object.object("dynamic"));
  if (!dynamic) return {};
  for (const auto& [pattern, value] : object.find("dynamic")->items()) {
    if (pattern.starts_with("-:") || value.is_null() || names_unread_part(pattern)) continue;
    SUBBYTE_TRY(const auto rule, json::Object::of(value, dynamic->where() + "." + pattern));
    SUBBYTE_CHECK(read_bits(rule, "bits", config));
    SUBBYTE_CHECK(read_group_size(rule, "group_size", config));
    SUBBYTE_CHECK(read_other_symmetry(rule, config));
  }
  return {};
}

Status require_sizes(const json::Object& object, const QuantizationConfig& config) {
  if (config.bits.empty()) return object.error("json.missing", "bits", "a number");
  if (config.group_sizes.empty()) return object.error("json.missing", "group_size", "a number");
  return {};
}

/// {"meta": {"quantizer": ["gptqmodel:7.7.0"]}}, or one string; other software leaves it out.
bool is_by_gptqmodel(const json::Object& object) {
  const json::Value* meta = object.find("meta");
  if (meta == nullptr || !meta->is_object() || !meta->contains("quantizer")) return false;
  const json::Value& value = (*meta)["quantizer"];
  const json::Value list = value.is_array() ? value : json::Value::array({value});
  return std::ranges::any_of(list, [](const json::Value& name) {
    return name.is_string() && small_letters(name.get<std::string>()).starts_with("gptqmodel");
  });
}

Status read_awq(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto bits, one_name(object, {"bits", "w_bit"}, kContradiction));
  SUBBYTE_CHECK(read_bits(object, bits, config));
  SUBBYTE_TRY(const auto size, one_name(object, {"group_size", "q_group_size"}, kContradiction));
  SUBBYTE_CHECK(read_group_size(object, size, config));
  SUBBYTE_TRY(const auto zero_point, object.boolean("zero_point"));
  config.zero_point = zero_point.value_or(true);
  config.by_gptqmodel = is_by_gptqmodel(object);
  SUBBYTE_TRY(const auto version, object.word("version"));
  if (version.value_or("gemm") != "gemm") {
    return object.error("quantization.version", "version",
                        "\"gemm\" (the only AWQ layout supported)");
  }
  return require_sizes(object, config);
}

/// `method` "marlin" is what older software wrote for "gptq" with weights in Marlin's layout, of 4
/// bits where it says none.
Status read_gptq(const json::Object& object, std::string_view method, QuantizationConfig& config) {
  SUBBYTE_CHECK(read_bits(object, "bits", config));
  SUBBYTE_CHECK(read_group_size(object, "group_size", config));
  SUBBYTE_TRY(const auto sym, object.boolean("sym"));
  SUBBYTE_TRY(const auto desc_act, object.boolean("desc_act"));
  SUBBYTE_TRY(const auto marlin, object.boolean("is_marlin_format"));
  config.sym = sym.value_or(false);
  SUBBYTE_CHECK(read_overrides(object, config));
  config.desc_act = desc_act.value_or(false);
  SUBBYTE_TRY(const std::string_view key,
              one_name(object, {"checkpoint_format", "format"}, kContradiction));
  SUBBYTE_TRY(const auto format, object.word(key));
  const std::string version = format.value_or("gptq");
  config.marlin = marlin.value_or(false) || version == "marlin" || method == "marlin";
  if (version != "gptq" && version != "gptq_v2" && version != "marlin") {
    return object.error("quantization.version", key, "\"gptq\", \"gptq_v2\" or \"marlin\"");
  }
  if (method == "marlin" && config.bits.empty()) config.bits.push_back(4);
  config.stores_zero_minus_one = version == "gptq";
  config.by_gptqmodel = is_by_gptqmodel(object);
  config.zeros_borrow = config.stores_zero_minus_one && config.by_gptqmodel;
  return require_sizes(object, config);
}

/// AutoRound's own method, whose weights have the layout of another: a packing, or in older files a
/// backend, and what becomes of its name.
struct AutoRoundPacking {
  std::string_view name;
  Method method;
  bool stores_zero_minus_one;
};

constexpr AutoRoundPacking kAutoRoundPackings[] = {
    {"auto_round:auto_gptq", Method::kGptq, true},  {"auto_round:gptq", Method::kGptq, true},
    {"auto_round:gptqmodel", Method::kGptq, false}, {"auto_round", Method::kGptq, false},
    {"auto_round:exllamav2", Method::kGptq, false}, {"auto_round:tritonv2", Method::kGptq, false},
    {"auto_round:auto_awq", Method::kAwq, false},   {"auto_round:awq", Method::kAwq, false}};

/// {"extra_config": {"lm_head": {"bits": 8}}}; 16 bits are what is not quantized.
Status read_extra_config(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto extra, object.object("extra_config"));
  if (!extra) return {};
  for (const auto& [name, value] : object.find("extra_config")->items()) {
    if (value.is_null() || names_unread_part(name)) continue;
    SUBBYTE_TRY(const auto rule, json::Object::of(value, extra->where() + "." + name));
    const json::Value* bits = rule.find("bits");
    if (bits != nullptr && json::is_integer(*bits, 16, INT64_MAX)) continue;
    SUBBYTE_CHECK(read_bits(rule, "bits", config));
    SUBBYTE_CHECK(read_group_size(rule, "group_size", config));
    SUBBYTE_CHECK(read_other_symmetry(rule, config));
  }
  return {};
}

/// Floats of AutoRound have the tensors of compressed-tensors, whatever the packing is called:
/// {"bits": 4, "data_type": "nv_fp", "group_size": 16}, or "mx_fp" of 4 or 8 bits and 32.
Status read_auto_round_floats(const json::Object& object, std::string_view data_type,
                              QuantizationConfig& config) {
  using Format = CompressedScheme::Format;
  const bool nvfp4 = data_type.starts_with("nv_fp");
  if (!nvfp4 && !data_type.starts_with("mx_fp")) {
    return object.error("quantization.format", "data_type", "\"int\", \"nv_fp\" or \"mx_fp\"");
  }
  SUBBYTE_TRY(const int64_t bits, object.required_integer("bits", 0, 64));
  SUBBYTE_TRY(const int64_t size, object.required_integer("group_size", -1, kMaxGroupSize));
  if (bits != 4 && (nvfp4 || bits != 8)) {
    return object.error("quantization.bits", "bits", nvfp4 ? "4" : "4 or 8");
  }
  CompressedScheme scheme;
  scheme.format = nvfp4 ? Format::kNvfp4 : bits == 4 ? Format::kMxfp4 : Format::kFp8;
  scheme.bits = bits;
  scheme.group_size = nvfp4 ? 16 : 32;
  if (size != scheme.group_size) {
    return object.error("quantization.group_size", "group_size", nvfp4 ? "16" : "32");
  }
  config.method = Method::kCompressedTensors;
  config.schemes = {scheme};
  return {};
}

Status read_auto_round(const json::Object& object, QuantizationConfig& config) {
  config.by_auto_round = true;
  SUBBYTE_TRY(const auto data_type, object.word("data_type"));
  if (!data_type.value_or("int").starts_with("int"))
    return read_auto_round_floats(object, *data_type, config);
  const char* key = object.has("packing_format") ? "packing_format" : "backend";
  SUBBYTE_TRY(const std::string packing, object.required_word(key));
  const auto known = std::ranges::find(kAutoRoundPackings, packing, &AutoRoundPacking::name);
  if (known == std::end(kAutoRoundPackings)) {
    return object.error("quantization.version", key,
                        "\"auto_round\", or it with \":auto_gptq\", \":gptqmodel\" or "
                        "\":auto_awq\", of integers (what this version supports)");
  }
  config.method = known->method;
  config.stores_zero_minus_one = known->stores_zero_minus_one;
  SUBBYTE_TRY(const auto sym, object.boolean("sym"));
  config.sym = sym.value_or(false) && known->method == Method::kGptq;
  config.zero_point = known->method != Method::kAwq || !sym.value_or(false);
  SUBBYTE_CHECK(read_bits(object, "bits", config));
  SUBBYTE_CHECK(read_group_size(object, "group_size", config));
  SUBBYTE_CHECK(read_extra_config(object, config));
  return require_sizes(object, config);
}

/// Method as tables have it: AutoRound and GPTQ have two names.
std::string table_name(std::string_view method) {
  const std::string word = small_letters(method);
  if (word == "marlin") return "gptq";
  return word == "intel/auto-round" ? "auto-round" : word;
}

/// The lists of modules that are not quantized.
Status read_kept(const json::Object& object, KeptModules& kept) {
  for (const std::string_view key : kListsOfKept) SUBBYTE_CHECK(kept.add(object, key));
  return {};
}

Result<QuantizationConfig> read_section(const json::Object& object, std::string_view method) {
  QuantizationConfig config;
  config.where = object.where();
  SUBBYTE_CHECK(json::check_keys(object, quantization_rules(method), "config.not_computed"));
  SUBBYTE_CHECK(read_kept(object, config.kept));
  SUBBYTE_TRY(const auto inner, object.object("quantization"));  // of hf_quant_config.json
  if (inner && method == "modelopt") {
    SUBBYTE_CHECK(json::check_keys(*inner, quantization_rules(method), "config.not_computed"));
    SUBBYTE_CHECK(read_kept(*inner, config.kept));
  }
  config.by_auto_round = is_by_auto_round(object);
  if (method == "awq") {
    config.method = Method::kAwq;
    SUBBYTE_CHECK(read_awq(object, config));
  } else if (method == "gptq" || method == "marlin") {
    config.method = Method::kGptq;
    SUBBYTE_CHECK(read_gptq(object, method, config));
  } else if (method == "auto-round" || method == "intel/auto-round") {
    SUBBYTE_CHECK(read_auto_round(object, config));
  } else if (method == "mxfp4") {
    config.method = Method::kMxfp4;
  } else if (method == "compressed-tensors") {
    config.method = Method::kCompressedTensors;
    SUBBYTE_CHECK(read_compressed_tensors(object, config));
  } else if (method == "modelopt") {
    config.method = Method::kModelopt;
    SUBBYTE_CHECK(read_modelopt(object, config));
  } else if (method == "bitsandbytes") {
    config.method = Method::kBitsandbytes;
    SUBBYTE_CHECK(read_bitsandbytes(object, config));
  } else if (method == "fp8" || method == "fbgemm_fp8") {
    config.method = Method::kFp8;
    SUBBYTE_CHECK(read_fp8(object, config));
  } else if (method == "kbit") {
    config.method = Method::kKbit;
    SUBBYTE_CHECK(read_kbit(object, config));
  } else if (method == "vq") {
    config.method = Method::kVq;
    SUBBYTE_CHECK(read_vq(object, config));
  } else if (const auto name = foreign_method(method); !name.empty()) {
    return foreign_error("quantization.method",
                         fmt::format("{}: quant_method is {}", object.where(), quote(method)),
                         name);
  } else {
    return object.error(
        "quantization.method", "quant_method",
        "\"awq\", \"gptq\", \"auto-round\", \"mxfp4\", \"fp8\", \"compressed-tensors\", "
        "\"modelopt\", \"bitsandbytes\", \"kbit\" or \"vq\" (what this version supports)");
  }
  return config;
}

/// MLX says {"quantization": {"group_size": 64, "bits": 4}}, and no method.
Status refuse_mlx(const json::Object& config) {
  const json::Value* section = config.find("quantization");
  if (section == nullptr || !section->is_object() || !section->contains("group_size") ||
      !section->contains("bits")) {
    return {};
  }
  return foreign_error("quantization.method", config.where() + ": quantization",
                       foreign_method("mlx"));
}

}  // namespace

std::vector<json::KeyRule> quantization_rules(std::string_view method) {
  using json::KeyUse;
  static constexpr json::ScopedRule kRules[] = {
#define SUBBYTE_QUANTIZATION_KEY(methods, key, use, neutral, note) \
  {methods, {key, KeyUse::use, neutral}},
#include "checkpoints/config/quantization_keys.def"
#undef SUBBYTE_QUANTIZATION_KEY
  };
  return json::rules_of(kRules, table_name(method));
}

namespace {

/// The name in a text model: "model.layers.0" for "model.language_model.layers.0".
std::string without_wrapper(std::string_view module) {
  constexpr std::string_view kWrapper = "language_model.";
  std::string name(module);
  if (const auto found = name.find(kWrapper); found != name.npos) {
    name.erase(found, kWrapper.size());
  }
  return name;
}

}  // namespace

const CompressedScheme* QuantizationConfig::named_scheme(std::string_view module) const {
  if (scheme_of.empty()) return nullptr;
  const auto found = scheme_of.find(without_wrapper(module));
  return found == scheme_of.end() ? nullptr : &schemes[found->second];
}

void QuantizationConfig::name_scheme(std::string_view module, std::size_t scheme) {
  scheme_of.emplace(without_wrapper(module), scheme);
}

Status QuantizationConfig::check_named(std::string_view module) const {
  if (refused.empty()) return {};
  const auto found = refused.find(without_wrapper(module));
  return found == refused.end() ? Status() : Status(found->second);
}

void QuantizationConfig::refuse(std::string_view module, Error error) {
  refused.emplace(without_wrapper(module), std::move(error));
}

std::string QuantizationConfig::method_name() const {
  switch (method) {
    case Method::kAwq:
      return "awq";
    case Method::kGptq:
      return "gptq";
    case Method::kMxfp4:
      return "mxfp4";
    case Method::kCompressedTensors:
      return "compressed-tensors";
    case Method::kModelopt:
      return "modelopt";
    case Method::kBitsandbytes:
      return "bitsandbytes";
    case Method::kFp8:
      return "fp8";
    case Method::kKbit:
      return "kbit";
    case Method::kVq:
      return "vq";
    case Method::kNone:
      break;
  }
  return "none";
}

Result<QuantizationConfig> read_quantization_config(const json::Object& config,
                                                    const fs::path& directory) {
  SUBBYTE_CHECK(refuse_mlx(config));
  SUBBYTE_TRY(const auto found, find_quantization_section(config));
  if (found) {
    SUBBYTE_TRY(const auto method, found->section.required_word("quant_method"));
    SUBBYTE_TRY(QuantizationConfig quantization, read_section(found->section, method));
    find_named_twice(found->section, quantization.kept, quantization.differs);
    SUBBYTE_CHECK(compare_other_sections(config, found->section, directory, quantization.differs));
    return quantization;
  }
  if (const SideFile* const file = find_side_file(directory)) {
    const std::string path = (directory / file->name).string();
    SUBBYTE_TRY(const auto value, json::parse_file(path, kMaxSideFileBytes));
    SUBBYTE_TRY(const auto object, json::Object::of(value, path));
    return read_section(object, file->method);
  }
  QuantizationConfig none;
  none.where = config.where();
  return none;
}

}  // namespace subbyte
