#include "text/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/quote.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

using json::Value;

constexpr std::array<std::string_view, 2> kReasoning = {"reasoning_content", "reasoning"};
/// Fields of a message that no format has tokens for, and that nothing is lost with.
constexpr std::array<std::string_view, 2> kPassedOver = {"role", "content"};

Error lacks(std::size_t index, std::string_view what) {
  return {"chat.no_template",
          fmt::format("messages[{}]: the model has no chat template, and the built-in formats have "
                      "no {}",
                      index, what)};
}

std::optional<Role> role_of(const Value& message) {
  const auto found = message.find("role");
  if (found == nullptr || !found->is_string()) return std::nullopt;
  const auto& role = found->string();
  if (role == "developer") return Role::kSystem;
  for (const Role known : {Role::kSystem, Role::kUser, Role::kAssistant}) {
    if (role == name(known)) return known;
  }
  return std::nullopt;
}

Result<Message> plain_message(const Value& message, std::size_t index) {
  const auto role = message.is_object() ? role_of(message) : std::nullopt;
  if (!role) return lacks(index, "such role");
  Message plain{*role, {}};
  for (const auto& [key, value] : message.items()) {
    if (value.is_null() || std::ranges::find(kPassedOver, key) != kPassedOver.end()) continue;
    const bool is_reasoning = std::ranges::find(kReasoning, key) != kReasoning.end();
    if (!is_reasoning || !value.is_string()) return lacks(index, quote_name(key));
    plain.reasoning = value.get<std::string>();
  }
  const Value content = text_of_content(message.at("content"));
  if (!content.is_string()) return lacks(index, "message without a text");
  plain.content = content.get<std::string>();
  return plain;
}

}  // namespace

Value text_of_content(const Value& content) {
  const auto has_text = [](const Value& part) {
    return part.is_object() && part.contains("text") && part["text"].is_string();
  };
  if (!content.is_array() || !std::ranges::all_of(content, has_text)) return content;
  std::string text;
  for (const Value& part : content) {
    if (&part != content.begin()) text += '\n';
    text += part["text"].string();
  }
  return text;
}

Value to_json(std::span<const Message> messages) {
  Value list = Value::array();
  for (const Message& message : messages) {
    if (!message.json.is_null()) {
      list.push_back(message.json);
      continue;
    }
    Value one = {{"role", name(message.role)}, {"content", utf8::replace_invalid(message.content)}};
    if (message.reasoning) one["reasoning_content"] = utf8::replace_invalid(*message.reasoning);
    list.push_back(std::move(one));
  }
  return list;
}

Result<std::vector<Message>> plain_messages(const Value& messages) {
  std::vector<Message> plain;
  for (const Value& message : messages) {
    SUBBYTE_TRY(Message one, plain_message(message, plain.size()));
    plain.push_back(std::move(one));
  }
  return plain;
}

std::vector<Message> messages_of(const Value& list) {
  std::vector<Message> messages;
  for (const Value& message : list) messages.push_back({.json = message});
  return messages;
}

}  // namespace subbyte
