// Tokenizers and the chat templates beside them.

#include "text/tokenizer.h"

#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/model_file.h"
#include "c_interface/errors.h"
#include "c_interface/options.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/model_path.h"
#include "session/text_setup.h"
#include "text/chat_template.h"

struct subbyte_tokenizer {
  subbyte::Tokenizer tokenizer;
  std::optional<subbyte::ChatTemplate> chat_template;
};

using namespace subbyte;

namespace {

Status open(const char* model, subbyte_tokenizer** to) {
  SUBBYTE_CHECK(c::check_addresses({{"model", model}, {"tokenizer", to}}));
  SideFiles files = std::filesystem::path(model);
  if (!files.has("tokenizer.json")) {
    SUBBYTE_TRY(const auto found, find_model(model));
    files = ModelFiles(found);
  }
  SUBBYTE_TRY(Tokenizer tokenizer, load_tokenizer(files));
  SUBBYTE_TRY(auto chat_template, ChatTemplate::read(files));
  *to = new subbyte_tokenizer{std::move(tokenizer), std::move(chat_template)};
  return {};
}

Result<std::vector<TokenId>> encode_text(const Tokenizer& tokenizer, std::string_view text,
                                         int32_t flags) {
  const SpecialTokens special =
      (flags & SUBBYTE_SPECIAL) != 0 ? SpecialTokens::kRecognize : SpecialTokens::kAsText;
  return (flags & SUBBYTE_PROMPT) != 0 ? tokenizer.encode_prompt(text, special)
                                       : tokenizer.encode(text, special);
}

Status encode(const subbyte_tokenizer* tokenizer, const char* text, int64_t length, int32_t flags,
              int32_t** tokens, int64_t* num_tokens) {
  SUBBYTE_CHECK(c::check_addresses(
      {{"tokenizer", tokenizer}, {"text", text}, {"tokens", tokens}, {"num_tokens", num_tokens}}));
  if (length < -1) return c::refuse("length", "-1 or more", length);
  if ((flags & ~(SUBBYTE_SPECIAL | SUBBYTE_PROMPT)) != 0)
    return c::refuse("flags", "0 to 3", flags);
  const std::string_view view = length < 0
                                    ? std::string_view(text)
                                    : std::string_view(text, static_cast<std::size_t>(length));
  SUBBYTE_TRY(const std::vector<TokenId> found, encode_text(tokenizer->tokenizer, view, flags));
  const std::size_t size = found.size() * sizeof(int32_t);
  auto* copy = static_cast<int32_t*>(std::malloc(size + 1));  // not NULL for no tokens
  if (copy == nullptr) return Error{"memory", "not enough memory"};
  if (size > 0) std::memcpy(copy, found.data(), size);
  *tokens = copy;
  *num_tokens = std::ssize(found);
  return {};
}

Status decode(const subbyte_tokenizer* tokenizer, const int32_t* tokens, int64_t num_tokens,
              int32_t skip_special, char** text, int64_t* length) {
  SUBBYTE_CHECK(c::check_addresses({{"tokenizer", tokenizer}, {"text", text}}));
  if (num_tokens < 0) return c::refuse("num_tokens", "0 or more", num_tokens);
  if (num_tokens > 0) SUBBYTE_CHECK(c::check_addresses({{"tokens", tokens}}));
  SUBBYTE_TRY(const std::string found,
              tokenizer->tokenizer.decode({tokens, static_cast<std::size_t>(num_tokens)},
                                          skip_special != 0));
  SUBBYTE_CHECK(c::hand_out(found, text));
  if (length != nullptr) *length = std::ssize(found);
  return {};
}

Status piece(const subbyte_tokenizer* tokenizer, int32_t token, const char** bytes,
             int64_t* length) {
  SUBBYTE_CHECK(
      c::check_addresses({{"tokenizer", tokenizer}, {"bytes", bytes}, {"length", length}}));
  if (token < 0 || token >= tokenizer->tokenizer.size()) {
    return c::refuse("token", "0 to " + std::to_string(tokenizer->tokenizer.size() - 1), token);
  }
  const std::string_view found = tokenizer->tokenizer.token_bytes(token);
  *bytes = found.data() == nullptr ? "" : found.data();
  *length = std::ssize(found);
  return {};
}

Status find(const subbyte_tokenizer* tokenizer, const char* literal, int32_t* token) {
  SUBBYTE_CHECK(
      c::check_addresses({{"tokenizer", tokenizer}, {"literal", literal}, {"token", token}}));
  const auto found = tokenizer->tokenizer.find(literal);
  if (!found) {
    return c::refuse("literal", "a token of this vocabulary", quote(literal));
  }
  *token = *found;
  return {};
}

Status count(const subbyte_tokenizer* tokenizer, int32_t* size) {
  SUBBYTE_CHECK(c::check_addresses({{"tokenizer", tokenizer}, {"size", size}}));
  *size = tokenizer->tokenizer.size();
  return {};
}

Result<TemplateInput> read_input(const char* text) {
  SUBBYTE_TRY(const json::Value value,
              c::read_options(text, {"messages", "tools", "chat_template_kwargs",
                                     "add_generation_prompt", "now"}));
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, "json"));
  TemplateInput input;
  if (const json::Value* messages = object.find("messages")) input.messages = *messages;
  if (const json::Value* tools = object.find("tools")) input.tools = *tools;
  SUBBYTE_TRY(const auto variables, object.object("chat_template_kwargs"));
  if (variables) input.variables = *object.find("chat_template_kwargs");
  SUBBYTE_TRY(const auto prompt, object.boolean("add_generation_prompt"));
  input.add_generation_prompt = prompt.value_or(true);
  SUBBYTE_TRY(const auto now, object.string("now"));
  const auto time = parse_time(now.value_or(time_now()));
  if (!time) {
    return object.error("c.argument", "now", "a day such as 2025-08-05, or a time");
  }
  input.now = *time;
  return input;
}

Status render(const subbyte_tokenizer* tokenizer, const char* json, char** text) {
  SUBBYTE_CHECK(c::check_addresses({{"tokenizer", tokenizer}, {"json", json}, {"text", text}}));
  SUBBYTE_TRY(const TemplateInput input, read_input(json));
  if (!tokenizer->chat_template) {
    return Error{"template.none", "this tokenizer has no chat template beside it"};
  }
  SUBBYTE_TRY(const jinja::OriginText found, tokenizer->chat_template->render(input));
  return c::hand_out(found.bytes(), text);
}

}  // namespace

int subbyte_tokenizer_open(const char* model, subbyte_tokenizer** tokenizer) {
  return c::run([&] { return open(model, tokenizer); });
}

void subbyte_tokenizer_destroy(subbyte_tokenizer* tokenizer) {
  delete tokenizer;
}

int subbyte_tokenizer_encode(const subbyte_tokenizer* tokenizer, const char* text, int64_t length,
                             int32_t flags, int32_t** tokens, int64_t* num_tokens) {
  return c::run([&] { return encode(tokenizer, text, length, flags, tokens, num_tokens); });
}

int subbyte_tokenizer_decode(const subbyte_tokenizer* tokenizer, const int32_t* tokens,
                             int64_t num_tokens, int32_t skip_special, char** text,
                             int64_t* length) {
  return c::run([&] { return decode(tokenizer, tokens, num_tokens, skip_special, text, length); });
}

int subbyte_tokenizer_piece(const subbyte_tokenizer* tokenizer, int32_t token, const char** bytes,
                            int64_t* length) {
  return c::run([&] { return piece(tokenizer, token, bytes, length); });
}

int subbyte_tokenizer_find(const subbyte_tokenizer* tokenizer, const char* literal,
                           int32_t* token) {
  return c::run([&] { return find(tokenizer, literal, token); });
}

int subbyte_tokenizer_size(const subbyte_tokenizer* tokenizer, int32_t* size) {
  return c::run([&] { return count(tokenizer, size); });
}

int subbyte_tokenizer_render(const subbyte_tokenizer* tokenizer, const char* json, char** text) {
  return c::run([&] { return render(tokenizer, json, text); });
}
