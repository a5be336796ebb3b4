#pragma once
// The text of one sample while it is generated: whole characters, reasoning apart from the answer,
// nothing of a stop string.

#include <optional>
#include <string>

#include "engine/stop_strings.h"
#include "subbyte/answer.h"
#include "subbyte/request.h"
#include "text/chat_parser.h"
#include "text/tool_call_parser.h"

namespace subbyte {

class SampleText {
 public:
  /// The tokenizer must outlive this. `prompt` is how that of a chat ends; `calls` takes calls of
  /// tools out of the answer.
  SampleText(const Request& request, const Tokenizer& tokenizer, ChatFormat format,
             PromptEnd prompt = PromptEnd::kOpen, ToolCallParser calls = {});

  /// Adds a token, and the text that became certain, to a delta.
  void push(TokenId token, Delta& delta);
  /// Adds what is left at the end.
  void finish(Delta& delta);

  /// Tells whether a stop string was found: nothing that comes later is wanted.
  bool stopped() const { return stops_.stopped(); }
  const std::string& stop() const { return stops_.found(); }
  /// Calls of tools in the answer until now.
  int64_t num_calls() const { return num_calls_; }

 private:
  void add(std::vector<Piece> pieces, std::vector<Piece>& given);
  void add_answer(std::string text, std::vector<Piece>& given);
  void take_chat(std::vector<Piece> pieces, Delta& delta);
  void make_reasoning(Delta& delta);
  void release(Delta& delta);

  std::optional<ChatParser> chat_;  // of a chat
  StreamDecoder decoder_;           // of a text
  ToolCallParser calls_;
  StopStrings stops_;
  int64_t min_tokens_;
  bool takes_one_call_;
  bool has_messages_;  // that follow each other, as harmony has them
  int64_t num_calls_ = 0;
  int64_t num_tokens_ = 0;
  bool begins_message_ = true;  // the next piece of the answer
  bool has_content_ = false;    // text for who reads the answer, or its reasoning
  bool has_reasoning_ = false;
  bool follows_call_ = false;  // the next text of the answer
  // Of a text that may still turn out to be reasoning: what it is as an answer, and as that.
  struct Undecided {
    std::vector<Piece> pieces;
    std::string text;
    ToolCallParser calls;  // that have seen nothing of it
  };
  std::optional<Undecided> undecided_;
};

}  // namespace subbyte
