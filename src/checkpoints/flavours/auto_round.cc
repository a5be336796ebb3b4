// AutoRound's own config, whose weights have the layout of another flavour:
//
//   {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4,
//    "group_size": 128, "sym": true, "extra_config": {"lm_head": {"bits": 8}}}
//   {"quant_method": "auto-round", "data_type": "nv_fp", "bits": 4, "group_size": 16}

#include <algorithm>

#include "base/quote.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/ct_config.h"
#include "checkpoints/flavours/integer_config.h"
#include "checkpoints/unread_parts.h"

namespace subbyte {
namespace {

/// A packing, or in older files a backend.
struct Packing {
  std::string_view name;
  bool is_awq;
  bool stores_zero_minus_one;
};

constexpr Packing kPackings[] = {
    {"auto_round:auto_gptq", false, true},  {"auto_round:gptq", false, true},
    {"auto_round:gptqmodel", false, false}, {"auto_round", false, false},
    {"auto_round:exllamav2", false, false}, {"auto_round:tritonv2", false, false},
    {"auto_round:auto_awq", true, false},   {"auto_round:awq", true, false}};

/// 16 bits are what is not quantized. `sym_differs` becomes true where an entry says the opposite.
Status read_extra_config(const json::Object& object, std::span<const int> known, bool sym,
                         IntegerSizes& sizes, bool& sym_differs) {
  SUBBYTE_TRY(const auto extra, object.object("extra_config"));
  if (!extra) return {};
  for (const auto& [name, value] : object.find("extra_config")->items()) {
    if (value.is_null() || names_unread_part(name)) continue;
    SUBBYTE_TRY(const auto rule, json::Object::of(value, extra->where() + "." + name));
    const json::Value* bits = rule.find("bits");
    if (bits != nullptr && json::is_integer(*bits, 16, INT64_MAX)) continue;
    SUBBYTE_CHECK(sizes.read_bits(rule, "bits", known));
    SUBBYTE_CHECK(sizes.read_group_size(rule, "group_size"));
    SUBBYTE_TRY(const auto other, rule.boolean("sym"));
    sym_differs = sym_differs || (other && *other != sym);
  }
  return {};
}

Status read_sizes(const json::Object& object, std::span<const int> known, bool sym,
                  IntegerSizes& sizes, bool& sym_differs) {
  SUBBYTE_CHECK(sizes.read_bits(object, "bits", known));
  SUBBYTE_CHECK(sizes.read_group_size(object, "group_size"));
  SUBBYTE_CHECK(read_extra_config(object, known, sym, sizes, sym_differs));
  return sizes.require(object);
}

/// Floats have the tensors of compressed-tensors, whatever the packing is called: "nv_fp", or
/// "mx_fp" of 4 or 8 bits.
Status read_floats(const json::Object& object, std::string_view data_type,
                   QuantizationConfig& config) {
  using Format = CompressedScheme::Format;
  const bool nvfp4 = data_type.starts_with("nv_fp");
  if (!nvfp4 && !data_type.starts_with("mx_fp")) {
    return object.error("quantization.format", "data_type", "\"int\", \"nv_fp\" or \"mx_fp\"");
  }
  SUBBYTE_TRY(const int64_t bits, object.required_integer("bits", 0, 64));
  SUBBYTE_TRY(const int64_t size, object.required_integer("group_size", -1, int64_t{1} << 24));
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
  auto state = std::make_shared<CompressedState>();
  state->schemes = {scheme};
  config.flavour = &compressed_tensors_flavour;
  config.state = state;
  return {};
}

Status read(const json::Object& section, QuantizationConfig& config) {
  config.by_auto_round = true;
  SUBBYTE_TRY(const auto data_type, section.word("data_type"));
  if (!data_type.value_or("int").starts_with("int")) {
    return read_floats(section, *data_type, config);
  }
  const char* key = section.has("packing_format") ? "packing_format" : "backend";
  SUBBYTE_TRY(const std::string packing, section.required_word(key));
  const auto known = std::ranges::find(kPackings, packing, &Packing::name);
  if (known == std::end(kPackings)) {
    return section.error("quantization.version", key,
                         "\"auto_round\", or it with \":auto_gptq\", \":gptqmodel\" or "
                         "\":auto_awq\", of integers (what this version supports)");
  }
  SUBBYTE_TRY(const auto sym, section.boolean("sym"));
  if (known->is_awq) {
    auto state = std::make_shared<AwqState>();
    state->zero_point = !sym.value_or(false);
    config.flavour = &awq_flavour;
    config.state = state;
    bool sym_differs = false;  // which tells nothing here
    return read_sizes(section, kAwqBits, false, state->sizes, sym_differs);
  }
  auto state = std::make_shared<GptqState>();
  state->sym = sym.value_or(false);
  state->stores_zero_minus_one = known->stores_zero_minus_one;
  config.flavour = &gptq_flavour;
  config.state = state;
  return read_sizes(section, kGptqBits, state->sym, state->sizes, state->sym_differs);
}

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_FLAVOUR_KEY("auto-round", "packing_format", kComputed, "",
                        "the layout of another method"),
    SUBBYTE_FLAVOUR_KEY("auto-round", "backend", kComputed, "", "the same, older"),
    SUBBYTE_FLAVOUR_KEY("auto-round", "extra_config", kComputed, "",
                        "other bits of single modules"),
    SUBBYTE_FLAVOUR_KEY("auto-round", "quant_block_list supported_types regex_config", kIgnored, "",
                        "tensors say which are quantized"),
    SUBBYTE_FLAVOUR_KEY("auto-round", "data_type", kComputed, "", "int, nv_fp, mx_fp; absent: int"),
    SUBBYTE_FLAVOUR_KEY("auto-round", "desc_act", kIgnored, "", "of another method"),
    SUBBYTE_FLAVOUR_KEY("auto-round",
                        "enable_adam enable_minmax_tuning enable_norm_bias_tuning "
                        "gradient_accumulate_steps low_cpu_mem_usage lr lr_scheduler "
                        "minmax_lr momentum nblocks not_use_best_mse sampler seed",
                        kIgnored, "", "how the quantizer was run"),
};

}  // namespace

const Flavour auto_round_flavour = {
    .name = "auto-round", .other_name = "intel/auto-round", .keys = kKeys, .read = read};

}  // namespace subbyte
