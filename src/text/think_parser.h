#pragma once
// The output of Qwen3, taken apart into reasoning (kAnalysis) and answer (kFinal):
//
//   <think>\n reasoning \n</think>\n\n answer
//
// The line breaks next to the two tokens belong to neither. Only the tokens count, not text that is
// spelled like them.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "text/chat_output.h"
#include "text/tokenizer.h"

namespace subbyte {

class ThinkParser {
 public:
  /// `thinking`: the prompt ended inside the reasoning, as those of models that always reason do.
  /// `tokenizer` must outlive this.
  ThinkParser(const Tokenizer& tokenizer, bool thinking);

  /// Pieces that became known with this token. Stop tokens may be pushed too.
  std::vector<OutputPiece> push(TokenId id);
  /// What is left at the end.
  std::vector<OutputPiece> finish();

 private:
  void take_text(std::string text, std::vector<OutputPiece>& pieces);
  void enter(bool thinking);

  StreamDecoder decoder_;
  std::optional<TokenId> open_;
  std::optional<TokenId> close_;
  bool thinking_;
  bool skip_breaks_;                 // at the front of a part
  std::size_t num_held_breaks_ = 0;  // of the reasoning, dropped if </think> follows
  bool begins_message_ = true;
};

}  // namespace subbyte
