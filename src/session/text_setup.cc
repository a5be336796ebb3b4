#include "session/text_setup.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/sha256.h"
#include "checkpoints/config/model_files.h"
#include "engine/end_tokens.h"
#include "json/strict_json.h"
#include "models/model_family.h"
#include "session/chat_prompt.h"

namespace subbyte {
namespace {

/// Refuses values of JSON that no text of JSON has.
Status check_values(const Request& request) {
  SUBBYTE_CHECK(json::check_value(request.tools, "tools"));
  for (const Message& message : request.messages) {
    SUBBYTE_CHECK(json::check_value(message.json, "messages"));
  }
  return json::check_value(request.template_variables, "template_variables");
}

}  // namespace

Result<Tokenizer> load_tokenizer(const SideFiles& files) {
  SUBBYTE_CHECK(check_tokenizer_file(files));
  return open_tokenizer(files.directory() / "tokenizer.json", files);
}

std::string time_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

Result<std::unique_ptr<TextSetup>> TextSetup::read(const SideFiles& files,
                                                   const ModelConfig& config) {
  SUBBYTE_TRY(Tokenizer tokenizer, load_tokenizer(files));
  auto text = std::make_unique<TextSetup>(TextSetup{.tokenizer = std::move(tokenizer)});
  text->format = choose_format(family_of(config).chat, text->tokenizer);
  text->end_tokens = subbyte::end_tokens(config, text->tokenizer);
  text->files = files;
  Result<std::optional<ChatTemplate>> chat = ChatTemplate::read(files);
  if (!chat.ok()) {
    text->chat_template = std::move(chat).error();
  } else if (*chat) {
    text->chat_template = std::move(**chat);
  }
  return text;
}

Result<std::shared_ptr<const ChatTemplate>> TextSetup::template_of(const Request& request) const {
  if (!request.chat_template.empty()) {
    SUBBYTE_TRY(ChatTemplate own,
                ChatTemplate::compile(request.chat_template, "chat_template", files));
    return std::make_shared<const ChatTemplate>(std::move(own));
  }
  if (!chat_template) return std::shared_ptr<const ChatTemplate>();
  if (!chat_template->ok()) return chat_template->error();
  // It lives as long as this.
  return std::shared_ptr<const ChatTemplate>(std::shared_ptr<void>(), &chat_template->value());
}

Result<std::vector<ToolCallParser>> TextSetup::call_parsers(const Request& request,
                                                            std::span<const TokenId> prompt) const {
  std::vector<ToolCallParser> parsers(static_cast<std::size_t>(request.num_samples));
  if (!request.is_chat()) return parsers;
  SUBBYTE_TRY(const auto own, template_of(request));
  const CallDialect* const dialect = call_dialect_of(format, own.get());
  const std::string seed = sha256(std::as_bytes(prompt)) + "/";
  for (std::size_t i = 0; i < parsers.size(); ++i) {
    parsers[i] = ToolCallParser(dialect, request.tools, seed + std::to_string(i));
  }
  return parsers;
}

Result<std::vector<TokenId>> TextSetup::encode(const Request& request) const {
  SUBBYTE_CHECK(check_values(request));
  const int prompts =
      int{!request.prompt.empty()} + int{!request.prompt_tokens.empty()} + int{request.is_chat()};
  if (prompts > 1) {
    return Error{
        "session.prompt",
        fmt::format("expected one of prompt, prompt_tokens and messages, found {}", prompts)};
  }
  if (request.is_chat()) return encode_chat(*this, request);
  if (!request.prompt_tokens.empty()) return request.prompt_tokens;
  return request.adds_tokens ? tokenizer.encode_prompt(request.prompt, request.special)
                             : tokenizer.encode(request.prompt, request.special);
}

Result<PreparedRequest> TextSetup::prepare(const Request& request,
                                           std::vector<TokenId> prompt) const {
  PreparedRequest prepared;
  SUBBYTE_TRY(prepared.call_parsers, call_parsers(request, prompt));
  prepared.last_message = last_message(prompt);
  prepared.end = prompt_end(tokenizer, prompt);
  prepared.stop_tokens = stop_tokens_of(request);
  prepared.control_stops = control_stops_of(request);
  prepared.prompt = std::move(prompt);
  return prepared;
}

std::vector<TokenId> TextSetup::stop_tokens_of(const Request& request) const {
  std::vector<TokenId> ids;
  if (!request.ignore_eos) {
    if (request.is_chat()) ids = stop_tokens(format, tokenizer);
    ids.insert(ids.end(), end_tokens.begin(), end_tokens.end());
  }
  ids.insert(ids.end(), request.stop_token_ids.begin(), request.stop_token_ids.end());
  for (const auto& [id, text] : control_stops_of(request)) ids.push_back(id);
  return ids;
}

int64_t TextSetup::last_message(std::span<const TokenId> prompt) const {
  std::vector<TokenId> ends = stop_tokens(format, tokenizer);
  ends.insert(ends.end(), end_tokens.begin(), end_tokens.end());
  const auto last = std::ranges::find_if(prompt.rbegin(), prompt.rend(), [&](TokenId token) {
    return std::ranges::find(ends, token) != ends.end();
  });
  return prompt.rend() - last;
}

std::map<TokenId, std::string> TextSetup::control_stops_of(const Request& request) const {
  std::map<TokenId, std::string> stops;
  for (const std::string& stop : request.stops) {
    const auto id = tokenizer.find(stop);
    if (id && tokenizer.is_special(*id)) stops.emplace(*id, stop);
  }
  return stops;
}

}  // namespace subbyte
