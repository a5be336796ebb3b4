#pragma once
// A conversation with a chat model: what was said, and what of it the cache holds.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/command.h"
#include "app/interrupt.h"

namespace subbyte::app {

struct ChatSettings {
  Request request;  // but for the messages
  bool hide_reasoning = false;
};

class Conversation {
 public:
  /// Both must outlive this, and `session` answers nothing else meanwhile.
  Conversation(const Invocation& invocation, Session& session, ChatSettings settings)
      : invocation_(&invocation), session_(&session), settings_(std::move(settings)) {}

  /// Says this and prints the answer. After an error the conversation is what
  /// it was before. Codes: chat.too_long when the message alone fills the context; those of
  /// TextSetup::encode and answer_one.
  Status say(const std::string& text);
  /// Answers the last message once more, with another seed. Code chat.no_message.
  Status answer_again();

  /// From now on Ctrl-C stops an answer. `ctrl_c` must outlive this.
  void stop_by(Interruptible& ctrl_c) { ctrl_c_ = &ctrl_c; }

  /// Forgets all but the instructions.
  void clear();
  /// The instructions; empty: none.
  std::string system() const;
  void set_system(const std::string& text);

  const std::vector<Message>& messages() const { return messages_; }
  void set_messages(std::vector<Message> messages) { messages_ = std::move(messages); }

  /// The report on the last answer; empty where there is none.
  std::string statistics() const;

 private:
  SamplingOptions sampling() const;
  Status answer();
  Result<std::vector<TokenId>> fitting_prompt();
  Result<SampleEnd> generate_answer(std::vector<TokenId> prompt);

  const Invocation* invocation_;
  Session* session_;
  ChatSettings settings_;
  std::vector<Message> messages_;
  std::optional<SampleEnd> stats_;
  Interruptible* ctrl_c_ = nullptr;
};

/// A request with these messages.
Request request_of(const ChatSettings& settings, std::span<const Message> messages);

/// Code chat.too_long unless a prompt of so many tokens leaves room in the context.
Status check_prompt(int64_t tokens, int64_t context);

}  // namespace subbyte::app
