// The parts of the file:
//
//   normalizer, pre_tokenizer, decoder                   read by read_pipeline
//   post_processor   templates                           kept as tokens before and after a text
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
#include "text/pipeline_json.h"
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

Status refuse_text(const json::Object& object, std::string_view key) {
  SUBBYTE_TRY(const auto text, object.string(key));
  if (text && !text->empty()) return unsupported_part(object.where(), fmt::format("a {}", key));
  return {};
}

bool is_id(const json::Value& id) {
  return id.is_number_unsigned() && id.get<uint64_t>() <= kMaxTemplateId;
}

/// Around what processors before this one have made.
Status put_around(const std::vector<TokenId>& before, const std::vector<TokenId>& after,
                  std::string_view where, TokenizerSpec& spec) {
  spec.before.insert(spec.before.begin(), before.begin(), before.end());
  spec.after.insert(spec.after.end(), after.begin(), after.end());
  if (spec.before.size() + spec.after.size() <= kMaxTemplateTokens) return {};
  return unsupported_part(where,
                          fmt::format("a template of more than {} tokens", kMaxTemplateTokens));
}

/// The ids of one of the special tokens that a template names.
Result<std::vector<TokenId>> template_ids(const json::Object& processor, std::string_view name) {
  SUBBYTE_TRY(const auto tokens, processor.object("special_tokens"));
  SUBBYTE_TRY(const auto token, tokens ? tokens->object(name) : std::optional<json::Object>());
  SUBBYTE_TRY(const json::Value* list, token ? array_of(*token, "ids") : nullptr);
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
    return unsupported_part(processor.where(),
                            "a template of other things than tokens and one text");
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
  return put_around(before, after, processor.where(), spec);
}

/// "cls" before the text and "sep" after it, each as ["<s>", 1].
Status read_ends(const json::Object& processor, TokenizerSpec& spec) {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  for (const auto& [key, ids] : {std::pair("cls", &before), std::pair("sep", &after)}) {
    SUBBYTE_TRY(const json::Value* pair, array_of(processor, key));
    if (pair == nullptr || pair->size() != 2 || !is_id((*pair)[1])) {
      return Error{"tokenizer.template_token",
                   fmt::format("{}: {}: expected a token and its id", processor.where(), key)};
    }
    ids->push_back((*pair)[1].get<TokenId>());
  }
  return put_around(before, after, processor.where(), spec);
}

Status read_processor(const json::Object& processor, TokenizerSpec& spec) {
  SUBBYTE_TRY(const std::string type, processor.required_string("type"));
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return read_template(processor, spec);
  if (type == "RobertaProcessing" || type == "BertProcessing") return read_ends(processor, spec);
  return unsupported_part(processor.where(), shown(type));
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

// ---- model

Result<json::Object> read_model(const json::Object& root, TokenizerSpec& spec) {
  SUBBYTE_TRY(const auto model, root.object("model"));
  if (!model) return root.error("json.missing", "model", "an object");
  SUBBYTE_TRY(const auto type, model->string("type"));
  if (type.value_or("BPE") != "BPE") return unsupported_part(model->where(), shown(*type));
  SUBBYTE_TRY(const auto dropout, model->number("dropout", 0, 1));
  if (dropout.value_or(0) != 0) return unsupported_part(model->where(), "dropout");
  SUBBYTE_CHECK(refuse_text(*model, "continuing_subword_prefix"));
  SUBBYTE_CHECK(refuse_text(*model, "end_of_word_suffix"));
  SUBBYTE_TRY(const auto ignore_merges, model->boolean("ignore_merges"));
  spec.ignore_merges = ignore_merges.value_or(false);
  SUBBYTE_TRY(const auto byte_fallback, model->boolean("byte_fallback"));
  spec.unknown.byte_fallback = byte_fallback.value_or(false);
  SUBBYTE_TRY(const auto fuse_unk, model->boolean("fuse_unk"));
  spec.unknown.is_fused = fuse_unk.value_or(false);
  SUBBYTE_TRY(spec.unk_token, model->string("unk_token"));
  return *model;
}

/// One budget for all patterns of the file.
Status compile_pipeline(const PipelineSpec& pipeline, std::string_view file, TokenizerSpec& spec) {
  const auto explain = [&](std::string_view part, const Error& error) {
    return Error{error.code, fmt::format("{}: {}: {}", file, part, error.message)};
  };
  RegexBudget budget;
  auto normalizer = Normalizer::compile(pipeline.normalizer, budget);
  if (!normalizer) return explain("normalizer", normalizer.error());
  auto pre_tokenizer = PreTokenizer::compile(pipeline.pre_tokenizer, budget);
  if (!pre_tokenizer) return explain("pre_tokenizer", pre_tokenizer.error());
  auto decoder = TextDecoder::compile(pipeline.decoder, budget);
  if (!decoder) return explain("decoder", decoder.error());
  spec.normalizer = std::move(normalizer).value();
  spec.pre_tokenizer = std::move(pre_tokenizer).value();
  spec.decoder = std::move(decoder).value();
  return {};
}

/// The id of unk_token, which is needed where not every byte or character has tokens.
Status find_unknown(std::string_view file, TokenizerSpec& spec) {
  if (!spec.unk_token) return {};
  spec.unknown.token = spec.vocab.find(*spec.unk_token);
  if (spec.unknown.token) return {};
  if (spec.has_byte_level && FirstTokens::of_bytes(spec.vocab, {}).has_all_bytes()) return {};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_there = spec.unknown.byte_fallback &&
                          FirstTokens::fallback_token(spec.vocab, static_cast<uint8_t>(byte));
    if (is_there) continue;
    return Error{"tokenizer.unk_token",
                 fmt::format("{}: model: unk_token {} is not in the vocabulary", file,
                             shown(*spec.unk_token))};
  }
  return {};
}

/// What tokenizer_config.json wants of the way from a text to pieces is there already.
Status check_config(const TokenizerConfig& config, const PipelineSpec& pipeline,
                    const TokenTables& tables) {
  const auto refuse = [](std::string_view key, std::string_view why) {
    return Error{
        "tokenizer.unsupported",
        fmt::format("tokenizer_config.json: {}: expected false, as {}, found true", key, why)};
  };
  if (config.adds_prefix && !pipeline.adds_prefix()) {
    return refuse("add_prefix_space", "tokenizer.json puts no space before a text");
  }
  // Transformers leaves smaller ones as they are.
  constexpr std::size_t kLarge = 100'000;
  const std::size_t num_tokens =
      static_cast<std::size_t>(tables.vocab.size()) + tables.added.size();
  const bool has_pre_tokenizer = pipeline.has_byte_level || !pipeline.pre_tokenizer.empty();
  if (!config.has_mistral_pattern || num_tokens <= kLarge || !has_pre_tokenizer) return {};
  return refuse("fix_mistral_regex", "another pattern than that of tokenizer.json is not computed");
}

/// The file, or the text that was put in its place.
Result<MappedFile> open_text(const std::filesystem::path& path, const SideFiles& beside) {
  SUBBYTE_TRY(const auto text, beside.text(path.filename().native()));
  if (text) {
    const std::string where = fmt::format("{} (in the words of {})", path.parent_path().native(),
                                          path.filename().native());
    return MappedFile::of(std::as_bytes(std::span(*text)), where);
  }
  return json::open_file(path.string(), kMaxFileBytes);
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

Result<TokenizerSpec> read_tokenizer_json(const std::filesystem::path& path,
                                          const SideFiles& beside) {
  SUBBYTE_TRY(const MappedFile file, open_text(path, beside));
  const std::string_view text = json::text_of(file);
  const std::string where = file.path().filename().string();
  TokenTables tables(where, text.size());
  SUBBYTE_TRY(const json::Value value,
              json::parse(text, file.path().string(), tables.streams(), kMemoryFactor));
  SUBBYTE_TRY(const auto root, json::Object::of(value, where));
  TokenizerSpec spec;
  SUBBYTE_TRY(const json::Object model, read_model(root, spec));  // the kind of tokenizer first
  SUBBYTE_TRY(const PipelineSpec pipeline, read_pipeline(root));
  spec.has_byte_level = pipeline.has_byte_level;
  SUBBYTE_CHECK(read_post_processor(root, spec));
  SUBBYTE_CHECK(require_tables(root, model));
  SUBBYTE_CHECK(compile_pipeline(pipeline, root.where(), spec));
  SUBBYTE_CHECK(tables.finish_vocabulary());
  if (tables.wants_second_parse()) {
    SUBBYTE_CHECK(json::parse(text, file.path().string(), tables.streams(), kMemoryFactor));
  }
  SUBBYTE_CHECK(tables.finish_merges());
  SUBBYTE_TRY(TokenizerConfig config, read_tokenizer_config(beside));
  SUBBYTE_CHECK(check_config(config, pipeline, tables));
  SUBBYTE_CHECK(tables.add_tokens(std::move(config.tokens)));
  SUBBYTE_CHECK(tables.finish_added(spec.normalizer));
  spec.eos_token = std::move(config.eos_token);
  spec.vocab = std::move(tables.vocab);
  tables.merges.shrink_to_fit();
  spec.merges = std::move(tables.merges);
  spec.added = std::move(tables.added);
  SUBBYTE_CHECK(check_template(spec, root.where()));
  SUBBYTE_CHECK(find_unknown(root.where(), spec));
  return spec;
}

}  // namespace subbyte
