#include "models/gguf_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/quote.h"
#include "models/gguf_config.h"

namespace subbyte {
namespace {

using json::KeyRule;
using json::KeyUse;

constexpr std::string_view kOfArchitecture = "*.";
constexpr std::string_view kGating = "expert_gating_func";
constexpr int kSigmoids = 2;

constexpr GgufKeyRule kShared[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"rope.freq_base", "rope_theta", "10000.0"},
};

/// Of each row, names with blanks between them.
constexpr std::array kRules = {
#define SUBBYTE_GGUF_KEY(keys, use, neutral, note) KeyRule{keys, KeyUse::use, neutral},
#include "models/gguf_keys.def"
#undef SUBBYTE_GGUF_KEY
};

bool has_name(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    const std::string_view one = names.substr(0, end);
    if (one.ends_with('*') ? name.starts_with(one.substr(0, end - 1)) : name == one) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

/// The name after that of the architecture; empty where it is no key of one.
std::string_view after_architecture(std::string_view architecture, std::string_view name) {
  const bool is_of_it = name.size() > architecture.size() && name.starts_with(architecture) &&
                        name[architecture.size()] == '.';
  return is_of_it ? name.substr(architecture.size() + 1) : std::string_view();
}

/// Numbers are the same whether or not they are whole.
bool is_neutral(const KeyRule& rule, const json::Value& value) {
  if (!value.is_number()) return json::asks_for_nothing(rule, value);
  const json::Value list = json::parse("[" + std::string(rule.neutral) + "]", "neutral").value();
  return std::ranges::any_of(list, [&](const json::Value& neutral) {
    return neutral.is_number() && neutral.get<double>() == value.get<double>();
  });
}

/// The value of a key of no architecture; of anything but a number, a flag and an empty list its
/// description.
Result<json::Value> general_value(const GgufValue& value) {
  if (value.is_array() && value.size() == 0) return json::Value::array();
  if (value.is_array()) return json::Value(value.describe());
  if (const auto flag = value.boolean()) return json::Value(*flag);
  if (const auto number = value.number()) return json::Value(*number);
  return json::Value(value.describe());
}

Status check(const GgufFile& file, const GgufKey& key, std::string_view name, const KeyRule& rule) {
  if (rule.neutral.empty()) {
    return Error{"gguf.value",
                 fmt::format("{}: {}: not computed{}", file.path().native(), quote(key.name),
                             name.empty() ? "" : " for this architecture")};
  }
  SUBBYTE_TRY(const json::Value value,
              name.empty() ? general_value(key.value) : gguf_value(file, name));
  if (is_neutral(rule, value)) return {};
  std::string expected(rule.neutral);
  if (const std::size_t comma = expected.find(','); comma != expected.npos) {
    expected.replace(comma, 1, " or");
  }
  return file.error("gguf.value", key.name,
                    expected + ", as nothing else is computed for this architecture");
}

}  // namespace

std::span<const GgufKeyRule> shared_gguf_keys() {
  return kShared;
}

std::optional<KeyRule> find_gguf_key(const GgufArchitecture& architecture, std::string_view name) {
  const std::string_view rest = after_architecture(architecture.name, name);
  for (const std::span<const GgufKeyRule> known : {architecture.keys, shared_gguf_keys()}) {
    if (std::ranges::find(known, rest, &GgufKeyRule::name) == known.end()) continue;
    return KeyRule{name, KeyUse::kComputed, {}};
  }
  const std::string said =
      rest.empty() ? std::string(name) : std::string(kOfArchitecture) + std::string(rest);
  const auto found =
      std::ranges::find_if(kRules, [&](const KeyRule& rule) { return has_name(rule.key, said); });
  if (found == kRules.end()) return std::nullopt;
  return *found;
}

Status check_gguf_keys(const GgufFile& file, const GgufArchitecture& architecture,
                       const std::function<Status(Status)>& refuse) {
  for (const GgufKey& key : file.keys()) {
    auto rule = find_gguf_key(architecture, key.name);
    if (!rule || rule->use != KeyUse::kRefused) continue;
    if (architecture.gating == kSigmoids && key.name == architecture.key(kGating)) {
      rule->neutral = "0, 2";
    }
    Status status = check(file, key, after_architecture(architecture.name, key.name), *rule);
    if (!status.ok()) SUBBYTE_CHECK(refuse(std::move(status)));
  }
  return {};
}

std::vector<std::string> unknown_gguf_keys(const GgufFile& file) {
  std::vector<std::string> unknown;
  const auto architecture = gguf_architecture_of(file);
  if (!architecture.ok()) return unknown;
  for (const GgufKey& key : file.keys()) {
    if (!find_gguf_key(**architecture, key.name)) unknown.emplace_back(key.name);
  }
  return unknown;
}

}  // namespace subbyte
