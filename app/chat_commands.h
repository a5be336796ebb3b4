#pragma once
// What begins with a slash in a conversation: /help, /clear, ...

#include <filesystem>
#include <string>
#include <vector>

#include "app/conversation.h"

namespace subbyte::app {

class ChatCommands {
 public:
  /// `conversation` must outlive this.
  explicit ChatCommands(Conversation& conversation) : conversation_(&conversation) {}

  enum class Outcome : uint8_t { kNoCommand, kDone, kExit };

  /// Words that a line may begin with: "/help", "/save", ...
  static std::vector<std::string> names();

  /// A line that begins with a slash and a word of letters is a command. Codes: chat.command for
  /// one that there is not or that lacks its argument; those of what it does.
  Result<Outcome> run(const std::string& line);

 private:
  struct Row;
  static const Row kRows[];

  Result<Outcome> help(const std::string& argument);
  Result<Outcome> clear(const std::string& argument);
  Result<Outcome> regenerate(const std::string& argument);
  Result<Outcome> system(const std::string& argument);
  Result<Outcome> save(const std::string& argument);
  Result<Outcome> load(const std::string& argument);
  Result<Outcome> read(const std::string& argument);
  Result<Outcome> stats(const std::string& argument);
  Result<Outcome> exit(const std::string& argument);

  Conversation* conversation_;
  std::filesystem::path file_;  // that this conversation was saved to or loaded from
};

}  // namespace subbyte::app
