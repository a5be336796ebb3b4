#include "app/template_flags.h"

#include <fmt/format.h>

#include "app/text_input.h"
#include "base/sha256.h"
#include "session/chat_prompt.h"

namespace subbyte::app {

void TemplateFlags::add_to(Command command) {
  const std::string group = "Chat templates (docs/chat_templates.md)";
  command
      .option("--chat-template-file", file_,
              "put messages into this template instead of the model's own")
      .value("FILE")
      .group(group);
  command
      .option("--chat-template-kwargs", variables_,
              "a JSON object with variables of the template, such as {\"enable_thinking\": false}")
      .value("JSON")
      .group(group);
}

Status TemplateFlags::apply(TextSetup& text, Request& request) {
  if (file_) {
    SUBBYTE_TRY(source_, read_text(*file_));
    text.chat_template = ChatTemplate::compile(source_, *file_, text.files);
    if (!text.chat_template->ok()) return text.chat_template->error();
  }
  if (!variables_) return {};
  constexpr std::string_view kName = "--chat-template-kwargs";
  const auto value = json::parse(*variables_, kName);
  const auto object = value.ok() ? json::Object::of(*value, kName) : value.error();
  if (!object.ok()) return Error{"usage.chat_template_kwargs", object.error().message};
  json::Value variables = json::Value::object();
  if (const Status added = add_template_variables(*object, variables); !added) {
    return Error{"usage.chat_template_kwargs", added.error().message};
  }
  const Request option = {.template_variables = std::move(variables)};
  SUBBYTE_CHECK(check_does_something(text, option, kName, "usage.chat_template_kwargs"));
  request.template_variables = option.template_variables;
  return {};
}

void TemplateFlags::describe(JobRecord& record) const {
  if (file_) record["chat_template"] = sha256(std::as_bytes(std::span(source_))).substr(0, 16);
  if (variables_) record["chat_template_kwargs"] = *variables_;
}

Status check_does_something(const TextSetup& text, const Request& option, std::string_view name,
                            std::string_view code) {
  const Status status = check_chat_options(text, option);
  if (status.ok() || status.error().code != "chat.option") return status;
  return Error{code,
               fmt::format("{} does nothing with this model ({})", name, status.error().message)};
}

}  // namespace subbyte::app
