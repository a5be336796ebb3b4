#pragma once
// What a chat model writes, taken apart: the answer goes to stdout, reasoning and calls to stderr.

#include <optional>
#include <string>

#include "session/text_setup.h"

namespace subbyte::app {

class ChatOutput {
 public:
  explicit ChatOutput(bool hide_reasoning) : hide_reasoning_(hide_reasoning) {}

  void show(const Delta& delta);
  /// The end of the answer, and of its line.
  void finish();
  const std::string& answer() const { return answer_; }
  /// The thoughts of the model before it; nullopt without any.
  std::optional<std::string> reasoning() const {
    return reasoning_.empty() ? std::nullopt : std::optional(reasoning_);
  }

 private:
  void show_reasoning(const std::string& text);

  bool hide_reasoning_;
  std::string answer_;
  std::string reasoning_;
};

}  // namespace subbyte::app
