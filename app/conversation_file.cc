#include "app/conversation_file.h"
#include "app/output.h"

#include <fmt/format.h>

#include <array>

#include "base/output_file.h"
#include "base/quote.h"
#include "json/strict_json.h"
#include "text/chat_messages.h"

namespace subbyte::app {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
constexpr std::array<ChatRole, 3> kRoles = {ChatRole::kSystem, ChatRole::kUser,
                                            ChatRole::kAssistant};

Result<ChatMessage> read_message(const json::Value& value, std::size_t index,
                                 const std::string& path) {
  const std::string where = fmt::format("{}: messages[{}]", path, index);
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, where));
  SUBBYTE_TRY(const std::string role, object.required_string("role"));
  SUBBYTE_TRY(std::string content, object.required_string("content"));
  SUBBYTE_TRY(auto reasoning, object.string("reasoning_content"));
  for (const ChatRole known : kRoles) {
    if (role != name(known) || (known == ChatRole::kSystem && index > 0)) continue;
    return ChatMessage{known, std::move(content), std::move(reasoning)};
  }
  return object.error("chat.role", "role",
                      index == 0 ? "system, user or assistant" : "user or assistant");
}

}  // namespace

Status save_conversation(const std::filesystem::path& path, std::span<const ChatMessage> messages,
                         bool overwrite) {
  json::Value root;
  root["messages"] = to_json(messages);
  SUBBYTE_TRY(OutputFile file, OutputFile::create(path, overwrite));
  SUBBYTE_CHECK(file.write(json_text(root)));
  return file.commit();
}

Result<std::vector<ChatMessage>> load_conversation(const std::filesystem::path& path) {
  SUBBYTE_TRY(const json::Value root,
              json::parse_file(path.string(), kMaxBytes, {}, json::kTextMemoryFactor));
  SUBBYTE_TRY(const json::Object object, json::Object::of(root, path.string()));
  const json::Value* list = object.find("messages");
  if (list == nullptr || !list->is_array()) {
    return object.error("json.type", "messages", "a list of messages");
  }
  std::vector<ChatMessage> messages;
  for (const json::Value& value : *list) {
    SUBBYTE_TRY(ChatMessage message, read_message(value, messages.size(), path.string()));
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace subbyte::app
