#pragma once
// Messages of a chat as APIs and templates have them, and what the built-in formats know of those.

#include <span>
#include <vector>

#include "base/status.h"
#include "json/strict_json.h"
#include "text/chat.h"

namespace subbyte {

/// {"role": ..., "content": ..., "reasoning_content": ...} for each, or the object that it is.
json::Value to_json(std::span<const Message> messages);
/// The objects of a list as messages.
std::vector<Message> messages_of(const json::Value& list);

/// The content of a message: a text, or the texts of a list of parts with line breaks between them,
/// as vLLM and llama.cpp join them for a template that does not look into lists.
json::Value text_of_content(const json::Value& content);

/// Reads messages for a format that is built in. `developer` is another word for `system`. Code
/// chat.no_template for what such a format does not have: other roles, calls of tools.
Result<std::vector<Message>> plain_messages(const json::Value& messages);

}  // namespace subbyte
