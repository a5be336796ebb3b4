#include "text/chat_template.h"

#include "base/model_file.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxFileBytes = 16 << 20;

/// A text, or a list of {"name": ..., "template": ...}.
std::optional<std::string> template_of(const json::Value& config) {
  if (!config.is_object() || !config.contains("chat_template")) return std::nullopt;
  const json::Value& value = config["chat_template"];
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  for (const json::Value& entry : value) {
    const bool is_template = entry.is_object() && entry.contains("template") &&
                             entry["template"].is_string() && entry.contains("name");
    if (is_template && entry["name"] == "default") return entry["template"].get<std::string>();
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<std::string>> read_chat_template(const fs::path& directory) {
  const fs::path jinja = directory / "chat_template.jinja";
  if (is_there(jinja)) {
    SUBBYTE_TRY(const MappedFile file, open_model_file(jinja, kMaxFileBytes));
    return std::optional(std::string(json::text_of(file)));
  }
  const fs::path config = directory / "tokenizer_config.json";
  if (!is_there(config)) return std::optional<std::string>();
  SUBBYTE_TRY(const json::Value value, json::parse_file(config.string(), kMaxFileBytes));
  return template_of(value);
}

bool opens_reasoning(std::string_view chat_template) {
  const std::size_t prompt = chat_template.rfind("add_generation_prompt");
  if (prompt == std::string_view::npos) return false;
  const std::string_view tail = chat_template.substr(prompt);
  for (std::size_t at = tail.find("<think>"); at < tail.size(); at = tail.find("<think>", at + 1)) {
    const std::string_view quoted = tail.substr(at, tail.find_first_of("'\"", at) - at);
    if (quoted.find("</think>") == std::string_view::npos) return true;
  }
  return false;
}

Status read_template_options(const fs::path& directory, ChatOptions& options) {
  SUBBYTE_TRY(const auto text, read_chat_template(directory));
  options.template_is_known = text.has_value();
  options.opens_reasoning = text && opens_reasoning(*text);
  return {};
}

}  // namespace subbyte
