// tokenizer.json against the vocabulary of the model, and the special tokens against both.

#include "text/tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/model_file.h"
#include "base/quote.h"
#include "checkpoints/containers/gguf_tokenizer.h"
#include "json/strict_json.h"
#include "text/chat_template.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json.h"
#include "verify/context.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokenizer = "tokenizer.json";
constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";
/// Those of the formats of text/chat.h.
constexpr std::string_view kBuiltInControlTokens =
    "<|im_start|><|im_end|><|endoftext|><|start|><|message|><|channel|><|end|><|return|><|call|>";

void check_ids(VerifyContext& context, const Tokenizer& tokenizer, const TokenizerConfig& config) {
  std::set<TokenId> named;  // these have a finding of their own
  for (const SideToken& side : config.tokens) {
    if (!side.id) named.insert(tokenizer.find(side.token.content).value_or(-1));
  }
  TokenId last = tokenizer.size() - 1;
  while (named.contains(last)) --last;
  if (context.vocab_size && last >= *context.vocab_size) {
    context.findings.add("verify.token_id_range", kTokenizer,
                         fmt::format("token ids below vocab_size ({})", *context.vocab_size),
                         fmt::format("ids up to {}", last));
  }
  int64_t missing = 0;
  TokenId first = 0;
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.token_bytes(id).empty() && missing++ == 0) first = id;
  }
  if (missing > 0) {
    context.findings.add("verify.token_ids_missing", kTokenizer,
                         fmt::format("a token for each id up to {}", tokenizer.size() - 1),
                         fmt::format("none for {} of them, the first is {}", missing, first));
  }
}

void check_special_ids(VerifyContext& context, const Tokenizer& tokenizer) {
  for (const SpecialToken& token : context.special_tokens) {
    const bool known = token.id < tokenizer.size() &&
                       !tokenizer.token_bytes(static_cast<TokenId>(token.id)).empty();
    if (known) continue;
    context.findings.add("verify.special_token", token.file,
                         fmt::format("{}: a token of {}", token.key, kTokenizer),
                         fmt::format("{}, which it does not have", token.id));
  }
}

/// The control tokens that a template names ("<|im_end|>").
void add_control_tokens(std::string_view text, std::set<std::string>& names) {
  // From the last "<|" before each "|>": a longer name would hold another one, and all of them
  // together may be as long as the square of the text.
  for (auto end = text.find("|>"); end != std::string_view::npos; end = text.find("|>")) {
    const auto begin = text.substr(0, end).rfind("<|");
    if (begin != std::string_view::npos) names.emplace(text.substr(begin, end + 2 - begin));
    text.remove_prefix(end + 2);
  }
}

/// Control tokens of templates should be added tokens: in the vocabulary alone, other programs let
/// the text of a user become them.
void check_control_tokens(VerifyContext& context, const Tokenizer& tokenizer) {
  std::set<std::string> names;
  add_control_tokens(kBuiltInControlTokens, names);
  if (const auto templates = chat_template_texts(context.files); templates.ok()) {
    for (const std::string& text : *templates) add_control_tokens(text, names);
  }
  for (const std::string& name : names) {
    const auto id = tokenizer.find(name);
    if (!id || tokenizer.is_added(*id)) continue;
    context.findings.add(
        "verify.control_token", kTokenizer,
        fmt::format("{} among the added tokens, as a template uses it", quote(name)),
        fmt::format("token {} of the vocabulary alone", *id));
  }
}

/// Tokens of tokenizer_config.json that tokenizer.json has with other flags: software takes either.
void check_added_flags(VerifyContext& context, const TokenizerConfig& config) {
  const auto spec = read_tokenizer_json(context.files.directory() / kTokenizer, context.files);
  if (!spec.ok()) return;
  std::map<std::string_view, const AddedToken*> of_content;
  for (const AddedToken& token : spec->added) of_content.emplace(token.content, &token);
  int64_t differing = 0;
  std::string first;
  for (const SideToken& side : config.tokens) {
    const auto found = of_content.find(side.token.content);
    if (!side.id || found == of_content.end()) continue;
    const AddedToken& token = *found->second;
    const auto flags = [](const AddedToken& t) {
      return std::tuple(t.special, t.normalized, t.single_word, t.lstrip, t.rstrip);
    };
    if (flags(token) != flags(side.token) && differing++ == 0) first = token.content;
  }
  if (differing == 0) return;
  context.findings.add(
      "verify.added_token", kTokenizerConfig,
      fmt::format("the flags of added tokens that {} has", kTokenizer),
      fmt::format("others for {} of them, the first is {}", differing, quote(first, 40)));
}

/// Which tokens end a text, in words.
std::string ids_of(const std::set<int64_t>& ids) {
  return ids.empty() ? "none" : fmt::format("{}", fmt::join(ids, ", "));
}

/// The tokens that end a text, where the three files that may say so do not agree. Those of
/// config.json are often fewer, as generation_config.json counts.
void check_end_tokens(VerifyContext& context, const Tokenizer& tokenizer) {
  std::set<int64_t> of_config, of_generation;
  for (const SpecialToken& token : context.special_tokens) {
    if (token.key != "eos_token_id") continue;
    (token.file == "config.json" ? of_config : of_generation).insert(token.id);
  }
  const bool generation_counts = !of_generation.empty();
  const std::set<int64_t>& ends = generation_counts ? of_generation : of_config;
  if (ends.empty()) return;
  const std::string_view file = generation_counts ? "generation_config.json" : "config.json";
  if (!std::ranges::includes(ends, of_config)) {
    context.findings.add(
        "verify.end_tokens", file,
        fmt::format("eos_token_id with those of config.json ({})", ids_of(of_config)),
        ids_of(ends));
  }
  const auto end = tokenizer.end_token();
  if (!end || ends.contains(*end)) return;
  context.findings.add(
      "verify.end_tokens", file,
      fmt::format("eos_token_id with the eos_token of {} ({})", kTokenizerConfig, *end),
      ids_of(ends));
}

/// Special tokens that are there by their names alone, and that the model does not have.
void check_named_tokens(VerifyContext& context, const Tokenizer& tokenizer,
                        const TokenizerConfig& config) {
  for (const SideToken& side : config.tokens) {
    const auto id = tokenizer.find(side.token.content);
    if (side.id || !id || !context.vocab_size || *id < *context.vocab_size) continue;
    context.findings.add("verify.special_token", kTokenizerConfig,
                         fmt::format("{} with an id below vocab_size ({})",
                                     quote(side.token.content, 40), *context.vocab_size),
                         std::to_string(*id));
  }
}

/// What tokenizer_config.json says beside tokens, which the tokenizer has read.
void check_tokenizer_config(VerifyContext& context) {
  const auto file = context.files.read(kTokenizerConfig);
  const auto object = file.ok() ? file->object() : file.error();
  if (!object.ok()) return;
  std::vector<std::string> unknown = json::unknown_keys(*object, tokenizer_config_rules());
  std::erase_if(unknown, [](const std::string& key) { return key.ends_with("_token"); });
  note_unknown_keys(context, kTokenizerConfig, unknown);
}

/// A template that cannot be used is no matter for texts without messages.
void check_chat_template(VerifyContext& context) {
  const auto found = ChatTemplate::read(context.files);
  if (found.ok()) return;
  const std::string& message = found.error().message;
  std::string_view file = kTokenizerConfig;
  for (const std::string_view other : {"chat_template.jinja", "chat_template.json"}) {
    if (message.find(other) != std::string::npos) file = other;
  }
  const std::string_view folder = "additional_chat_templates";
  if (message.find(folder) != std::string::npos) file = folder;
  context.findings.add("verify.chat_template", file, {}, "chats are refused: " + message);
}

/// The file that a refusal of the tokenizer is about.
std::string_view file_of(const Error& error) {
  for (const std::string_view file : {kTokenizerConfig, std::string_view("special_tokens_map.json"),
                                      std::string_view("added_tokens.json")}) {
    if (error.message.find(file) != std::string::npos) return file;
  }
  return kTokenizer;
}

/// Why it does not open: of a GGUF file all that its metadata have wrong.
void add_problems(VerifyContext& context, const Error& first) {
  std::vector<Error> problems;
  if (is_gguf(context.files.path())) {
    const auto model = GgufModel::open(context.files.path());
    if (model.ok()) problems = gguf_tokenizer_problems(*model);
  }
  if (problems.empty()) problems.push_back(first);
  for (const Error& problem : problems) context.findings.add(problem, file_of(problem));
}

}  // namespace

Status check_tokenizer(VerifyContext& context) {
  if (!context.files.has(kTokenizer)) {
    context.findings.add("verify.no_tokenizer", kTokenizer, {}, "there is no such file");
    return {};
  }
  const auto tokenizer = open_tokenizer(context.files.directory() / kTokenizer, context.files);
  if (!tokenizer.ok()) {
    add_problems(context, tokenizer.error());
    return {};
  }
  SUBBYTE_TRY(const TokenizerConfig config, read_tokenizer_config(context.files));
  check_ids(context, *tokenizer, config);
  check_special_ids(context, *tokenizer);
  check_control_tokens(context, *tokenizer);
  check_named_tokens(context, *tokenizer, config);
  check_added_flags(context, config);
  check_end_tokens(context, *tokenizer);
  if (context.files.has(kTokenizerConfig)) check_tokenizer_config(context);
  check_chat_template(context);
  return {};
}

}  // namespace subbyte
