#pragma once
// What a chat model writes, taken apart: the answer goes to stdout, reasoning and calls to stderr.
//
// Where a </think> that nothing has opened may still make reasoning of what came before it, and
// stdout is no terminal, the answer is held back until that is known.

#include <optional>
#include <string>

#include "session/text_setup.h"
#include "text/think_parser.h"

namespace subbyte::app {

class ChatOutput {
 public:
  /// `prompt` is how the prompt ends.
  ChatOutput(const TextSetup& text, PromptEnd prompt, bool hide_reasoning);

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
  void take_answer_back();
  void release();

  bool hide_reasoning_;
  bool holds_;  // the answer, until it is known to be one
  std::string answer_;
  std::string reasoning_;
};

}  // namespace subbyte::app
