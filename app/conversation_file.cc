#include "app/conversation_file.h"
#include "app/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "base/output_file.h"
#include "base/quote.h"
#include "completions/request.h"
#include "json/key_rules.h"
#include "json/strict_json.h"
#include "text/chat_messages.h"

namespace subbyte::app {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
constexpr std::array<Role, 3> kRoles = {Role::kSystem, Role::kUser, Role::kAssistant};

/// Nothing of a file is passed over: a field is read here, asks for nothing, or changes no answer.
Status check_fields(const json::Object& object, std::span<const std::string_view> read,
                    std::span<const json::KeyRule> rules) {
  for (const auto& [key, value] : object.members()) {
    const json::KeyRule* const rule = json::find_rule(rules, key);
    const bool is_read = std::ranges::find(read, key) != read.end();
    const bool is_nothing = value.is_null() || (value.is_array() && value.empty()) ||
                            (rule != nullptr && (rule->use == json::KeyUse::kIgnored ||
                                                 json::asks_for_nothing(*rule, value)));
    if (is_read || is_nothing) continue;
    return Error{"completion.field",
                 fmt::format("{}: the field {} is none of a conversation that /load goes on with",
                             object.where(), quote(key))};
  }
  return {};
}

/// Reasoning, by either of its names.
Result<std::optional<std::string>> read_reasoning(const json::Object& message) {
  SUBBYTE_TRY(auto older, message.string("reasoning_content"));
  SUBBYTE_TRY(auto newer, message.string("reasoning"));
  if (!older || !newer || *older == *newer) return older ? older : newer;
  return message.error("completion.field", "reasoning", "the same text as \"reasoning_content\"");
}

Result<Message> read_message(const json::Value& value, std::size_t index, const std::string& path) {
  const std::string where = fmt::format("{}: messages[{}]", path, index);
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, where));
  SUBBYTE_TRY(const std::string role, object.required_string("role"));
  SUBBYTE_TRY(std::string content, object.required_string("content"));
  constexpr std::array<std::string_view, 4> kFields = {"role", "content", "reasoning_content",
                                                       "reasoning"};
  SUBBYTE_CHECK(check_fields(object, kFields, message_rules()));
  SUBBYTE_TRY(auto reasoning, read_reasoning(object));
  for (const Role known : kRoles) {
    if (role != name(known) || (known == Role::kSystem && index > 0)) continue;
    return Message{known, std::move(content), std::move(reasoning)};
  }
  return object.error("chat.role", "role",
                      index == 0 ? "system, user or assistant" : "user or assistant");
}

}  // namespace

Status save_conversation(const std::filesystem::path& path, std::span<const Message> messages,
                         bool overwrite) {
  json::Value root;
  root["messages"] = to_json(messages);
  SUBBYTE_TRY(OutputFile file, OutputFile::create(path, overwrite));
  SUBBYTE_CHECK(file.write(json_text(root)));
  return file.commit();
}

Result<std::vector<Message>> load_conversation(const std::filesystem::path& path) {
  SUBBYTE_TRY(const json::Value root,
              json::parse_file(path.string(), kMaxBytes, {}, json::kTextMemoryFactor));
  SUBBYTE_TRY(const json::Object object, json::Object::of(root, path.string()));
  const json::Value* list = object.find("messages");
  if (list == nullptr || !list->is_array()) {
    return object.error("json.type", "messages", "a list of messages");
  }
  constexpr std::array<std::string_view, 1> kFields = {"messages"};
  SUBBYTE_CHECK(check_fields(object, kFields, request_rules()));
  std::vector<Message> messages;
  for (const json::Value& value : *list) {
    SUBBYTE_TRY(Message message, read_message(value, messages.size(), path.string()));
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace subbyte::app
