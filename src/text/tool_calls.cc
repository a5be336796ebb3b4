#include "text/tool_calls.h"

#include "text/chat_template.h"

namespace subbyte {

ToolCallStyle tool_call_style(ChatFormat format, const ChatTemplate* chat_template) {
  if (format == ChatFormat::kHarmony) return ToolCallStyle::kHarmony;
  if (chat_template == nullptr) return ToolCallStyle::kNone;
  if (chat_template->contains("<|tool_call>call:")) return ToolCallStyle::kBareKeys;
  if (chat_template->contains("<function=")) return ToolCallStyle::kXml;
  if (chat_template->contains("<minimax:tool_call>")) return ToolCallStyle::kInvokes;
  if (chat_template->contains("<arg_key>")) return ToolCallStyle::kKeys;
  if (chat_template->contains("<\uff5ctool\u2581call\u2581begin\uff5c>"))
    return ToolCallStyle::kDeepSeek;
  if (chat_template->contains("<|tool_call_argument_begin|>")) return ToolCallStyle::kKimi;
  if (chat_template->contains("<tool_call>")) return ToolCallStyle::kJson;
  // What Llama 3.1 and later are told to write, and the name of the tool of theirs that does not.
  if (chat_template->contains("<|python_tag|>") || chat_template->contains("\"parameters\": ")) {
    return ToolCallStyle::kJsonAnswer;
  }
  return ToolCallStyle::kNone;
}

const json::Value* find_function(const json::Value& tools, std::string_view name) {
  if (!tools.is_array()) return nullptr;
  for (const json::Value& tool : tools) {
    if (!tool.is_object()) continue;
    const auto inner = tool.find("function");
    const json::Value& function = inner != nullptr && inner->is_object() ? *inner : tool;
    const auto found = function.find("name");
    if (found != nullptr && found->is_string() && found->string() == name) {
      return &function;
    }
  }
  return nullptr;
}

}  // namespace subbyte
