#pragma once
// The output of gpt-oss, taken apart into channels. The prompt ended with "<|start|>assistant", so
// a well-formed output is
//
//   <|channel|>analysis<|message|>...<|end|>
//   <|start|>assistant<|channel|>final<|message|>...<|return|>        (in one line)
//
// A few percent of real outputs are not well formed; nothing here fails. Text without a header is
// the answer. A header without <|message|> ends at a line break or after 128 bytes, and the rest is
// text. A message without <|end|> ends where the next header begins.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "subbyte/answer.h"
#include "text/tokenizer.h"

namespace subbyte {

class HarmonyParser {
 public:
  /// `tokenizer` must outlive this.
  explicit HarmonyParser(const Tokenizer& tokenizer);

  /// Pieces that became known with this token. Stop tokens may be pushed too.
  std::vector<Piece> push(TokenId id);
  /// Gives what is left at the end.
  std::vector<Piece> finish();

 private:
  enum class State : uint8_t { kRole, kChannel, kContent };
  enum class Control : uint8_t { kStart, kChannel, kMessage, kConstrain, kEnd };

  std::optional<Control> control_of(TokenId id) const;
  void take_text(const std::string& text);
  void take_control(Control control);
  void begin_header(bool has_role);
  void begin_content();
  void end_header();
  void emit(std::string_view text);

  const Tokenizer* tokenizer_;
  StreamDecoder decoder_;
  struct ControlToken {
    TokenId id;
    Control control;
  };
  std::vector<ControlToken> controls_;

  State state_ = State::kRole;
  bool has_role_ = false;     // <|start|> was seen: the header begins with a role
  std::string role_text_;     // header in front of <|channel|>
  std::string channel_text_;  // header after it
  Channel channel_ = Channel::kAnswer;
  std::string recipient_;
  bool begins_message_ = true;
  std::vector<Piece> pieces_;
};

}  // namespace subbyte
