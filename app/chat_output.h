#pragma once
// What a chat model writes, taken apart: the answer goes to stdout, reasoning and calls to stderr.

#include <string>
#include <variant>
#include <vector>

#include "text/chat.h"
#include "text/harmony_parser.h"
#include "text/think_parser.h"
#include "text/tokenizer.h"

namespace subbyte::app {

class ChatOutput {
 public:
  /// `tokenizer` must outlive this.
  ChatOutput(ChatFormat format, const Tokenizer& tokenizer, bool hide_reasoning);

  void push(TokenId id);
  /// The end of the answer, and of its line.
  void finish();
  const std::string& answer() const { return answer_; }

 private:
  void show(const std::vector<OutputPiece>& pieces);

  std::variant<std::monostate, HarmonyParser, ThinkParser> parser_;
  bool hide_reasoning_;
  bool colour_;
  std::string answer_;
};

}  // namespace subbyte::app
