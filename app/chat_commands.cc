#include "app/chat_commands.h"
#include "app/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/conversation_file.h"
#include "app/foreign_names.h"
#include "app/text_input.h"
#include "base/near_words.h"
#include "base/quote.h"

namespace subbyte::app {
namespace {

void say(const std::string& text) {
  tell(line("{}", text), 2);
}

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= 'a' && c <= 'z'; });
}

}  // namespace

struct ChatCommands::Row {
  std::string_view name;
  std::string_view other_names;  // what other programs call it, separated by blanks
  std::string_view argument;
  std::string_view help;
  Result<Outcome> (ChatCommands::*run)(const std::string& argument);
};

constexpr ChatCommands::Row ChatCommands::kRows[] = {
    {"help", "?", "", "this list", &ChatCommands::help},
    {"clear", "reset new", "", "forget what was said, and keep the instructions",
     &ChatCommands::clear},
    {"regenerate", "regen retry", "", "answer the last message once more, with another seed",
     &ChatCommands::regenerate},
    {"system", "", "[TEXT]", "show the instructions, or set them (none: remove them)",
     &ChatCommands::system},
    {"save", "", "[FILE]", "write the conversation as JSON; without a name to the last file",
     &ChatCommands::save},
    {"read", "", "FILE", "send the text of a file as a message", &ChatCommands::read},
    {"load", "", "FILE", "go on with a conversation that was saved", &ChatCommands::load},
    {"stats", "", "", "speed, memory and context of the last answer", &ChatCommands::stats},
    {"exit", "quit bye q", "", "end (Ctrl-D, too)", &ChatCommands::exit},
};

std::vector<std::string> ChatCommands::names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.push_back(fmt::format("/{}", row.name));
  return names;
}

Result<ChatCommands::Outcome> ChatCommands::run(const std::string& line) {
  if (line.find('\n') != line.npos) return Outcome::kNoCommand;
  const std::size_t end = std::min(line.find(' '), line.size());
  if (!line.starts_with('/') || !is_word(std::string_view(line).substr(1, end - 1))) {
    return Outcome::kNoCommand;
  }
  const std::string_view name = std::string_view(line).substr(1, end - 1);
  const std::size_t begin = std::min(line.find_first_not_of(' ', end), line.size());
  const std::string argument = line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
  const auto row = std::ranges::find_if(kRows, [&](const Row& candidate) {
    return candidate.name == name || has_word(candidate.other_names, name);
  });
  if (row == std::end(kRows)) {
    return Error{"chat.command",
                 fmt::format("no command /{}{}; /help lists them (a message that begins with a "
                             "slash wants a blank before it)",
                             name, did_you_mean(line.substr(0, end), names()))};
  }
  if (row->argument.empty() && !argument.empty()) {
    return Error{"chat.command", fmt::format("/{} takes nothing, found {}", name, quote(argument))};
  }
  return (this->*row->run)(argument);
}

Result<ChatCommands::Outcome> ChatCommands::help(const std::string&) {
  for (const Row& row : kRows) {
    tell(line("  {:<16} {}", fmt::format("/{} {}", row.name, row.argument), row.help), 19);
  }
  tell(
      "  what is pasted is one message; several lines may also be typed between\n"
      "  \"\"\" and \"\"\"; Ctrl-C stops an answer, Tab completes commands, keys of a\n"
      "  shell edit the line, up and down recall earlier ones\n",
      2);
  return Outcome::kDone;
}

Result<ChatCommands::Outcome> ChatCommands::clear(const std::string&) {
  conversation_->clear();
  say("(forgotten)");
  return Outcome::kDone;
}

Result<ChatCommands::Outcome> ChatCommands::regenerate(const std::string&) {
  SUBBYTE_CHECK(conversation_->answer_again());
  return Outcome::kDone;
}

Result<ChatCommands::Outcome> ChatCommands::system(const std::string& argument) {
  if (!argument.empty()) conversation_->set_system(argument == "none" ? "" : argument);
  const std::string text = conversation_->system();
  say(text.empty() ? "(no instructions)" : "(instructions: " + text + ")");
  return Outcome::kDone;
}

Result<ChatCommands::Outcome> ChatCommands::save(const std::string& argument) {
  const std::filesystem::path path = argument.empty() ? file_ : std::filesystem::path(argument);
  if (path.empty()) return Error{"chat.command", "/save needs the name of a file"};
  SUBBYTE_CHECK(save_conversation(path, conversation_->messages(), path == file_));
  file_ = path;
  say(fmt::format("({} messages in {})", conversation_->messages().size(), path.string()));
  return Outcome::kDone;
}

Result<ChatCommands::Outcome> ChatCommands::load(const std::string& argument) {
  if (argument.empty()) return Error{"chat.command", "/load needs the name of a file"};
  SUBBYTE_TRY(auto messages, load_conversation(argument));
  conversation_->set_messages(std::move(messages));
  file_ = argument;
  say(fmt::format("({} messages from {})", conversation_->messages().size(), argument));
  return Outcome::kDone;
}

Result<ChatCommands::Outcome> ChatCommands::read(const std::string& argument) {
  if (argument.empty()) return Error{"chat.command", "/read needs the name of a file"};
  SUBBYTE_TRY(const std::string text, read_prompt(argument));
  if (text.empty()) {
    return Error{"chat.command", fmt::format("{}: the file is empty", argument)};
  }
  SUBBYTE_CHECK(conversation_->say(text));
  return Outcome::kDone;
}

Result<ChatCommands::Outcome> ChatCommands::stats(const std::string&) {
  tell(conversation_->statistics());
  return Outcome::kDone;
}

Result<ChatCommands::Outcome> ChatCommands::exit(const std::string&) {
  return Outcome::kExit;
}

}  // namespace subbyte::app
