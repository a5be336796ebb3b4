#pragma once
// A conversation in a file: one JSON object, as chat interfaces take it.
//
//   {"messages": [{"role": "system", "content": "..."}, {"role": "user", "content": "..."}, ...]}

#include <filesystem>
#include <span>
#include <vector>

#include "base/status.h"
#include "text/chat.h"

namespace subbyte::app {

/// Codes: those of OutputFile; file.exists unless `overwrite`.
Status save_conversation(const std::filesystem::path& path, std::span<const Message> messages,
                         bool overwrite);

/// At most 64 MiB, the instructions first, if there are any. Codes: those of json::parse_file,
/// json.type, json.missing; chat.role for other roles and instructions in the middle.
Result<std::vector<Message>> load_conversation(const std::filesystem::path& path);

}  // namespace subbyte::app
