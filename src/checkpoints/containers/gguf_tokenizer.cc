#include "checkpoints/containers/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/quote.h"
#include "checkpoints/containers/gguf_merges.h"
#include "checkpoints/containers/gguf_pre_tokenizers.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

using json::Value;

constexpr std::string_view kCode = "gguf.tokenizer";
constexpr std::string_view kPairs = "gpt2";
constexpr std::string_view kCharacters = "gemma4";  // pairs of characters, and not of bytes
constexpr std::string_view kKind = "tokenizer.ggml.model";
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::string_view kPre = "tokenizer.ggml.pre";
constexpr std::string_view kTemplate = "tokenizer.chat_template";
constexpr uint64_t kMaxTokens = 1 << 19;
constexpr uint64_t kMaxTexts = 1 << 24;  // bytes of all tokens, or merges; real ones have 4 MB
constexpr std::string_view kSpace = "\u2581";  // SentencePiece writes blanks so

enum class TokenType : uint8_t { kNormal = 1, kUnknown, kControl, kOfUser, kUnused, kByte };

/// What the keys of a tokenizer say, checked.
struct GgufTokenizer {
  std::string_view kind;
  std::vector<std::string_view> tokens;
  std::vector<TokenType> types;

  bool is_added(std::size_t i) const {
    return types[i] == TokenType::kControl || types[i] == TokenType::kOfUser;
  }
  /// Merges are listed, and do not follow from scores.
  bool has_merges() const { return kind != kSentencePiece; }
};

std::string text_of(std::string_view text) {
  return json::to_text(Value(std::string(text)));
}

/// A list of numbers as long as the tokens; nullptr where there is none.
Result<const GgufValue*> list_of_tokens(const GgufFile& file, std::string_view key, uint64_t size) {
  const GgufValue* const list = file.find(key);
  if (list == nullptr) return list;
  if (!list->is_array() || list->size() != size || !list->number(0)) {
    return file.error(kCode, key, fmt::format("{} numbers, one for each token", size));
  }
  return list;
}

/// Texts of a list, none of which is empty, are no more than a tokenizer has.
Status check_texts(const GgufFile& file, std::string_view key,
                   std::span<const std::string_view> texts) {
  uint64_t bytes = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    bytes += texts[i].size();
    if (!texts[i].empty()) continue;
    return Error{kCode, fmt::format("{}: {}[{}]: expected a text, found an empty one",
                                    file.path().native(), key, i)};
  }
  if (bytes <= kMaxTexts) return {};
  return Error{kCode, fmt::format("{}: {}: expected texts of at most {} bytes, found {}",
                                  file.path().native(), key, kMaxTexts, bytes)};
}

Status read_kind(const GgufFile& file, GgufTokenizer& result) {
  const GgufValue* const kind = file.find(kKind);
  const auto name = kind == nullptr ? std::nullopt : kind->string();
  if (!name || (*name != kPairs && *name != kSentencePiece && *name != kCharacters)) {
    return file.error(kCode, kKind,
                      fmt::format("{}, {} or {}, which are read", quote(kPairs),
                                  quote(kSentencePiece), quote(kCharacters)));
  }
  result.kind = *name;
  return {};
}

Status read_tokens(const GgufFile& file, GgufTokenizer& result) {
  const GgufValue* const tokens = file.find(kTokens);
  auto texts = tokens == nullptr || tokens->size() > kMaxTokens || tokens->size() == 0
                   ? std::nullopt
                   : tokens->strings();
  if (!texts) return file.error(kCode, kTokens, fmt::format("1 to {} texts", kMaxTokens));
  SUBBYTE_CHECK(check_texts(file, kTokens, *texts));
  result.tokens = *std::move(texts);
  result.types.assign(result.tokens.size(), TokenType::kNormal);
  return {};
}

Status read_types(const GgufFile& file, GgufTokenizer& result) {
  const std::size_t size = result.tokens.size();
  SUBBYTE_TRY(const GgufValue* const types, list_of_tokens(file, kTypes, size));
  for (std::size_t i = 0; types != nullptr && i < size; ++i) {
    const auto type = types->integer(i);
    if (!type || *type < 1 || *type > 6) {
      return Error{kCode, fmt::format("{}: {}[{}]: expected a type from 1 to 6, found {}",
                                      file.path().native(), kTypes, i, type.value_or(0))};
    }
    result.types[i] = static_cast<TokenType>(*type);
  }
  if (auto scores = list_of_tokens(file, kScores, size); !scores.ok()) return scores.error();
  return {};
}

Result<GgufTokenizer> read_tokenizer(const GgufFile& file) {
  GgufTokenizer result;
  SUBBYTE_CHECK(read_kind(file, result));
  SUBBYTE_CHECK(read_tokens(file, result));
  SUBBYTE_CHECK(read_types(file, result));
  return result;
}

/// The id that a key names, which is that of a token; nullopt without the key.
Result<std::optional<int64_t>> id_of(const GgufFile& file, std::string_view key, uint64_t size) {
  const GgufValue* const value = file.find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const auto id = value->is_array() ? std::nullopt : value->integer();
  if (!id || *id < 0 || static_cast<uint64_t>(*id) >= size) {
    return file.error(kCode, key, fmt::format("the id of a token, below {}", size));
  }
  return id;
}

Result<bool> flag(const GgufFile& file, std::string_view key, bool absent) {
  const GgufValue* const value = file.find(key);
  if (value == nullptr) return absent;
  if (const auto said = value->boolean()) return *said;
  return file.error(kCode, key, "true or false");
}

// ---- tokenizer.json

std::string split(std::string_view pattern) {
  return fmt::format(
      R"({{"type":"Split","pattern":{{"Regex":{}}},"behavior":"Isolated","invert":false}},)",
      text_of(pattern));
}

struct Parts {
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string decoder;
  std::string model;  // what is said of it before vocabulary and merges
  bool adds_begin = false;
};

Parts parts_of_bytes(const GgufPreTokenizer& known) {
  Parts parts;
  if (known.is_nfc) parts.normalizer = R"({"type":"NFC"})";
  parts.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[)";
  for (const std::string_view pattern : known.patterns) parts.pre_tokenizer += split(pattern);
  parts.pre_tokenizer +=
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";
  parts.decoder =
      R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
  parts.model = fmt::format(R"("ignore_merges":{})", known.ignore_merges);
  parts.adds_begin = known.adds_begin;
  return parts;
}

Result<Parts> parts_of_characters(const GgufFile& file, const GgufTokenizer& tokenizer) {
  SUBBYTE_TRY(const bool has_prefix,
              flag(file, "tokenizer.ggml.add_space_prefix", !tokenizer.has_merges()));
  Parts parts;
  parts.normalizer =
      fmt::format(R"({{"type":"Replace","pattern":{{"String":" "}},"content":"{}"}})", kSpace);
  if (has_prefix) {
    parts.normalizer = fmt::format(
        R"({{"type":"Sequence","normalizers":[{{"type":"Prepend","prepend":"{}"}},{}]}})", kSpace,
        parts.normalizer);
  }
  parts.decoder = fmt::format(
      R"({{"type":"Sequence","decoders":[{{"type":"Replace","pattern":{{"String":"{}"}},)"
      R"("content":" "}},{{"type":"ByteFallback"}},{{"type":"Fuse"}}{}]}})",
      kSpace, has_prefix ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : "");
  const auto unknown = std::ranges::find(tokenizer.types, TokenType::kUnknown);
  parts.model = R"("byte_fallback":true,"fuse_unk":true)";
  if (unknown != tokenizer.types.end()) {
    const auto id = static_cast<std::size_t>(unknown - tokenizer.types.begin());
    parts.model += R"(,"unk_token":)" + text_of(tokenizer.tokens[id]);
  }
  parts.adds_begin = tokenizer.kind != kPairs;
  return parts;
}

Result<Parts> parts_of(const GgufFile& file, const GgufTokenizer& tokenizer) {
  if (tokenizer.kind != kPairs) return parts_of_characters(file, tokenizer);
  const GgufValue* const pre = file.find(kPre);
  const auto name = pre == nullptr ? std::nullopt : pre->string();
  const GgufPreTokenizer* const known = name ? find_gguf_pre_tokenizer(*name) : nullptr;
  if (known == nullptr) {
    return file.error(kCode, kPre, "the name of a pre-tokenizer that is known (docs/gguf.md)");
  }
  if (known->of_characters) return parts_of_characters(file, tokenizer);
  return parts_of_bytes(*known);
}

/// The tokens that the template puts around a text.
Result<std::string> post_processor_of(const GgufFile& file, const GgufTokenizer& tokenizer,
                                      bool adds_begin) {
  std::string parts;
  std::string tokens;
  std::optional<int64_t> before;
  const auto add = [&](int64_t id) {
    const std::string text = text_of(tokenizer.tokens[static_cast<std::size_t>(id)]);
    parts += fmt::format(R"({}{{"SpecialToken":{{"id":{},"type_id":0}}}})",
                         parts.empty() ? "" : ",", text);
    if (before == id) return;
    before = id;
    tokens += fmt::format(R"({}{}:{{"id":{},"ids":[{}],"tokens":[{}]}})", tokens.empty() ? "" : ",",
                          text, text, id, text);
  };
  SUBBYTE_TRY(const bool said, flag(file, "tokenizer.ggml.add_bos_token", adds_begin));
  const bool begins = said || tokenizer.kind == kCharacters;  // first files of Gemma 4 were wrong
  SUBBYTE_TRY(const bool ends, flag(file, "tokenizer.ggml.add_eos_token", false));
  if (!begins && !ends) return std::string("null");
  const auto required = [&](std::string_view key) -> Result<int64_t> {
    SUBBYTE_TRY(const auto id, id_of(file, key, tokenizer.tokens.size()));
    if (id) return *id;
    return file.error(kCode, key, "the id of the token that is put around texts");
  };
  if (begins) {
    SUBBYTE_TRY(const int64_t id, required("tokenizer.ggml.bos_token_id"));
    add(id);
  }
  parts += fmt::format(R"({}{{"Sequence":{{"id":"A","type_id":0}}}})", parts.empty() ? "" : ",");
  if (ends) {
    SUBBYTE_TRY(const int64_t id, required("tokenizer.ggml.eos_token_id"));
    add(id);
  }
  return fmt::format(R"({{"type":"TemplateProcessing","single":[{}],"pair":[],)"
                     R"("special_tokens":{{{}}}}})",
                     parts, tokens);
}

Result<std::string> listed_merges(const GgufFile& file) {
  const GgufValue* const list = file.find(kMerges);
  const auto merges = list == nullptr ? std::nullopt : list->strings();
  if (!merges || merges->size() > kMaxTokens) {
    return file.error(kCode, kMerges, fmt::format("at most {} texts", kMaxTokens));
  }
  SUBBYTE_CHECK(check_texts(file, kMerges, *merges));
  std::vector<std::string_view> sorted = *merges;
  std::ranges::sort(sorted);
  if (const auto twin = std::ranges::adjacent_find(sorted); twin != sorted.end()) {
    return Error{kCode, fmt::format("{}: {}: {} appears twice", file.path().native(), kMerges,
                                    quote_name(*twin))};
  }
  std::string text;
  for (const std::string_view merge : *merges) {
    text += text.empty() ? "" : ",";
    text += text_of(merge);
  }
  return text;
}

Result<std::string> merges_by_scores(const GgufFile& file, const GgufTokenizer& tokenizer) {
  SUBBYTE_TRY(const GgufValue* const list, list_of_tokens(file, kScores, tokenizer.tokens.size()));
  if (list == nullptr) return file.error(kCode, kScores, "a number for each token");
  std::vector<float> scores(tokenizer.tokens.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] = static_cast<float>(list->number(i).value_or(0));
  }
  const auto merges = merges_of_scores(tokenizer.tokens, scores);
  if (!merges.ok()) {
    return Error{kCode, fmt::format("{}: {}", file.path().native(), merges.error().message)};
  }
  std::string text;
  for (const auto& [left, right] : *merges) {
    text += fmt::format("{}[{},{}]", text.empty() ? "" : ",", text_of(left), text_of(right));
  }
  return text;
}

/// Tokens that merges may make. Of byte pair encoding added ones are none of them, and unused ones
/// are ids without a token.
std::string vocabulary_of(const GgufTokenizer& tokenizer) {
  std::string text;
  for (std::size_t i = 0; i < tokenizer.tokens.size(); ++i) {
    const bool is_left = tokenizer.is_added(i) || tokenizer.types[i] == TokenType::kUnused;
    if (is_left && tokenizer.has_merges()) continue;
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", text_of(tokenizer.tokens[i]), i);
  }
  return text;
}

std::string added_tokens_of(const GgufTokenizer& tokenizer) {
  std::string text;
  for (std::size_t i = 0; i < tokenizer.tokens.size(); ++i) {
    const bool is_unknown = tokenizer.types[i] == TokenType::kUnknown;
    if (!tokenizer.is_added(i) && !is_unknown) continue;
    const bool is_text = tokenizer.types[i] == TokenType::kOfUser;
    text += fmt::format(R"({}{{"id":{},"content":{},"single_word":false,"lstrip":false,)"
                        R"("rstrip":false,"normalized":false,"special":{}}})",
                        text.empty() ? "" : ",", i, text_of(tokenizer.tokens[i]), !is_text);
  }
  return text;
}

// ---- the files beside it

constexpr std::string_view kIds[] = {
    "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id"};

/// Added tokens that end a text by their names: files say one of several.
constexpr std::string_view kEnds[] = {"<|endoftext|>",
                                      "<|im_end|>",
                                      "<|eot_id|>",
                                      "<|eom_id|>",
                                      "<|end_of_text|>",
                                      "<|end|>",
                                      "<|return|>",
                                      "<end_of_turn>",
                                      "<|call|>",
                                      "<|user|>",
                                      "<|observation|>",
                                      "<turn|>",
                                      "<|tool_response>",
                                      "[EOT]",
                                      "[EOS]",
                                      "[e~[",
                                      "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};

bool is_end_by_name(std::string_view text, const GgufTokenizer& tokenizer) {
  const auto has = [](const auto& list, std::string_view token) {
    return std::ranges::find(list, token) != std::ranges::end(list);
  };
  // In the format of gpt-oss a message ends, and the answer goes on.
  return has(kEnds, text) && (text != "<|end|>" || !has(tokenizer.tokens, "<|return|>"));
}

/// The templates by names, the first that of the key without one.
Result<Value> templates_of(const GgufFile& file) {
  Value list = Value::array();
  for (const GgufKey& key : file.keys()) {
    if (!key.name.starts_with(kTemplate) || key.name == "tokenizer.chat_templates") continue;
    const std::string_view rest = key.name.substr(kTemplate.size());
    if (!rest.empty() && !rest.starts_with('.')) continue;
    const auto text = key.value.string();
    if (!text) return file.error(kCode, key.name, "a text");
    const std::string name = rest.empty() ? "default" : std::string(rest.substr(1));
    list.push_back({{"name", name}, {"template", std::string(*text)}});
  }
  return list;
}

}  // namespace

bool has_gguf_tokenizer(const GgufFile& file) {
  return file.find(kKind) != nullptr;
}

Result<std::string> gguf_tokenizer_json(const GgufFile& file) {
  SUBBYTE_TRY(const GgufTokenizer tokenizer, read_tokenizer(file));
  SUBBYTE_TRY(const Parts parts, parts_of(file, tokenizer));
  SUBBYTE_TRY(const std::string around, post_processor_of(file, tokenizer, parts.adds_begin));
  SUBBYTE_TRY(const std::string merges,
              tokenizer.has_merges() ? listed_merges(file) : merges_by_scores(file, tokenizer));
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{}],"normalizer":{},)"
      R"("pre_tokenizer":{},"post_processor":{},"decoder":{},"model":{{"type":"BPE",{},)"
      R"("vocab":{{{}}},"merges":[{}]}}}})",
      added_tokens_of(tokenizer), parts.normalizer, parts.pre_tokenizer, around, parts.decoder,
      parts.model, vocabulary_of(tokenizer), merges);
}

namespace {

/// A token for each row of the embedding.
Status check_vocabulary(const GgufModel& model) {
  const GgufFile& file = model.keys();
  const GgufTensor* const table = model.find("token_embd.weight");
  const GgufValue* const tokens = file.find(kTokens);
  const bool fits = table == nullptr || tokens == nullptr || table->shape.size() != 2 ||
                    table->shape.front() == tokens->size();
  if (fits) return {};
  return file.error(
      kCode, kTokens,
      fmt::format("a text for each of {} rows of token_embd.weight", table->shape.front()));
}

}  // namespace

Result<std::string> gguf_tokenizer_json(const GgufModel& model) {
  SUBBYTE_CHECK(check_vocabulary(model));
  return gguf_tokenizer_json(model.keys());
}

std::vector<Error> gguf_tokenizer_problems(const GgufModel& model) {
  const GgufFile& file = model.keys();
  std::vector<Error> problems;
  const auto add = [&](const auto& result) {
    const auto is_it = [&](const Error& problem) {
      return problem.message == result.error().message;
    };
    if (!result.ok() && std::ranges::none_of(problems, is_it)) problems.push_back(result.error());
    return result.ok();
  };
  GgufTokenizer tokenizer;
  const bool has_kind = add(read_kind(file, tokenizer));
  const bool has_tokens = add(read_tokens(file, tokenizer));
  if (has_tokens) add(check_vocabulary(model));
  const bool has_types = has_tokens && add(read_types(file, tokenizer));
  if (has_kind) add(parts_of(file, tokenizer));
  if (has_tokens) {
    add(post_processor_of(file, tokenizer, false));
    for (const std::string_view key : kIds) add(id_of(file, key, tokenizer.tokens.size()));
  }
  if (has_kind && tokenizer.has_merges()) add(listed_merges(file));
  if (has_kind && has_types && !tokenizer.has_merges()) add(merges_by_scores(file, tokenizer));
  add(templates_of(file));
  return problems;
}

Result<std::string> gguf_tokenizer_config(const GgufFile& file) {
  SUBBYTE_TRY(const GgufTokenizer tokenizer, read_tokenizer(file));
  Value config = Value::object();
  constexpr std::pair<const char*, std::string_view> kNames[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"}};
  for (const auto& [name, key] : kNames) {
    SUBBYTE_TRY(const auto id, id_of(file, key, tokenizer.tokens.size()));
    if (!id) continue;
    const auto i = static_cast<std::size_t>(*id);
    // An id without a token names none.
    if (tokenizer.has_merges() && tokenizer.types[i] == TokenType::kUnused) continue;
    config[name] = std::string(tokenizer.tokens[i]);
  }
  SUBBYTE_TRY(const Value templates, templates_of(file));
  if (templates.size() == 1 && templates[0]["name"] == "default") {
    config["chat_template"] = templates[0]["template"];
  } else if (templates.size() > 0) {
    config["chat_template"] = templates;
  }
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return json::to_text(config);
}

Result<std::string> gguf_generation_config(const GgufFile& file) {
  Value config = Value::object();
  if (has_gguf_tokenizer(file)) {
    SUBBYTE_TRY(const GgufTokenizer tokenizer, read_tokenizer(file));
    std::vector<int64_t> ends;
    const auto add = [&](int64_t id) {
      if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
    };
    for (const std::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"}) {
      SUBBYTE_TRY(const auto id, id_of(file, key, tokenizer.tokens.size()));
      if (id) add(*id);
    }
    for (std::size_t i = 0; i < tokenizer.tokens.size(); ++i) {
      if (tokenizer.is_added(i) && is_end_by_name(tokenizer.tokens[i], tokenizer)) {
        add(static_cast<int64_t>(i));
      }
    }
    Value ids = Value::array();
    for (const int64_t id : ends) ids.push_back(static_cast<uint64_t>(id));
    if (ids.size() > 0) config["eos_token_id"] = std::move(ids);
  }
  constexpr std::pair<const char*, std::string_view> kSampling[] = {
      {"temperature", "general.sampling.temp"},
      {"top_k", "general.sampling.top_k"},
      {"top_p", "general.sampling.top_p"},
      {"min_p", "general.sampling.min_p"},
      {"repetition_penalty", "general.sampling.penalty_repeat"}};
  for (const auto& [name, key] : kSampling) {
    const GgufValue* const value = file.find(key);
    if (value == nullptr) continue;
    const auto number = value->is_array() ? std::nullopt : value->number();
    if (!number) return file.error("gguf.value", key, "a number");
    const auto whole = value->integer();
    config[name] = whole ? Value(*whole) : Value(*number);
  }
  return json::to_text(config);
}

}  // namespace subbyte
