// tokenizer.json against the vocabulary of the model, and the special tokens against both.

#include "text/tokenizer.h"

#include <fmt/format.h>

#include <set>

#include "base/model_file.h"
#include "base/quote.h"
#include "json/strict_json.h"
#include "verify/context.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokenizer = "tokenizer.json";
constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";
/// Those of the formats of text/chat.h.
constexpr std::string_view kBuiltInControlTokens =
    "<|im_start|><|im_end|><|endoftext|><|start|><|message|><|channel|><|end|><|return|><|call|>";

void check_ids(VerifyContext& context, const Tokenizer& tokenizer) {
  if (context.vocab_size && tokenizer.size() > *context.vocab_size) {
    context.findings.add("verify.token_id_range", kTokenizer,
                         fmt::format("token ids below vocab_size ({})", *context.vocab_size),
                         fmt::format("ids up to {}", tokenizer.size() - 1));
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

/// Control tokens that a template names ("<|im_end|>") should be added tokens: in the vocabulary
/// alone, other programs let the text of a user become them.
void check_control_tokens(VerifyContext& context, const Tokenizer& tokenizer,
                          std::string_view text) {
  std::set<std::string_view> names;
  for (auto at = text.find("<|"); at != std::string_view::npos; at = text.find("<|", at + 2)) {
    const auto end = text.find("|>", at + 2);
    if (end == std::string_view::npos) break;
    names.insert(text.substr(at, end + 2 - at));
  }
  for (const std::string_view name : names) {
    const auto id = tokenizer.find(name);
    if (!id || tokenizer.is_added(*id)) continue;
    context.findings.add(
        "verify.control_token", kTokenizer,
        fmt::format("{} among the added tokens, as a template uses it", quote(name)),
        fmt::format("token {} of the vocabulary alone", *id));
  }
}

/// "eos_token": "<|im_end|>", or {"content": "<|im_end|>", ...}.
void check_special_names(VerifyContext& context, const Tokenizer& tokenizer) {
  const std::string path = (context.directory / kTokenizerConfig).string();
  const auto value = json::parse_file(path, kMaxConfigBytes);
  if (!value.ok()) return context.findings.add(value.error(), kTokenizerConfig);
  if (!value->is_object()) return;
  const auto text = value->find("chat_template");
  if (text != value->end() && text->is_string()) {
    check_control_tokens(context, tokenizer, text->get_ref<const std::string&>());
  }
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    auto found = value->find(key);
    if (found == value->end()) continue;
    const json::Value& token =
        found->is_object() && found->contains("content") ? (*found)["content"] : *found;
    const auto* const content = token.get_ptr<const std::string*>();
    if (content == nullptr || tokenizer.find(*content)) continue;
    context.findings.add("verify.special_token", kTokenizerConfig,
                         fmt::format("{}: a token of {}", key, kTokenizer),
                         fmt::format("{}, which it does not have", quote(*content)));
  }
}

}  // namespace

Status check_tokenizer(VerifyContext& context) {
  if (!is_there(context.directory / kTokenizer)) {
    context.findings.add("verify.no_tokenizer", kTokenizer, {}, "there is no such file");
    return {};
  }
  const auto tokenizer = Tokenizer::load(context.directory / kTokenizer);
  if (!tokenizer.ok()) {
    context.findings.add(tokenizer.error(), kTokenizer);
    return {};
  }
  check_ids(context, *tokenizer);
  check_special_ids(context, *tokenizer);
  check_control_tokens(context, *tokenizer, kBuiltInControlTokens);
  if (is_there(context.directory / kTokenizerConfig)) {
    check_special_names(context, *tokenizer);
  }
  return {};
}

}  // namespace subbyte
