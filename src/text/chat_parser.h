#pragma once
// The parser of generated text that fits a chat format.

#include <variant>
#include <vector>

#include "text/chat.h"
#include "text/harmony_parser.h"
#include "text/think_parser.h"

namespace subbyte {

class ChatParser {
 public:
  /// For the answer to a prompt that ends so; `may_end_late` as ThinkParser has it. `tokenizer`
  /// must outlive this.
  ChatParser(ChatFormat format, PromptEnd prompt, bool may_end_late, const Tokenizer& tokenizer)
      : parser_(format == ChatFormat::kHarmony
                    ? Parser(HarmonyParser(tokenizer))
                    : Parser(ThinkParser(tokenizer, prompt, may_end_late))) {}

  /// Pieces that became known with this token. Stop tokens may be pushed too.
  std::vector<Piece> push(TokenId id) {
    return std::visit([&](auto& parser) { return parser.push(id); }, parser_);
  }
  /// Gives what is left at the end.
  std::vector<Piece> finish() {
    return std::visit([](auto& parser) { return parser.finish(); }, parser_);
  }
  /// Those of ThinkParser.
  bool is_undecided() const {
    const auto* const think = std::get_if<ThinkParser>(&parser_);
    return think != nullptr && think->is_undecided();
  }
  bool has_ended_late() const {
    const auto* const think = std::get_if<ThinkParser>(&parser_);
    return think != nullptr && think->has_ended_late();
  }

 private:
  using Parser = std::variant<HarmonyParser, ThinkParser>;
  Parser parser_;
};

}  // namespace subbyte
