#include "app/conversation_file.h"
#include "app/output.h"

#include <fmt/format.h>

#include <array>

#include "base/output_file.h"
#include "base/quote.h"
#include "json/strict_json.h"

namespace subbyte::app {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};  // by ChatRole

Result<ChatMessage> read_message(const json::Value& value, std::size_t index,
                                 const std::string& path) {
  const std::string where = fmt::format("{}: messages[{}]", path, index);
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, where));
  SUBBYTE_TRY(const std::string role, object.required_string("role"));
  SUBBYTE_TRY(std::string content, object.required_string("content"));
  for (std::size_t i = 0; i < kRoles.size(); ++i) {
    if (role == kRoles[i] && (i > 0 || index == 0)) {
      return ChatMessage{static_cast<ChatRole>(i), std::move(content)};
    }
  }
  return object.error("chat.role", "role",
                      index == 0 ? "system, user or assistant" : "user or assistant");
}

}  // namespace

Status save_conversation(const std::filesystem::path& path, std::span<const ChatMessage> messages,
                         bool overwrite) {
  json::Value root;
  root["messages"] = json::Value::array();
  for (const ChatMessage& message : messages) {
    root["messages"].push_back(
        {{"role", kRoles[static_cast<std::size_t>(message.role)]}, {"content", message.content}});
  }
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
