#pragma once
// Options about the chat template of a model, by the names that llama.cpp has for them.

#include <filesystem>
#include <optional>
#include <string>

#include "app/command.h"
#include "completions/result_lines.h"
#include "session/text_setup.h"

namespace subbyte::app {

class TemplateFlags {
 public:
  void add_to(Command command);
  bool are_given() const { return file_ || variables_; }

  /// Gives `text` the template, and `request` the variables. Codes:
  /// those of read_text and ChatTemplate::compile; usage.chat_template_kwargs for what is no object
  /// of JSON, and for variables that its chats do not have.
  Status apply(TextSetup& text, Request& request);

  /// Adds what decides answers to the record of a job.
  void describe(JobRecord& record) const;

 private:
  std::optional<std::string> file_;
  std::optional<std::string> variables_;  // JSON
  std::string source_;                    // what the file has
};

/// Refuses an option with this name that does nothing with the model. `code` is for that.
Status check_does_something(const TextSetup& text, const Request& option, std::string_view name,
                            std::string_view code);

}  // namespace subbyte::app
