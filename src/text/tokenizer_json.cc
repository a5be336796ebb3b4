// The parts of the file:
//
//   normalizer       null | NFC                          checked in read_pipeline
//   pre_tokenizer    Split(Regex, Isolated)* ByteLevel
//   post_processor   nothing that adds tokens
//   decoder          ByteLevel
//   model            BPE: vocab {key: id}, merges        checked in read_model
//   added_tokens     [{id, content, ...}]                checked in read_added_tokens
//
// truncation and padding are ignored: they belong to the training run that saved the file.

#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/quote.h"
#include "json/strict_json.h"
#include "text/byte_alphabet.h"
#include "text/nfc.h"
#include "text/utf8.h"

namespace subbyte {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;
// Merges of real files have some ten bytes, and a value in memory of 140 at its largest moment.
constexpr std::size_t kMemoryFactor = 64;

using Ids = std::unordered_map<std::string_view, TokenId>;

std::string shown(std::string_view text) {
  return quote(text, 40);
}

Error unsupported(std::string_view where, std::string_view what) {
  return {"tokenizer.unsupported", fmt::format("{}: {} is not supported", where, what)};
}

Error wrong_type(std::string_view where, std::string_view expected, const json::Value& found) {
  return {"json.type",
          fmt::format("{}: expected {}, found {}", where, expected, found.type_name())};
}

/// A type name, or "" when the value is null or absent.
Result<std::string> type_of(const json::Object& parent, std::string_view key) {
  SUBBYTE_TRY(const auto object, parent.object(key));
  if (!object) return std::string();
  return object->required_string("type");
}

/// Refuses a boolean that is true, or a string that is not empty.
Status refuse_true(const json::Object& object, std::string_view key) {
  SUBBYTE_TRY(const auto flag, object.boolean(key));
  if (flag.value_or(false)) return unsupported(object.where(), fmt::format("{}: true", key));
  return {};
}

Status refuse_text(const json::Object& object, std::string_view key) {
  SUBBYTE_TRY(const auto text, object.string(key));
  if (text && !text->empty()) return unsupported(object.where(), fmt::format("a {}", key));
  return {};
}

/// The array `key` of `object`, nullptr when it is absent or null.
Result<const json::Value*> array_of(const json::Object& object, std::string_view key) {
  const json::Value* value = object.has(key) ? object.find(key) : nullptr;
  if (value != nullptr && !value->is_array()) {
    return wrong_type(fmt::format("{}: {}", object.where(), key), "an array", *value);
  }
  return value;
}

// ---- normalizer, pre_tokenizer, post_processor, decoder

Status read_split(const json::Object& split, TokenizerSpec& spec) {
  SUBBYTE_TRY(const std::string behavior, split.required_string("behavior"));
  if (behavior != "Isolated") {
    return unsupported(split.where(), fmt::format("behavior {}", shown(behavior)));
  }
  SUBBYTE_CHECK(refuse_true(split, "invert"));
  SUBBYTE_TRY(const auto pattern, split.object("pattern"));
  if (!pattern || !pattern->has("Regex")) {
    return unsupported(split.where(), "a pattern other than a Regex");
  }
  SUBBYTE_TRY(std::string regex, pattern->required_string("Regex"));
  spec.patterns.push_back(std::move(regex));
  return {};
}

Status read_byte_level(const json::Object& level, TokenizerSpec& spec) {
  SUBBYTE_CHECK(refuse_true(level, "add_prefix_space"));
  SUBBYTE_TRY(const auto use_regex, level.boolean("use_regex"));
  if (use_regex.value_or(true)) {  // the pattern of GPT-2
    spec.patterns.emplace_back(
        R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  }
  return {};
}

/// ByteLevel must come last and once: what follows it would see the alphabet instead of the text.
Status read_pre_tokenizer(const json::Object& root, TokenizerSpec& spec) {
  SUBBYTE_TRY(const std::string type, type_of(root, "pre_tokenizer"));
  SUBBYTE_TRY(const auto object, root.object("pre_tokenizer"));
  if (type == "ByteLevel") return read_byte_level(*object, spec);
  const std::string where = root.where() + ": pre_tokenizer";
  if (type != "Sequence") return unsupported(where, type.empty() ? "null" : shown(type));
  SUBBYTE_TRY(const json::Value* list, array_of(*object, "pretokenizers"));
  if (list == nullptr || list->empty()) return unsupported(where, "an empty sequence");
  for (std::size_t i = 0; i < list->size(); ++i) {
    SUBBYTE_TRY(const auto part, json::Object::of((*list)[i], fmt::format("{}[{}]", where, i)));
    SUBBYTE_TRY(const std::string part_type, part.required_string("type"));
    const bool last = i + 1 == list->size();
    if (part_type == "Split" && !last) {
      SUBBYTE_CHECK(read_split(part, spec));
    } else if (part_type == "ByteLevel" && last) {
      SUBBYTE_CHECK(read_byte_level(part, spec));
    } else {
      return unsupported(part.where(), fmt::format("{} at this place", shown(part_type)));
    }
  }
  return {};
}

/// TemplateProcessing that only repeats the text: "single" is one Sequence.
Status check_template(const json::Object& processor) {
  SUBBYTE_TRY(const json::Value* single, array_of(processor, "single"));
  const bool adds_nothing = single != nullptr && single->size() == 1 && (*single)[0].is_object() &&
                            (*single)[0].contains("Sequence");
  if (!adds_nothing) return unsupported(processor.where(), "a template that adds tokens");
  return {};
}

Status check_processor(const json::Object& processor) {
  SUBBYTE_TRY(const std::string type, processor.required_string("type"));
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return check_template(processor);
  return unsupported(processor.where(), shown(type));
}

Status check_post_processor(const json::Object& root) {
  SUBBYTE_TRY(const std::string type, type_of(root, "post_processor"));
  if (type.empty()) return {};
  SUBBYTE_TRY(const auto object, root.object("post_processor"));
  if (type != "Sequence") return check_processor(*object);
  SUBBYTE_TRY(const json::Value* list, array_of(*object, "processors"));
  if (list == nullptr) return {};
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("{}: post_processor[{}]", root.where(), i);
    SUBBYTE_TRY(const auto part, json::Object::of((*list)[i], where));
    SUBBYTE_CHECK(check_processor(part));
  }
  return {};
}

Status read_pipeline(const json::Object& root, TokenizerSpec& spec) {
  SUBBYTE_TRY(const std::string normalizer, type_of(root, "normalizer"));
  if (!normalizer.empty() && normalizer != "NFC") {
    return unsupported(root.where() + ": normalizer", shown(normalizer));
  }
  spec.nfc = normalizer == "NFC";
  SUBBYTE_CHECK(read_pre_tokenizer(root, spec));
  SUBBYTE_CHECK(check_post_processor(root));
  SUBBYTE_TRY(const std::string decoder, type_of(root, "decoder"));
  if (decoder != "ByteLevel") {
    return unsupported(root.where() + ": decoder", decoder.empty() ? "null" : shown(decoder));
  }
  return {};
}

// ---- model

/// Range-checked before it is narrowed.
Result<TokenId> checked_id(const json::Value& value, std::string_view where) {
  if (!value.is_number_integer()) return wrong_type(where, "an integer id", value);
  if (value.is_number_unsigned()) {
    const auto id = value.get<uint64_t>();
    if (id <= static_cast<uint64_t>(TokenizerSpec::kMaxId)) return static_cast<TokenId>(id);
  } else if (const auto id = value.get<int64_t>(); id < 0) {
    return Error{"tokenizer.negative_id", fmt::format("{}: id {}", where, id)};
  } else if (id <= TokenizerSpec::kMaxId) {
    return static_cast<TokenId>(id);
  }
  return Error{"tokenizer.id_out_of_range", fmt::format("{}: id {}, expected at most {}", where,
                                                        value.dump(), TokenizerSpec::kMaxId)};
}

Status read_vocab(const json::Object& model, TokenizerSpec& spec) {
  const json::Value* vocab = model.has("vocab") ? model.find("vocab") : nullptr;
  if (vocab == nullptr) return model.error("json.missing", "vocab", "an object");
  if (!vocab->is_object()) return model.error("json.type", "vocab", "an object");
  spec.vocab.reserve(vocab->size());
  std::vector<bool> seen;
  for (auto it = vocab->begin(); it != vocab->end(); ++it) {
    const std::string where = fmt::format("{}.vocab: {}", model.where(), shown(it.key()));
    SUBBYTE_TRY(const TokenId id, checked_id(it.value(), where));
    const auto idx = static_cast<std::size_t>(id);
    if (idx >= seen.size()) seen.resize(idx + 1);
    if (seen[idx]) {
      return Error{"tokenizer.duplicate_id",
                   fmt::format("{}: id {} belongs to another token", where, id)};
    }
    seen[idx] = true;
    spec.vocab.push_back({it.key(), id});
  }
  spec.size = static_cast<TokenId>(seen.size());
  return {};
}

Status find_byte_ids(const Ids& ids, std::string_view where, TokenizerSpec& spec) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string key;
    utf8::append(key, byte_alphabet::character_of(static_cast<uint8_t>(byte)));
    const auto found = ids.find(key);
    if (found == ids.end()) {
      return Error{
          "tokenizer.missing_byte",
          fmt::format("{}.vocab: byte 0x{:02X} ({}) has no token", where, byte, shown(key))};
    }
    spec.byte_ids[byte] = found->second;
  }
  return {};
}

struct Pair {
  std::string_view left;
  std::string_view right;
};

/// "a b" or ["a", "b"].
Result<Pair> read_pair(const json::Value& merge, std::string_view where) {
  const auto bad = [&]() {
    return Error{"tokenizer.bad_merge",
                 fmt::format("{}: expected \"a b\" or [\"a\", \"b\"], found {}", where,
                             shown(merge.is_string() ? merge.get_ref<const std::string&>()
                                                     : std::string(merge.type_name())))};
  };
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return bad();
    }
    return Pair{text.substr(0, space), text.substr(space + 1)};
  }
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
    return bad();
  }
  return Pair{merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
}

Status read_merges(const json::Object& model, const Ids& ids, TokenizerSpec& spec) {
  SUBBYTE_TRY(const json::Value* merges, array_of(model, "merges"));
  if (merges == nullptr) return model.error("json.missing", "merges", "an array");
  spec.merges.reserve(merges->size());
  for (std::size_t i = 0; i < merges->size(); ++i) {
    const json::Value& merge = (*merges)[i];
    // The first line of an old merges.txt, which some files still carry.
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) continue;
    const std::string where = fmt::format("{}.merges[{}]", model.where(), i);
    SUBBYTE_TRY(const Pair pair, read_pair(merge, where));
    const auto id_of = [&ids](std::string_view key) {
      const auto found = ids.find(key);
      return found == ids.end() ? TokenId{-1} : found->second;
    };
    const TokenId left = id_of(pair.left);
    const TokenId right = id_of(pair.right);
    const std::string joined = std::string(pair.left).append(pair.right);
    const TokenId result = id_of(joined);
    if (left < 0 || right < 0) {
      return Error{"tokenizer.merge_unknown_token",
                   fmt::format("{}: {} is not in the vocabulary", where,
                               shown(left < 0 ? pair.left : pair.right))};
    }
    if (pair.left.empty() || pair.right.empty()) {
      return Error{"tokenizer.bad_merge", fmt::format("{}: joins an empty token", where)};
    }
    if (result < 0) {
      return Error{"tokenizer.merge_unknown_result",
                   fmt::format("{}: {} is not in the vocabulary", where, shown(joined))};
    }
    spec.merges.push_back({left, right, result});
  }
  return {};
}

/// `ids` views the keys in `spec.vocab`.
Status read_model(const json::Object& model, TokenizerSpec& spec, Ids& ids) {
  SUBBYTE_TRY(const auto type, model.string("type"));
  if (type.value_or("BPE") != "BPE") return unsupported(model.where(), shown(*type));
  SUBBYTE_TRY(const auto dropout, model.number("dropout", 0, 1));
  if (dropout.value_or(0) != 0) return unsupported(model.where(), "dropout");
  SUBBYTE_CHECK(refuse_true(model, "byte_fallback"));
  SUBBYTE_CHECK(refuse_text(model, "continuing_subword_prefix"));
  SUBBYTE_CHECK(refuse_text(model, "end_of_word_suffix"));
  // unk_token is never needed: every byte has a token.
  SUBBYTE_TRY(const auto ignore_merges, model.boolean("ignore_merges"));
  spec.ignore_merges = ignore_merges.value_or(false);
  SUBBYTE_CHECK(read_vocab(model, spec));
  ids.reserve(spec.vocab.size());
  for (const auto& entry : spec.vocab) ids.emplace(entry.key, entry.id);
  SUBBYTE_CHECK(find_byte_ids(ids, model.where(), spec));
  return read_merges(model, ids, spec);
}

// ---- added_tokens

Result<bool> required_flag(const json::Object& object, std::string_view key) {
  SUBBYTE_TRY(const auto flag, object.boolean(key));
  if (!flag) return object.error("json.missing", key, "true or false");
  return *flag;
}

Result<AddedToken> read_added_token(const json::Object& object) {
  const json::Value* id = object.find("id");
  if (id == nullptr) return object.error("json.missing", "id", "an integer");
  AddedToken token{};
  SUBBYTE_TRY(token.id, checked_id(*id, object.where()));
  SUBBYTE_TRY(token.content, object.required_string("content"));
  SUBBYTE_TRY(token.single_word, required_flag(object, "single_word"));
  SUBBYTE_TRY(token.lstrip, required_flag(object, "lstrip"));
  SUBBYTE_TRY(token.rstrip, required_flag(object, "rstrip"));
  SUBBYTE_TRY(token.normalized, required_flag(object, "normalized"));
  SUBBYTE_TRY(token.special, required_flag(object, "special"));
  if (token.content.empty()) {
    return Error{"tokenizer.empty_added_token",
                 fmt::format("{}: the content is empty", object.where())};
  }
  if (token.content.size() > AddedTokenMatcher::kMaxContentBytes) {
    return Error{"tokenizer.added_token_too_long",
                 fmt::format("{}: content of {} bytes, at most {} are taken", object.where(),
                             token.content.size(), AddedTokenMatcher::kMaxContentBytes)};
  }
  return token;
}

/// Against the vocabulary: both content and id are there and belong together, or neither is.
Status check_against_vocab(const AddedToken& token, std::string_view where, const Ids& ids,
                           const std::vector<bool>& vocab_has_id, const TokenizerSpec& spec) {
  const auto found = ids.find(token.content);
  const auto idx = static_cast<std::size_t>(token.id);
  const bool id_taken = idx < vocab_has_id.size() && vocab_has_id[idx];
  if (found != ids.end() && found->second != token.id) {
    return Error{"tokenizer.added_token_mismatch",
                 fmt::format("{}: {} has id {}, in the vocabulary {}", where, shown(token.content),
                             token.id, found->second)};
  }
  if (found == ids.end() && id_taken) {
    return Error{"tokenizer.added_token_conflict",
                 fmt::format("{}: id {} of {} belongs to another token of the vocabulary", where,
                             token.id, shown(token.content))};
  }
  if (std::find(spec.byte_ids.begin(), spec.byte_ids.end(), token.id) != spec.byte_ids.end()) {
    // Text could not be kept from containing this token.
    return Error{"tokenizer.added_token_is_byte",
                 fmt::format("{}: {} is the token of a single byte", where, shown(token.content))};
  }
  return {};
}

Status read_added_tokens(const json::Object& root, const Ids& ids, TokenizerSpec& spec) {
  SUBBYTE_TRY(const json::Value* list, array_of(root, "added_tokens"));
  if (list == nullptr) return {};
  std::vector<bool> vocab_has_id(static_cast<std::size_t>(spec.size));
  for (const auto& entry : spec.vocab) vocab_has_id[static_cast<std::size_t>(entry.id)] = true;
  std::unordered_set<TokenId> seen_ids;
  std::unordered_set<std::string> seen;
  std::unordered_set<std::string> seen_nfc;  // of those that are looked for in normalized text
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("{}: added_tokens[{}]", root.where(), i);
    SUBBYTE_TRY(const auto object, json::Object::of((*list)[i], where));
    SUBBYTE_TRY(AddedToken token, read_added_token(object));
    SUBBYTE_CHECK(check_against_vocab(token, where, ids, vocab_has_id, spec));
    if (!seen_ids.insert(token.id).second) {
      return Error{"tokenizer.duplicate_id",
                   fmt::format("{}: id {} belongs to another added token", where, token.id)};
    }
    const bool in_nfc = token.normalized && spec.nfc;
    if (!seen.insert(token.content).second ||
        (in_nfc && !seen_nfc.insert(to_nfc(token.content)).second)) {
      return Error{"tokenizer.duplicate_added_token",
                   fmt::format("{}: {} is there twice", where, shown(token.content))};
    }
    spec.size = std::max(spec.size, token.id + 1);
    spec.added.push_back(std::move(token));
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_json(const std::filesystem::path& path) {
  SUBBYTE_TRY(const json::Value value,
              json::parse_file(path.string(), kMaxFileBytes, kMemoryFactor));
  SUBBYTE_TRY(const auto root, json::Object::of(value, path.filename().string()));
  TokenizerSpec spec;
  SUBBYTE_CHECK(read_pipeline(root, spec));
  SUBBYTE_TRY(const auto model, root.object("model"));
  if (!model) return root.error("json.missing", "model", "an object");
  Ids ids;
  SUBBYTE_CHECK(read_model(*model, spec, ids));
  SUBBYTE_CHECK(read_added_tokens(root, ids, spec));
  return spec;
}

}  // namespace subbyte
