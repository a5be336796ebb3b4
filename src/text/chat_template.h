#pragma once
// What is read of a model's chat template, which is not run.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/chat.h"

namespace subbyte {

/// The template that the reference would take: chat_template.jinja, else chat_template of
/// tokenizer_config.json, where a list of several has one that is named "default". nullopt without
/// one. Codes: json.*, file.*.
Result<std::optional<std::string>> read_chat_template(const std::filesystem::path& directory);

/// Says whether the prompts that a template makes end with an open <think>: after its last
/// add_generation_prompt a quoted text has the mark and does not close it.
bool opens_reasoning(std::string_view chat_template);

/// Reads what the template in `directory` says of prompts; the rest of `options` stays. Codes:
/// those of read_chat_template.
Status read_template_options(const std::filesystem::path& directory, ChatOptions& options);

}  // namespace subbyte
