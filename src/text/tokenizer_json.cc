// The parts of the file:
//
//   normalizer       null | NFC                          checked in read_pipeline
//   pre_tokenizer    (Split(Regex, Isolated) | Digits)* ByteLevel
//   post_processor   ByteLevel, TemplateProcessing         kept as tokens before and after a text
//   decoder          ByteLevel
//   model            BPE                                 checked in read_model
//                    vocab {key: id}, merges             taken by TokenTables
//   added_tokens     [{id, content, ...}]                taken by TokenTables
//
// truncation and padding are ignored: they belong to the training run that saved the file.

#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include <string_view>
#include <utility>

#include "base/quote.h"
#include "json/strict_json.h"
#include "text/token_tables.h"
#include "text/tokenizer_config.h"

namespace subbyte {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxTemplateId = std::numeric_limits<TokenId>::max();
constexpr std::size_t kMaxTemplateTokens = 16;
// Beside what TokenTables may take: together four times the file.
constexpr std::size_t kMemoryFactor = json::kMemoryFactor - TokenTables::kMemoryFactor;

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

Status read_digits(const json::Object& digits, TokenizerSpec& spec) {
  SUBBYTE_TRY(const auto individual, digits.boolean("individual_digits"));
  spec.patterns.emplace_back(individual.value_or(false) ? R"(\p{N})" : R"(\p{N}+)");
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
    } else if (part_type == "Digits" && !last) {
      SUBBYTE_CHECK(read_digits(part, spec));
    } else if (part_type == "ByteLevel" && last) {
      SUBBYTE_CHECK(read_byte_level(part, spec));
    } else {
      return unsupported(part.where(), fmt::format("{} at this place", shown(part_type)));
    }
  }
  return {};
}

/// The ids of one of the special tokens that a template names.
Result<std::vector<TokenId>> template_ids(const json::Object& processor, std::string_view name) {
  SUBBYTE_TRY(const auto tokens, processor.object("special_tokens"));
  SUBBYTE_TRY(const auto token, tokens ? tokens->object(name) : std::optional<json::Object>());
  SUBBYTE_TRY(const json::Value* list, token ? array_of(*token, "ids") : nullptr);
  const auto is_id = [](const json::Value& id) {
    return id.is_number_unsigned() && id.get<uint64_t>() <= kMaxTemplateId;
  };
  if (list == nullptr || !std::ranges::all_of(*list, is_id)) {
    return Error{"tokenizer.template_token",
                 fmt::format("{}: expected ids of the token {} in special_tokens, found none",
                             processor.where(), shown(name))};
  }
  return list->get<std::vector<TokenId>>();
}

/// TemplateProcessing: "single" is one Sequence, perhaps with special tokens around it.
Status read_template(const json::Object& processor, TokenizerSpec& spec) {
  SUBBYTE_TRY(const json::Value* single, array_of(processor, "single"));
  const auto is = [](const json::Value& part, const char* kind) {
    return part.is_object() && part.size() == 1 && part.contains(kind);
  };
  const auto count = [&](const char* kind) {
    return single == nullptr ? 0 : std::ranges::count_if(*single, [&](const json::Value& part) {
      return is(part, kind);
    });
  };
  if (count("Sequence") != 1 || std::size_t(count("SpecialToken")) + 1 != single->size()) {
    return unsupported(processor.where(), "a template of other things than tokens and one text");
  }
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  bool is_after = false;
  for (const json::Value& part : *single) {
    if (is(part, "Sequence")) {
      is_after = true;
      continue;
    }
    SUBBYTE_TRY(const auto token, json::Object::of(part["SpecialToken"], processor.where()));
    SUBBYTE_TRY(const std::string name, token.required_string("id"));
    SUBBYTE_TRY(const auto ids, template_ids(processor, name));
    std::ranges::copy(ids, std::back_inserter(is_after ? after : before));
  }
  // Around what processors before it have made.
  spec.before.insert(spec.before.begin(), before.begin(), before.end());
  spec.after.insert(spec.after.end(), after.begin(), after.end());
  if (spec.before.size() + spec.after.size() <= kMaxTemplateTokens) return {};
  return unsupported(processor.where(),
                     fmt::format("a template of more than {} tokens", kMaxTemplateTokens));
}

Status read_processor(const json::Object& processor, TokenizerSpec& spec) {
  SUBBYTE_TRY(const std::string type, processor.required_string("type"));
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return read_template(processor, spec);
  return unsupported(processor.where(), shown(type));
}

Status read_post_processor(const json::Object& root, TokenizerSpec& spec) {
  SUBBYTE_TRY(const std::string type, type_of(root, "post_processor"));
  if (type.empty()) return {};
  SUBBYTE_TRY(const auto object, root.object("post_processor"));
  if (type != "Sequence") return read_processor(*object, spec);
  SUBBYTE_TRY(const json::Value* list, array_of(*object, "processors"));
  if (list == nullptr) return {};
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("{}: post_processor[{}]", root.where(), i);
    SUBBYTE_TRY(const auto part, json::Object::of((*list)[i], where));
    SUBBYTE_CHECK(read_processor(part, spec));
  }
  return {};
}

/// The tokens of the template are tokens.
Status check_template(const TokenizerSpec& spec, std::string_view file) {
  for (const auto* ids : {&spec.before, &spec.after}) {
    for (const TokenId id : *ids) {
      const bool is_added = std::ranges::find(spec.added, id, &AddedToken::id) != spec.added.end();
      if (is_added || spec.vocab.contains(id)) continue;
      return Error{
          "tokenizer.template_token",
          fmt::format("{}: post_processor: token {} of the template does not exist", file, id)};
    }
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
  SUBBYTE_CHECK(read_post_processor(root, spec));
  SUBBYTE_TRY(const std::string decoder, type_of(root, "decoder"));
  if (decoder != "ByteLevel") {
    return unsupported(root.where() + ": decoder", decoder.empty() ? "null" : shown(decoder));
  }
  return {};
}

// ---- model

Result<json::Object> read_model(const json::Object& root, TokenizerSpec& spec) {
  SUBBYTE_TRY(const auto model, root.object("model"));
  if (!model) return root.error("json.missing", "model", "an object");
  SUBBYTE_TRY(const auto type, model->string("type"));
  if (type.value_or("BPE") != "BPE") return unsupported(model->where(), shown(*type));
  SUBBYTE_TRY(const auto dropout, model->number("dropout", 0, 1));
  if (dropout.value_or(0) != 0) return unsupported(model->where(), "dropout");
  SUBBYTE_CHECK(refuse_true(*model, "byte_fallback"));
  SUBBYTE_CHECK(refuse_text(*model, "continuing_subword_prefix"));
  SUBBYTE_CHECK(refuse_text(*model, "end_of_word_suffix"));
  // unk_token is never needed: every byte has a token.
  SUBBYTE_TRY(const auto ignore_merges, model->boolean("ignore_merges"));
  spec.ignore_merges = ignore_merges.value_or(false);
  return *model;
}

/// The containers are empty in `root`: their elements are in `tables`.
Status require_tables(const json::Object& root, const json::Object& model) {
  SUBBYTE_TRY(const auto vocab, model.object("vocab"));
  if (!vocab) return model.error("json.missing", "vocab", "an object");
  SUBBYTE_TRY(const json::Value* merges, array_of(model, "merges"));
  if (merges == nullptr) return model.error("json.missing", "merges", "an array");
  SUBBYTE_TRY([[maybe_unused]] const json::Value* added, array_of(root, "added_tokens"));
  return {};
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_json(const std::filesystem::path& path) {
  SUBBYTE_TRY(const MappedFile file, json::open_file(path.string(), kMaxFileBytes));
  const std::string_view text = json::text_of(file);
  TokenTables tables(path.filename().string(), text.size());
  SUBBYTE_TRY(const json::Value value,
              json::parse(text, path.string(), tables.streams(), kMemoryFactor));
  SUBBYTE_TRY(const auto root, json::Object::of(value, path.filename().string()));
  TokenizerSpec spec;
  SUBBYTE_TRY(const json::Object model, read_model(root, spec));  // the kind of tokenizer first
  SUBBYTE_CHECK(read_pipeline(root, spec));
  SUBBYTE_CHECK(require_tables(root, model));
  SUBBYTE_CHECK(tables.finish_vocabulary());
  if (tables.wants_second_parse()) {
    SUBBYTE_CHECK(json::parse(text, path.string(), tables.streams(), kMemoryFactor));
  }
  SUBBYTE_CHECK(tables.finish_merges());
  TokenizerConfig config;  // of a file by another name nothing stands beside it
  if (path.filename() == "tokenizer.json") {
    SUBBYTE_TRY(config, read_tokenizer_config(path.parent_path()));
  }
  SUBBYTE_CHECK(tables.add_tokens(std::move(config.tokens)));
  SUBBYTE_CHECK(tables.finish_added(spec.nfc));
  spec.eos_token = std::move(config.eos_token);
  spec.vocab = std::move(tables.vocab);
  spec.byte_ids = tables.byte_ids;
  spec.merges = std::move(tables.merges);
  spec.added = std::move(tables.added);
  SUBBYTE_CHECK(check_template(spec, path.filename().string()));
  return spec;
}

}  // namespace subbyte
