#include "models/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/quote.h"
#include "models/gguf_keys.h"
#include "models/model_family.h"

namespace subbyte {
namespace {

using json::Value;

constexpr std::string_view kCode = "gguf.value";
constexpr std::string_view kArchitecture = "general.architecture";
constexpr std::string_view kPattern = "attention.sliding_window_pattern";
constexpr int64_t kMaxListed = 4096;  // layers of which a list says a number each
constexpr int64_t kMaxWhole = (int64_t{1} << 31) - 1;

/// Keys that tensors say, too, by their shapes or by their number.
constexpr std::string_view kSeenInTensors[] = {"feed_forward_length",
                                               "attention.head_count_kv",
                                               "attention.key_length",
                                               "expert_count",
                                               "expert_shared_count",
                                               "expert_feed_forward_length",
                                               "expert_shared_feed_forward_length"};

bool has_in_layers(const GgufModel& model, const std::string& ending) {
  return std::ranges::any_of(model.parts(), [&](const GgufFile& part) {
    return std::ranges::any_of(part.tensors(), [&](const GgufTensor& tensor) {
      return tensor.name.starts_with("blk.") && tensor.name.ends_with(ending);
    });
  });
}

/// Says whether a layer has experts, by how many there are or by a router.
Result<bool> has_experts(const GgufModel& model) {
  SUBBYTE_TRY(const auto experts, gguf_integer(model.keys(), "expert_count"));
  if (experts) return *experts != 0;
  return has_in_layers(model, ".ffn_gate_inp.weight");
}

/// A key without a value of its own must be there, or another one of `rules` that says the same, as
/// config.json's default may be another number than the file was made with.
Status check_absent(const GgufModel& model, std::span<const GgufKeyRule> rules,
                    const GgufKeyRule& absent) {
  const GgufFile& file = model.keys();
  if (std::ranges::find(kSeenInTensors, absent.name) != std::end(kSeenInTensors)) return {};
  for (const GgufKeyRule& rule : rules) {
    if (rule.key == absent.key && file.find(gguf_key_in(file, rule.name)) != nullptr) return {};
  }
  if (absent.name.starts_with("expert_")) {
    SUBBYTE_TRY(const bool has, has_experts(model));
    if (!has) return {};
  }
  return file.error(kCode, gguf_key_in(file, absent.name), "a number");
}

/// The number of a rule divided by that of the other key.
Result<Value> divided(const GgufFile& file, const GgufKeyRule& rule) {
  SUBBYTE_TRY(const auto product, gguf_integer(file, rule.name));
  SUBBYTE_TRY(const auto by, gguf_integer(file, rule.times));
  if (product && by && *by >= 1 && *product % *by == 0) {
    return Value(static_cast<uint64_t>(*product / *by));
  }
  return file.error(kCode, gguf_key_in(file, rule.name),
                    fmt::format("a size for each of {}", rule.times));
}

/// A rule of the architecture counts before a shared one of its name.
Status add_keys(const GgufModel& model, const GgufArchitecture& architecture,
                std::span<const GgufKeyRule> rules, Value& config) {
  const GgufFile& file = model.keys();
  const auto is_own = [&](const GgufKeyRule& rule) {
    return rules.data() != architecture.keys.data() &&
           std::ranges::find(architecture.keys, rule.name, &GgufKeyRule::name) !=
               architecture.keys.end();
  };
  for (const GgufKeyRule& rule : rules) {
    if (rule.is(kGgufByFamily) || is_own(rule) || config.contains(rule.key)) continue;
    if (!rule.times.empty()) {
      SUBBYTE_TRY(config[rule.key], divided(file, rule));
    } else if (file.find(gguf_key_in(file, rule.name)) != nullptr) {
      SUBBYTE_TRY(config[rule.key], gguf_value(file, rule.name));
    } else if (!rule.absent.empty()) {
      SUBBYTE_TRY(config[rule.key], json::parse(rule.absent, rule.name));
    } else {
      SUBBYTE_CHECK(check_absent(model, rules, rule));
    }
  }
  return {};
}

// ---- rotary embedding

Value list_of(std::span<const float> numbers) {
  Value list = Value::array();
  for (const float number : numbers) list.push_back(number);
  return list;
}

/// rope.scaling.type and the keys beside it.
Result<Value> scaling_of(const GgufFile& file, std::string_view type) {
  Value section = {{"rope_type", std::string(type)}};
  struct Row {
    std::string_view name;
    const char* key;
  };
  constexpr Row kRows[] = {
      {"rope.scaling.factor", "factor"},
      {"rope.scaling.original_context_length", "original_max_position_embeddings"},
      {"rope.scaling.yarn_beta_fast", "beta_fast"},
      {"rope.scaling.yarn_beta_slow", "beta_slow"},
      {"rope.scaling.yarn_attn_factor", "attention_factor"}};
  for (const Row& row : kRows) {
    if (file.find(gguf_key_in(file, row.name)) == nullptr) continue;
    const bool is_of_yarn = row.key != kRows[0].key;
    if (type == "linear" && is_of_yarn) continue;
    SUBBYTE_TRY(section[row.key], gguf_value(file, row.name));
  }
  return section;
}

Status add_rope(const GgufModel& model, Value& config) {
  const GgufFile& file = model.keys();
  const GgufValue* const scaling = file.find(gguf_key_in(file, "rope.scaling.type"));
  SUBBYTE_TRY(const auto factor, gguf_number(file, "rope.scaling.factor"));
  const bool is_usual = !factor || *factor == 0 || *factor == 1;
  const auto type = scaling == nullptr
                        ? std::optional<std::string_view>(is_usual ? "none" : "linear")
                        : scaling->string();
  SUBBYTE_TRY(const auto few, gguf_floats(model, "rope_factors_short.weight"));
  SUBBYTE_TRY(const auto many, gguf_floats(model, "rope_factors_long.weight"));
  const bool is_of_lengths = type && (*type == "longrope" || *type == "su");
  if (few.empty() != many.empty() || (is_of_lengths && few.empty())) {
    return Error{"gguf.tensor", fmt::format("{}: expected tensors rope_factors_long.weight and "
                                            "rope_factors_short.weight, found {}",
                                            file.path().native(),
                                            few.size() == many.size() ? "neither" : "one of them")};
  }
  if (few.empty()) {
    SUBBYTE_TRY(const auto attention, gguf_number(file, "rope.scaling.attn_factor"));
    if (attention && *attention != 1) {
      return file.error(kCode, gguf_key_in(file, "rope.scaling.attn_factor"),
                        "1 without factors for long texts");
    }
  }
  if (type && (*type == "linear" || *type == "yarn")) {
    SUBBYTE_TRY(config["rope_scaling"], scaling_of(file, *type));
  } else if (!type || (*type != "none" && !is_of_lengths)) {
    return file.error(kCode, gguf_key_in(file, "rope.scaling.type"),
                      "\"none\", \"linear\", \"yarn\" or \"longrope\"");
  } else if (!few.empty()) {
    Value section = {
        {"rope_type", "longrope"}, {"short_factor", list_of(few)}, {"long_factor", list_of(many)}};
    SUBBYTE_TRY(const auto attention, gguf_number(file, "rope.scaling.attn_factor"));
    if (attention) section["attention_factor"] = *attention;
    config["rope_scaling"] = std::move(section);
    SUBBYTE_TRY(const auto original, gguf_integer(file, "rope.scaling.original_context_length"));
    if (original) config["original_max_position_embeddings"] = static_cast<uint64_t>(*original);
  }
  return {};
}

/// Layers that draft are counted, and not read.
Status leave_drafts_out(const GgufFile& file, Value& config) {
  SUBBYTE_TRY(const auto layers, gguf_integer(file, "block_count"));
  SUBBYTE_TRY(const auto drafts, gguf_integer(file, "nextn_predict_layers"));
  if (!drafts || *drafts == 0) return {};
  if (*drafts < 0 || *drafts >= *layers) {
    return file.error(kCode, gguf_key_in(file, "nextn_predict_layers"),
                      fmt::format("fewer than the {} of block_count", *layers));
  }
  config["num_hidden_layers"] = static_cast<uint64_t>(*layers - *drafts);
  return {};
}

/// Heads of latent attention have sizes of their own, which the family knows.
bool has_latents(const GgufFile& file) {
  return file.find(gguf_key_in(file, "attention.kv_lora_rank")) != nullptr;
}

/// Pairs turn by the first three positions, which are the same in a text; by the fourth none does.
Status check_sections(const GgufFile& file, int64_t pairs) {
  constexpr std::string_view kSections = "rope.dimension_sections";
  const GgufValue* const sections = file.find(gguf_key_in(file, kSections));
  if (sections == nullptr) return {};
  int64_t turning = 0;
  bool are_any = false;
  for (uint64_t i = 0; i < 4; ++i) {
    const bool is_there = !sections->is_array() || i < sections->size();
    const auto size = is_there ? sections->integer(sections->is_array() ? i : 0) : int64_t{0};
    if (!size) return file.error(kCode, gguf_key_in(file, kSections), "four whole numbers");
    are_any = are_any || *size != 0;
    if (i < 3) turning += std::clamp<int64_t>(*size, 0, std::max<int64_t>(pairs, 0));
  }
  if (!are_any || turning >= pairs) return {};
  return file.error(kCode, gguf_key_in(file, kSections),
                    fmt::format("three numbers that are {} together, as many pairs turn", pairs));
}

/// The part of a head that turns: all of it, whatever config.json's default is, where no key says
/// less.
Status add_rotary_part(const GgufFile& file, const ConfigDefaults& defaults, Value& config) {
  if (has_latents(file)) return {};
  SUBBYTE_TRY(const auto turning, gguf_integer(file, "rope.dimension_count"));
  SUBBYTE_TRY(const auto head, gguf_integer(file, "attention.key_length"));
  SUBBYTE_TRY(const auto width, gguf_integer(file, "embedding_length"));
  SUBBYTE_TRY(const auto heads, gguf_integer(file, "attention.head_count"));
  if (defaults.rotary_fraction != 1) config["partial_rotary_factor"] = 1.0;
  if (!width || !heads) return {};
  const int64_t size = head ? *head : *width / *heads;
  SUBBYTE_CHECK(check_sections(file, turning.value_or(size) / 2));
  if (!turning || *turning == size) return {};
  if (*turning < 1 || *turning > size) {
    return file.error(kCode, gguf_key_in(file, "rope.dimension_count"),
                      fmt::format("a part of a head of {}", size));
  }
  config["partial_rotary_factor"] = static_cast<double>(*turning) / static_cast<double>(size);
  return {};
}

/// Numbers that are divided by, or that others are counted by.
Status check_sizes(const GgufFile& file) {
  for (const std::string_view name : {"embedding_length", "block_count", "attention.head_count"}) {
    SUBBYTE_TRY(const auto number, gguf_integer(file, name));
    if (!number || *number < 1) {
      return file.error(kCode, gguf_key_in(file, name), "a number above 0");
    }
  }
  SUBBYTE_TRY(const auto keys, gguf_integer(file, "attention.key_length"));
  SUBBYTE_TRY(const auto values, gguf_integer(file, "attention.value_length"));
  if (keys && values && *keys != *values && !has_latents(file)) {
    return file.error(kCode, gguf_key_in(file, "attention.value_length"),
                      fmt::format("{}, the size of keys", *keys));
  }
  return {};
}

/// What llama.cpp has without these keys, where families have sizes of their own.
Status add_heads(const GgufFile& file, Value& config) {
  SUBBYTE_TRY(const auto width, gguf_integer(file, "embedding_length"));
  SUBBYTE_TRY(const auto heads, gguf_integer(file, "attention.head_count"));
  if (!config.contains("num_key_value_heads")) {
    config["num_key_value_heads"] = static_cast<uint64_t>(*heads);
  }
  if (!config.contains("head_dim") && *width % *heads == 0) {
    config["head_dim"] = static_cast<uint64_t>(*width / *heads);
  }
  return {};
}

/// The vocabulary is as large as the embedding, and so is the list of tokens.
Status add_vocabulary(const GgufModel& model, Value& config) {
  const GgufTensor* const table = model.find("token_embd.weight");
  if (table == nullptr || table->shape.size() != 2) {
    return Error{"gguf.tensor", fmt::format("{}: tensor token_embd.weight: expected a matrix",
                                            model.keys().path().native())};
  }
  config["vocab_size"] = table->shape[0];
  const GgufValue* const tokens = model.keys().find("tokenizer.ggml.tokens");
  if (tokens == nullptr || tokens->size() == table->shape[0]) return {};
  return model.keys().error(kCode, "tokenizer.ggml.tokens",
                            fmt::format("{} tokens, as the embedding has", table->shape[0]));
}

/// A head, and biases of some architectures, are seen by their tensors.
void add_what_is_there(const GgufModel& model, const GgufArchitecture& architecture,
                       Value& config) {
  config["tie_word_embeddings"] = model.find("output.weight") == nullptr;
  const auto rules = config_rules(architecture.model_type);
  for (const auto& [key, tensor] : architecture.biases) {
    const bool is_there = has_in_layers(model, fmt::format(".{}.bias", tensor));
    if (is_there || json::find_rule(rules, key) != nullptr) config[key] = is_there;
  }
}

/// A list says a number for each layer.
bool has_all_layers(const GgufFile& file, const GgufValue& value) {
  if (!value.is_array()) return true;
  const GgufValue* const layers = file.find(gguf_key_in(file, "block_count"));
  const auto count = layers == nullptr || layers->is_array() ? std::nullopt : layers->integer();
  return count && *count >= 0 && value.size() == static_cast<uint64_t>(*count);
}

}  // namespace

std::string gguf_key_in(const GgufFile& file, std::string_view name) {
  const GgufValue* const architecture = file.find(kArchitecture);
  const auto text = architecture == nullptr ? std::nullopt : architecture->string();
  return fmt::format("{}.{}", text.value_or(""), name);
}

Result<std::optional<int64_t>> gguf_integer(const GgufFile& file, std::string_view name) {
  const std::string full = gguf_key_in(file, name);
  const GgufValue* const value = file.find(full);
  if (value == nullptr) return std::optional<int64_t>();
  std::optional<int64_t> found = value->integer(0);
  bool are_same = found.has_value() && value->size() <= kMaxListed && has_all_layers(file, *value);
  for (uint64_t i = 1; are_same && i < value->size(); ++i) {
    const auto next = value->integer(i);
    if (found == 0) found = next;
    are_same = next == found || next == 0;
  }
  if (are_same && std::abs(*found) > kMaxWhole) return file.error(kCode, full, "up to 2^31 - 1");
  if (are_same) return found;
  return file.error(
      kCode, full,
      value->is_array() ? "the same number for each layer that has one" : "a whole number");
}

Result<std::optional<double>> gguf_number(const GgufFile& file, std::string_view name) {
  const std::string full = gguf_key_in(file, name);
  const GgufValue* const value = file.find(full);
  if (value == nullptr) return std::optional<double>();
  const auto first = value->number(0);
  bool are_same = first.has_value() && value->size() <= kMaxListed && has_all_layers(file, *value);
  for (uint64_t i = 1; are_same && i < value->size(); ++i) are_same = value->number(i) == first;
  if (are_same) return first;
  return file.error(kCode, full, value->is_array() ? "the same number for each layer" : "a number");
}

Result<Value> gguf_value(const GgufFile& file, std::string_view name) {
  const GgufValue& value = *file.find(gguf_key_in(file, name));
  if (const auto flag = value.is_array() ? std::nullopt : value.boolean()) return Value(*flag);
  if (const auto text = value.is_array() ? std::nullopt : value.string()) {
    return Value(std::string(*text));
  }
  if (value.integer(0)) {
    SUBBYTE_TRY(const auto number, gguf_integer(file, name));
    return *number < 0 ? Value(*number) : Value(static_cast<uint64_t>(*number));
  }
  SUBBYTE_TRY(const auto number, gguf_number(file, name));
  return Value(*number);
}

Result<std::vector<bool>> gguf_flags(const GgufFile& file, std::string_view name) {
  const std::string full = gguf_key_in(file, name);
  const GgufValue* const value = file.find(full);
  std::vector<bool> flags;
  if (value == nullptr) return flags;
  for (uint64_t i = 0; i < value->size() && value->size() <= kMaxListed; ++i) {
    const auto flag = value->boolean(i);
    if (flag) flags.push_back(*flag);
  }
  if (flags.size() == value->size()) return flags;
  return file.error(kCode, full, "true or false for each layer");
}

Result<std::vector<int64_t>> gguf_integers(const GgufFile& file, std::string_view name,
                                           uint64_t layers) {
  const std::string full = gguf_key_in(file, name);
  const GgufValue* const value = file.find(full);
  std::vector<int64_t> numbers;
  if (value == nullptr) return numbers;
  const bool is_list = value->is_array();
  const uint64_t count = layers > kMaxListed ? 0 : layers;
  for (uint64_t i = 0; i < count && (!is_list || i < value->size()); ++i) {
    const auto number = value->integer(is_list ? i : 0);
    if (number) numbers.push_back(*number);
  }
  if (numbers.size() == layers) return numbers;
  return file.error(kCode, full, fmt::format("a whole number for each of {} layers", layers));
}

Result<std::vector<float>> gguf_floats(const GgufModel& model, std::string_view name) {
  const GgufTensor* const tensor = model.find(name);
  if (tensor == nullptr) return std::vector<float>();
  std::vector<float> numbers(tensor->bytes.size() / sizeof(float));
  const bool is_list = tensor->type == 0 && tensor->shape.size() == 1;
  if (is_list) std::memcpy(numbers.data(), tensor->bytes.data(), tensor->bytes.size());
  const bool divide =
      std::ranges::all_of(numbers, [](float x) { return std::isfinite(x) && x > 0; });
  if (is_list && divide) return numbers;
  return Error{kCode, fmt::format("{}: tensor {}: expected a list of F32 above 0",
                                  model.keys().path().native(), quote_name(name))};
}

namespace {

/// Adds which layers slide, by a list of flags, or by the number of layers of which the last is
/// full. Without a window all are full.
Status add_gguf_windows(const GgufFile& file, Value& config) {
  const auto layers = config["num_hidden_layers"].get<uint64_t>();
  std::vector<bool> slides(layers, false);
  const Value& window = config.at("sliding_window");
  if (window.is_null() || window == Value(0)) {
    config["sliding_window"] = nullptr;
  } else {
    const GgufValue* const pattern = file.find(gguf_key_in(file, kPattern));
    if (pattern == nullptr) return {};
    if (pattern->is_array()) {
      SUBBYTE_TRY(slides, gguf_flags(file, kPattern));
    } else {
      SUBBYTE_TRY(const auto every, gguf_integer(file, kPattern));
      for (uint64_t i = 0; i < layers; ++i) {
        slides[i] = *every <= 0 || (i + 1) % static_cast<uint64_t>(*every) != 0;
      }
    }
    if (slides.size() < layers) {
      return file.error(kCode, gguf_key_in(file, kPattern), fmt::format("{} layers", layers));
    }
  }
  Value types = Value::array();
  for (uint64_t i = 0; i < layers; ++i) {
    types.push_back(slides[i] ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
  return {};
}

}  // namespace

Result<Value> gguf_config(const GgufModel& model, const GgufArchitecture& architecture,
                          std::vector<Error>* problems) {
  const GgufFile& file = model.keys();
  const ModelFamily& family = *find_family(architecture.model_type);
  const auto type =
      std::ranges::find(family.model_types, architecture.model_type, &ModelType::name);
  Value config = {{"architectures", Value::array({std::string(type->architecture)})},
                  {"model_type", std::string(architecture.model_type)},
                  {"dtype", "float32"}};
  std::optional<Error> first;
  const auto refuse = [&](Status status) -> Status {
    if (status.ok()) return status;
    if (!first) first = status.error();
    if (problems == nullptr) return status;
    problems->push_back(std::move(status).error());
    return {};
  };
  SUBBYTE_CHECK(check_gguf_keys(file, architecture, refuse));
  SUBBYTE_CHECK(refuse(add_vocabulary(model, config)));
  SUBBYTE_CHECK(refuse(add_rope(model, config)));
  // What follows divides and counts by the sizes.
  if (Status sizes = check_sizes(file); !sizes.ok()) {
    SUBBYTE_CHECK(refuse(std::move(sizes)));
    return *first;
  }
  SUBBYTE_CHECK(refuse(add_keys(model, architecture, architecture.keys, config)));
  SUBBYTE_CHECK(refuse(add_keys(model, architecture, shared_gguf_keys(), config)));
  SUBBYTE_CHECK(refuse(leave_drafts_out(file, config)));
  SUBBYTE_CHECK(refuse(add_heads(file, config)));
  SUBBYTE_CHECK(refuse(add_rotary_part(file, type->defaults, config)));
  add_what_is_there(model, architecture, config);
  if (first) return *first;
  const auto& keys = architecture.keys;
  if (std::ranges::find(keys, kPattern, &GgufKeyRule::name) != keys.end()) {
    SUBBYTE_CHECK(add_gguf_windows(file, config));
  }
  if (architecture.complete != nullptr) SUBBYTE_CHECK(architecture.complete(model, config));
  return config;
}

}  // namespace subbyte
