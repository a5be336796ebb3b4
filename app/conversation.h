#pragma once
// A conversation with a chat model: what was said, and what of it the cache holds.

#include <optional>
#include <string>
#include <vector>

#include "app/command.h"
#include "app/interrupt.h"
#include "engine/generate.h"
#include "text/chat.h"

namespace subbyte::app {

struct ChatSettings {
  ChatFormat format = ChatFormat::kChatMl;
  ChatOptions options;
  GenerateOptions generation;
  bool hide_reasoning = false;
};

class Conversation {
 public:
  /// `loaded` and `tokenizer` must outlive this.
  Conversation(const LoadedModel& loaded, const Tokenizer& tokenizer, ChatSettings settings,
               Sequence sequence);

  /// Says this and prints the answer. After an error the conversation is what
  /// it was before. Codes: chat.too_long when the message alone fills the context; those of
  /// encode_segments and generate.
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

  const std::vector<ChatMessage>& messages() const { return messages_; }
  void set_messages(std::vector<ChatMessage> messages) { messages_ = std::move(messages); }

  /// The report on the last answer; empty where there is none.
  std::string statistics() const;

 private:
  Status answer();
  Result<std::vector<TokenId>> fitting_prompt();
  std::size_t reuse_cache(const std::vector<TokenId>& prompt);
  Result<GenerateStats> generate_answer(const std::vector<TokenId>& prompt);

  const LoadedModel* loaded_;
  const Tokenizer* tokenizer_;
  ChatSettings settings_;
  Sequence sequence_;
  std::vector<TokenId> cached_;  // the tokens whose keys and values the cache holds
  std::vector<ChatMessage> messages_;
  std::optional<GenerateStats> stats_;
  Interruptible* ctrl_c_ = nullptr;
};

/// The prompt of a conversation of today. Codes: those of encode_segments.
Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer, const ChatSettings& settings,
                                         std::span<const ChatMessage> messages);

/// Code chat.too_long unless a prompt of so many tokens leaves room in the context.
Status check_prompt(int64_t tokens, int64_t context);

}  // namespace subbyte::app
