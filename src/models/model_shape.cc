#include "models/model_shape.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "json/key_rules.h"
#include "models/model_family.h"

namespace subbyte {
namespace {

constexpr std::string_view kNone = "$none";
constexpr std::string_view kLetters = "$letters ";
constexpr std::string_view kEach = "$each ";

constexpr std::pair<std::string_view, int64_t ModelShape::*> kNumbers[] = {
    {"layers", &ModelShape::layers},
    {"hidden", &ModelShape::hidden},
    {"intermediate", &ModelShape::intermediate},
    {"head_dim", &ModelShape::head_dim},
    {"window", &ModelShape::window},
    {"vocabulary", &ModelShape::vocabulary},
    {"positions", &ModelShape::positions},
    {"experts", &ModelShape::experts},
    {"per_token", &ModelShape::per_token},
    {"expert_size", &ModelShape::expert_size},
};

/// "hidden/2" of a shape.
int64_t number_of(std::string_view text, const ModelShape& shape) {
  const std::size_t end = std::min(text.find_first_of("*/-"), text.size());
  const auto field =
      std::ranges::find(kNumbers, text.substr(0, end), [](const auto& each) { return each.first; });
  const int64_t number = shape.*field->second;
  if (end == text.size()) return number;
  int64_t by = 1;
  std::from_chars(text.data() + end + 1, text.data() + text.size(), by);
  if (text[end] == '*') return number * by;
  return text[end] == '/' ? number / by : std::max<int64_t>(number - by, 0);
}

/// What letters stand for in layer_types.
constexpr std::pair<char, std::string_view> kWords[] = {{'s', "sliding_attention"},
                                                        {'f', "full_attention"},
                                                        {'l', "linear_attention"},
                                                        {'c', "conv"},
                                                        {'m', "mamba"},
                                                        {'a', "attention"}};

/// A value of ShapeKeys, as config.json has it.
json::Value written(const json::Value& value, const ModelShape& shape) {
  const std::string_view text = value.string();
  if (!text.starts_with('$') || text == kNone) return value;
  const bool is_string = text.starts_with(kLetters);
  if (!is_string && !text.starts_with(kEach)) return number_of(text.substr(1), shape);
  const std::string_view letters = text.substr((is_string ? kLetters : kEach).size());
  std::string all;
  json::Value words = json::Value::array();
  for (int64_t i = 0; i < shape.layers; ++i) {
    all += letters[i % std::ssize(letters)];
    const auto word =
        std::ranges::find(kWords, all.back(), &std::pair<char, std::string_view>::first);
    if (!is_string) words.push_back(word->second);
  }
  return is_string ? json::Value(all) : words;
}

/// Those that most models have.
json::Value usual_config(const ModelType& type, const ModelShape& shape) {
  json::Value config = {{"architectures", json::Value::array({type.architecture})},
                        {"attention_bias", false},
                        {"attention_dropout", 0.0},
                        {"head_dim", shape.head_dim},
                        {"hidden_act", "silu"},
                        {"hidden_size", shape.hidden},
                        {"initializer_range", 0.02},
                        {"intermediate_size", shape.intermediate},
                        {"max_position_embeddings", shape.positions},
                        {"model_type", type.name},
                        {"num_attention_heads", shape.heads},
                        {"num_hidden_layers", shape.layers},
                        {"num_key_value_heads", shape.kv_heads},
                        {"rms_norm_eps", type.defaults.rms_norm_eps},
                        {"tie_word_embeddings", shape.tied},
                        {"use_cache", true},
                        {"vocab_size", shape.vocabulary}};
  if (shape.per_token > 0) config["num_experts_per_tok"] = shape.per_token;
  if (shape.expert_size > 0) config["moe_intermediate_size"] = shape.expert_size;
  return config;
}

}  // namespace

json::Value shape_config(const ModelFamily& family, const ModelShape& shape, int64_t layers) {
  ModelShape cut = shape;
  cut.layers = layers;
  json::Value own = json::Value::object();
  for (const ShapeKeys& row : family.shape_keys) {
    if ((!row.arch.empty() && row.arch != shape.arch) || !json::is_in(row.names, shape.name))
      continue;
    const json::Value keys = json::parse(row.keys, "keys of a shape").value();
    for (const auto& [key, value] : keys.items()) own[key] = written(value, cut);
  }
  const std::string name = own.contains("model_type") ? own["model_type"].get<std::string>()
                                                      : std::string(family.model_types[0].name);
  json::Value config =
      usual_config(*std::ranges::find(family.model_types, name, &ModelType::name), cut);
  for (const auto& [key, value] : own.items()) {
    if (value == json::Value(kNone)) {
      config.erase(key);
    } else {
      config[key] = value;
    }
  }
  return config;
}

}  // namespace subbyte
