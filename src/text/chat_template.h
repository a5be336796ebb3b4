#pragma once
// The chat template that a model brings along, and what the reference (apply_chat_template of
// transformers) does before it renders one: docs/chat_templates.md.
//
//   chat_template.jinja, additional_chat_templates/*.jinja                  before
//   tokenizer_config.json: chat_template, a text or a list of named ones    before
//   chat_template.json: the same

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/template.h"
#include "json/side_files.h"

namespace subbyte {

/// A conversation, and what is rendered with it.
struct TemplateInput {
  json::Value messages = json::Value::array();  // objects, at least one
  json::Value tools;                            // a list of objects, or null
  json::Value variables = json::Value::object();
  bool add_generation_prompt = true;
  /// The prompt ends where the content of the last message does, which is a text then.
  bool continue_final_message = false;
  std::tm now{};  // as strftime_now of the template sees it
};

class ChatTemplate {
 public:
  /// nullopt where a model has none. Codes: json.*, file.*; those of jinja::Template::compile.
  static Result<std::optional<ChatTemplate>> read(const SideFiles& files);

  /// A template that comes from elsewhere, with the special tokens that files name. Codes:
  /// json.*, file.*; those of jinja::Template::compile.
  static Result<ChatTemplate> compile(std::string_view source, std::string_view where,
                                      const SideFiles& files = {});

  /// The text of the prompt. Texts of messages, tools and variables are of the input, and all else
  /// of the template. Codes: those of jinja::Template::render; template.messages for what is no
  /// list of messages, template.tools, template.variable for names that are taken, template.name
  /// where there are named templates and none is the default, template.continue where the last
  /// message cannot be gone on with.
  Result<jinja::OriginText> render(const TemplateInput& input) const;

  /// Says whether one of the templates that are rendered reads a variable.
  bool reads(std::string_view variable) const;
  /// Says whether a text stands in one of them.
  bool contains(std::string_view text) const;

 private:
  struct Named {
    std::string name;
    std::string source;
    jinja::Template compiled;
  };

  Status read_special_tokens(const json::Value& config, const SideFiles& files);
  const jinja::Template* find(std::string_view name) const;
  Result<std::vector<jinja::Variable>> variables_of(const TemplateInput& input,
                                                    json::Value messages) const;

  std::vector<Named> templates_;
  std::vector<jinja::Variable> special_tokens_;  // bos_token and others
};

/// The names and texts of the templates of a model. Codes: json.*, file.*.
Result<std::vector<std::pair<std::string, std::string>>> named_chat_templates(
    const SideFiles& files);

/// The texts of all templates that ChatTemplate::read() finds, those that are not
/// rendered included. Codes: json.*, file.*.
Result<std::vector<std::string>> chat_template_texts(const SideFiles& files);

/// The names that render() gives itself.
bool is_template_variable(std::string_view name);

/// A day "2025-08-05", or a time "2025-08-05T13:30:00"; nullopt for other texts.
std::optional<std::tm> parse_time(std::string_view text);

}  // namespace subbyte
