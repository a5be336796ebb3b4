#pragma once
// The output of Qwen3, taken apart into reasoning (kReasoning) and answer (kAnswer):
//
//   <think>\n reasoning \n</think>\n\n answer
//
// or that of Gemma 4:
//
//   <|channel>thought\n reasoning <channel|> answer
//
// or those with other marks (think_parser.cc). ERNIE and Hunyuan have marks around the answer, too.
// The line breaks next to the tokens belong to neither. Only the tokens count, not text that is
// spelled like them. Marks of calls of tools are text, though they are special tokens of some
// vocabularies. Of an answer with </think> alone, what comes before it is reasoning: the template
// of such a model opens it in the prompt. Who has given that out by then can make no reasoning of
// it any more: then the answer goes on, and </think> is text of it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "subbyte/answer.h"
#include "text/tokenizer.h"

namespace subbyte {

/// How a prompt ends.
enum class PromptEnd : uint8_t {
  kOpen,     // where nothing tells: the model may reason, or not
  kReasons,  // inside the reasoning, as those of models that always reason do
  kAnswers,  // after it
};

/// Two tokens, and what is written after the first of them.
struct ReasoningMarks {
  std::string_view open;
  std::string_view close;
  std::string_view label = {};
};

/// How the tokens of a prompt end: <think> or </think> is the last added token of them, white space
/// aside, or neither is.
PromptEnd prompt_end(const Tokenizer& tokenizer, std::span<const TokenId> prompt);

class ThinkParser {
 public:
  /// `tokenizer` must outlive this. `may_end_late`: a </think> that nothing opened ends reasoning.
  ThinkParser(const Tokenizer& tokenizer, PromptEnd prompt, bool may_end_late);

  /// Pieces that became known with this token. Stop tokens may be pushed too.
  std::vector<Piece> push(TokenId id);
  /// Gives what is left at the end.
  std::vector<Piece> finish();
  /// Says whether what is given out as the answer may still turn out to be reasoning.
  bool is_undecided() const { return is_undecided_; }
  /// Says whether the token that was pushed last was a </think> that nothing had opened: what was
  /// given out as the answer until then is reasoning.
  bool has_ended_late() const { return has_ended_late_; }

 private:
  void take_text(std::string text, std::vector<Piece>& pieces);
  std::string without_label(std::string text);
  void enter(bool thinking);
  bool takes_answer_mark(TokenId id, std::vector<Piece>& pieces);

  const ReasoningMarks& marks_;
  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;
  std::optional<TokenId> open_;
  std::optional<TokenId> close_;
  std::optional<TokenId> answer_open_;
  std::optional<TokenId> answer_close_;
  bool thinking_;
  bool in_answer_ = false;  // between its marks
  bool may_end_late_;
  bool is_undecided_;  // no mark has come
  bool has_ended_late_ = false;
  bool skip_breaks_;                 // at the front of a part
  bool may_have_label_;              // at the front of the reasoning
  std::string begun_label_;          // what came of it
  std::size_t num_held_breaks_ = 0;  // dropped if the end mark follows
  bool begins_message_ = true;
};

}  // namespace subbyte
