#include "app/chat_commands.h"
#include "app/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/conversation_file.h"
#include "base/quote.h"

namespace subbyte::app {
namespace {

void say(const std::string& text) {
  print(stderr, line("{}", text));
}

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= 'a' && c <= 'z'; });
}

}  // namespace

struct ChatCommands::Row {
  std::string_view name;
  std::string_view argument;
  std::string_view help;
  Result<Outcome> (ChatCommands::*run)(const std::string& argument);
};

constexpr ChatCommands::Row ChatCommands::kRows[] = {
    {"help", "", "this list", &ChatCommands::help},
    {"clear", "", "forget what was said, and keep the instructions", &ChatCommands::clear},
    {"regenerate", "", "answer the last message once more, with another seed",
     &ChatCommands::regenerate},
    {"system", "[TEXT]", "show the instructions, or set them (none: remove them)",
     &ChatCommands::system},
    {"save", "[FILE]", "write the conversation as JSON; without a name to the last file",
     &ChatCommands::save},
    {"load", "FILE", "go on with a conversation that was saved", &ChatCommands::load},
    {"stats", "", "speed, memory and context of the last answer", &ChatCommands::stats},
    {"exit", "", "end (Ctrl-D, too)", &ChatCommands::exit},
};

Result<ChatCommands::Outcome> ChatCommands::run(const std::string& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  if (!line.starts_with('/') || !is_word(std::string_view(line).substr(1, end - 1))) {
    return Outcome::kNoCommand;
  }
  const std::string_view name = std::string_view(line).substr(1, end - 1);
  const std::size_t begin = std::min(line.find_first_not_of(' ', end), line.size());
  const std::string argument = line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
  const auto row = std::ranges::find(kRows, name, &Row::name);
  if (row == std::end(kRows)) {
    return Error{"chat.command", fmt::format("no command /{}; /help lists them (a message that "
                                             "begins with a slash wants a blank before it)",
                                             name)};
  }
  if (row->argument.empty() && !argument.empty()) {
    return Error{"chat.command", fmt::format("/{} takes nothing, found {}", name, quote(argument))};
  }
  return (this->*row->run)(argument);
}

Result<ChatCommands::Outcome> ChatCommands::help(const std::string&) {
  for (const Row& row : kRows) {
    say(fmt::format("  {:<16} {}", fmt::format("/{} {}", row.name, row.argument), row.help));
  }
  say(R"(  """ begins a message of several lines, which ends where a line ends with """)");
  say("  Ctrl-C stops an answer; keys of a shell edit the line, up and down recall earlier ones");
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
  say(fmt::format("({} messages in {})", conversation_->messages().size(), quote(path.string())));
  return Outcome::kDone;
}

Result<ChatCommands::Outcome> ChatCommands::load(const std::string& argument) {
  if (argument.empty()) return Error{"chat.command", "/load needs the name of a file"};
  SUBBYTE_TRY(auto messages, load_conversation(argument));
  conversation_->set_messages(std::move(messages));
  file_ = argument;
  say(fmt::format("({} messages from {})", conversation_->messages().size(), quote(argument)));
  return Outcome::kDone;
}

Result<ChatCommands::Outcome> ChatCommands::stats(const std::string&) {
  conversation_->print_statistics();
  return Outcome::kDone;
}

Result<ChatCommands::Outcome> ChatCommands::exit(const std::string&) {
  return Outcome::kExit;
}

}  // namespace subbyte::app
