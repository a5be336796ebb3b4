#include "text/tokenizer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <set>

#include "base/quote.h"

namespace subbyte {
namespace {

using json::KeyUse;
using json::Object;
using json::Value;

constexpr std::string_view kConfig = "tokenizer_config.json";
constexpr std::string_view kSpecialMap = "special_tokens_map.json";
constexpr std::string_view kAdded = "added_tokens.json";
constexpr std::string_view kDecoder = "added_tokens_decoder";

constexpr std::array kRules = {
#define SUBBYTE_KEY(key, use, neutral, note) json::KeyRule{key, KeyUse::use, neutral},
#include "text/tokenizer_config_keys.def"
#undef SUBBYTE_KEY
};

/// A file that may not be there. Messages have its name alone.
Result<SideFile> read_file(const SideFiles& files, std::string_view name) {
  if (!files.has(name)) return SideFile{Value::object(), std::string(name)};
  SUBBYTE_TRY(SideFile file, files.read(name));
  file.where = name;
  return file;
}

/// What is not said of a token follows from whether it is special, as in `tokenizers`.
Result<AddedToken> read_token(const Object& object, bool is_special) {
  AddedToken token{};
  SUBBYTE_TRY(token.content, object.required_string("content"));
  SUBBYTE_TRY(const auto special, object.boolean("special"));
  SUBBYTE_TRY(const auto normalized, object.boolean("normalized"));
  SUBBYTE_TRY(const auto single_word, object.boolean("single_word"));
  SUBBYTE_TRY(const auto lstrip, object.boolean("lstrip"));
  SUBBYTE_TRY(const auto rstrip, object.boolean("rstrip"));
  token.special = is_special || special.value_or(false);
  token.normalized = normalized.value_or(!token.special);
  token.single_word = single_word.value_or(false);
  token.lstrip = lstrip.value_or(false);
  token.rstrip = rstrip.value_or(false);
  return token;
}

std::optional<TokenId> parse_id(std::string_view text) {
  TokenId id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool is_id = error == std::errc() && end == text.data() + text.size() && id >= 0;
  return is_id ? std::optional(id) : std::nullopt;
}

/// {"258": {"content": "<|im_end|>", "special": true, ...}}
Status read_decoder(const Object& config, TokenizerConfig& result) {
  SUBBYTE_TRY(const auto decoder, config.object(kDecoder));
  if (!decoder) return {};
  for (const auto& [key, value] : decoder->members()) {
    const auto id = parse_id(key);
    if (!id) return decoder->error("json.range", key, "a token id as the name of a token");
    const std::string where = fmt::format("{}.{}", decoder->where(), key);
    SUBBYTE_TRY(const Object object, Object::of(value, where));
    SUBBYTE_TRY(AddedToken token, read_token(object, false));
    token.id = *id;
    result.tokens.push_back({id, std::move(token), where});
  }
  std::ranges::stable_sort(result.tokens, {}, &SideToken::id);
  return {};
}

/// {"<|im_end|>": 258}
Status read_added(const Object& added, TokenizerConfig& result) {
  for (const auto& [content, value] : added.members()) {
    SUBBYTE_TRY(const auto id, added.integer(content, 0, std::numeric_limits<TokenId>::max()));
    if (!id) return added.error("json.type", content, "a token id");
    // Special where another file names it.
    const AddedToken token = {static_cast<TokenId>(*id), content, false, false, false, true, false};
    result.tokens.push_back(
        {token.id, token, fmt::format("{}: {}", added.where(), quote(content, 40))});
  }
  std::ranges::stable_sort(result.tokens, {}, &SideToken::id);
  return {};
}

/// A text, or {"content": text, ...}.
Status read_named(const Object& object, const std::string& key, const Value& value,
                  TokenizerConfig& result) {
  const std::string where = fmt::format("{}: {}", object.where(), key);
  AddedToken token{};
  token.special = true;
  if (value.is_string()) {
    token.content = value.get<std::string>();
  } else {
    SUBBYTE_TRY(const Object described, Object::of(value, where));
    SUBBYTE_TRY(token, read_token(described, true));
  }
  if (key == "eos_token") result.eos_token = token.content;
  if (!token.content.empty()) result.tokens.push_back({std::nullopt, std::move(token), where});
  return {};
}

/// Whether a key of another name than the reference knows names a token: in special_tokens_map.json
/// that may be an object, in tokenizer_config.json only one that says that it is a token.
bool names_token(const std::string& key, const Value& value, bool is_map) {
  if (!key.ends_with("_token") || json::find_rule(kRules, key) != nullptr) return false;
  return value.is_string() || (value.is_object() && (is_map || is_written_token(value)));
}

/// Keys that name tokens, and lists and sections of tokens. `map`: special_tokens_map.json where it
/// counts; its keys come before those of tokenizer_config.json.
Status read_special(const Object& object, const Object* map, TokenizerConfig& result) {
  const bool is_map = &object == map;
  for (const auto& [key, value] : object.members()) {
    const bool is_hidden =
        map != nullptr && !is_map && key != "extra_special_tokens" && map->find(key) != nullptr;
    if (value.is_null() || is_hidden) continue;
    const bool is_section = key == "model_specific_special_tokens";
    if (is_special_token_name(key)) {
      if (!value.is_string() && !value.is_object()) {
        return object.error("json.type", key, "a token: a text, or an object with its content");
      }
      SUBBYTE_CHECK(read_named(object, key, value, result));
    } else if (key == "additional_special_tokens" || key == "extra_special_tokens" || is_section) {
      if (!value.is_object() && (is_section || !value.is_array())) {
        return object.error("json.type", key, is_section ? "tokens by names" : "a list of tokens");
      }
      for (const Value& token : value) SUBBYTE_CHECK(read_named(object, key, token, result));
      for (const auto& [name, token] : value.items()) {
        SUBBYTE_CHECK(read_named(object, key, token, result));
      }
    } else if (names_token(key, value, is_map)) {
      SUBBYTE_CHECK(read_named(object, key, value, result));
    }
  }
  return {};
}

/// Tokens of added_tokens.json are special where something names them.
void mark_special(std::vector<SideToken>& tokens) {
  std::set<std::string_view> named;
  for (const SideToken& token : tokens) {
    if (!token.id) named.insert(token.token.content);
  }
  for (SideToken& token : tokens) {
    if (!token.id) continue;
    token.token.special = named.contains(token.token.content);
    token.token.normalized = !token.token.special;
  }
}

/// Whether a version of transformers comes before 5.0.0. None is one of before, too.
bool is_before_5(const Value& version) {
  if (!version.is_string()) return true;
  const auto& text = version.string();
  int major = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), major);
  if (error != std::errc() || major != 5) return major < 5;
  constexpr std::string_view kFirst = "5.0.0";
  return text.starts_with(kFirst) && text.find_first_of("abcr.", kFirst.size()) == kFirst.size();
}

/// GPTQModel writes "fix_mistral_regex": true into every file. In transformers it does nothing but
/// for the families that once had a wrong pattern, whose files are from before version 5.
Result<bool> has_mistral_pattern(const Object& config, const SideFiles& files) {
  SUBBYTE_TRY(const auto flag, config.boolean("fix_mistral_regex"));
  if (!flag.value_or(false) || !files.has(kConfigFile)) return false;
  SUBBYTE_TRY(const SideFile model, files.read(kConfigFile));
  constexpr std::array<std::string_view, 5> kConcerned = {"mistral", "mistral3", "voxtral",
                                                          "ministral", "pixtral"};
  if (!model.value.is_object()) return false;
  const Value type = model.value.at("model_type");
  const bool is_concerned =
      !type.is_string() || std::ranges::find(kConcerned, type.string()) != kConcerned.end();
  return is_concerned && is_before_5(model.value.at("transformers_version"));
}

/// Beside added_tokens_decoder the map adds no token; it names the one of end where nothing else
/// does.
Status read_end_of_map(const Object& config, const SideFiles& files, TokenizerConfig& result) {
  if (config.has("eos_token")) return {};
  SUBBYTE_TRY(const SideFile map, read_file(files, kSpecialMap));
  SUBBYTE_TRY(const Object special, map.object());
  const Value* end = special.find("eos_token");
  if (end != nullptr && end->is_object()) end = end->contains("content") ? &(*end)["content"] : end;
  if (end != nullptr && end->is_string()) result.eos_token = end->get<std::string>();
  return {};
}

}  // namespace

bool is_special_token_name(std::string_view key) {
  constexpr std::array<std::string_view, 7> kNames = {
      "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
  return std::ranges::find(kNames, key) != kNames.end();
}

bool is_written_token(const Value& value) {
  return value.is_object() && value.at("__type") == "AddedToken";
}

std::span<const json::KeyRule> tokenizer_config_rules() {
  return kRules;
}

Result<TokenizerConfig> read_tokenizer_config(const SideFiles& files) {
  TokenizerConfig result;
  SUBBYTE_TRY(const SideFile config, read_file(files, kConfig));
  SUBBYTE_TRY(const Object object, config.object());
  SUBBYTE_CHECK(json::check_keys(object, kRules, "tokenizer.unsupported"));
  SUBBYTE_TRY(result.has_mistral_pattern, has_mistral_pattern(object, files));
  SUBBYTE_TRY(const auto adds_prefix, object.boolean("add_prefix_space"));
  result.adds_prefix = adds_prefix.value_or(false);
  if (object.has(kDecoder)) {
    SUBBYTE_CHECK(read_decoder(object, result));
    SUBBYTE_CHECK(read_special(object, nullptr, result));
    SUBBYTE_CHECK(read_end_of_map(object, files, result));
    return result;
  }
  SUBBYTE_TRY(const SideFile special_map, read_file(files, kSpecialMap));
  SUBBYTE_TRY(const Object special, special_map.object());
  SUBBYTE_TRY(const SideFile added_file, read_file(files, kAdded));
  SUBBYTE_TRY(const Object added, added_file.object());
  SUBBYTE_CHECK(read_added(added, result));
  SUBBYTE_CHECK(read_special(object, &special, result));
  SUBBYTE_CHECK(read_special(special, &special, result));
  mark_special(result.tokens);
  return result;
}

}  // namespace subbyte
