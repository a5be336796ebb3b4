#include "app/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace subbyte::app {
namespace {

constexpr std::size_t kIndent = 28;
constexpr int kMostColumns = 100;

/// Breaks at blanks; the first line begins at column `at`, the others at `indent`.
std::string wrapped(const std::string& text, std::size_t at, std::size_t indent, int columns) {
  const auto width = static_cast<std::size_t>(std::clamp<int>(columns, 50, kMostColumns)) - 1;
  std::istringstream words(text);
  std::string line;
  std::string word;
  while (words >> word) {
    if (at + 1 + word.size() > width && at > indent) {
      line += "\n" + std::string(indent, ' ');
      at = indent;
    } else if (at > indent) {
      line += " ";
      ++at;
    }
    line += word;
    at += word.size();
  }
  return line + "\n";
}

std::string row(const std::string& head, const std::string& text, int columns) {
  std::string line = "  " + head;
  if (line.size() + 2 > kIndent) {
    line += "\n";
    line += std::string(kIndent, ' ');
  } else {
    line.resize(kIndent, ' ');
  }
  return line + wrapped(text, kIndent, kIndent, columns);
}

std::string head_of(const OptionHelp& option) {
  std::string head = fmt::format("{}", fmt::join(option.names, ", "));
  if (!option.positional && !option.value.empty()) head += " " + option.value;
  return head;
}

std::string text_of(const OptionHelp& option) {
  std::string text = option.help;
  if (!option.choices.empty()) text += fmt::format(" ({})", fmt::join(option.choices, ", "));
  return text;
}

/// The options in their groups, the positional ones first.
std::string option_rows(const CommandHelp& command, const std::string& title, int columns) {
  std::vector<std::string> groups = {""};
  for (const OptionHelp& option : command.options) {
    if (!option.positional && std::ranges::find(groups, option.group) == groups.end()) {
      groups.push_back(option.group);
    }
  }
  std::string text;
  for (const std::string& group : groups) {
    std::string rows;
    for (const OptionHelp& option : command.options) {
      const bool here = option.positional ? group.empty() : option.group == group;
      if (here) rows += row(head_of(option), text_of(option), columns);
    }
    const std::string heading = group.empty() ? "Arguments" : group == "Options" ? title : group;
    if (!rows.empty()) text += "\n" + heading + ":\n" + rows;
  }
  return text;
}

}  // namespace

std::string program_text(const ProgramHelp& help, int columns) {
  std::string text = help.program.summary + "\n\nUsage: subbyte COMMAND [OPTIONS] ...\n";
  text += "\nCommands:\n";
  for (const CommandHelp& command : help.commands) {
    text += row(command.name, command.summary, columns);
  }
  text += option_rows(help.program, "Options of every command", columns);
  text += "\nHelp on other things (subbyte help NAME):\n";
  for (const Topic& topic : kTopics) {
    text += row(std::string(topic.name), std::string(topic.title), columns);
  }
  return text + "\n" + help.program.footer + "\n";
}

std::string command_text(const ProgramHelp& help, const CommandHelp& command, int columns) {
  std::string text = wrapped(command.summary, 0, 0, columns);
  text += fmt::format("\nUsage: subbyte {} [OPTIONS]", command.name);
  for (const OptionHelp& option : command.options) {
    if (!option.positional) continue;
    text += option.required ? " " + option.names[0] : " [" + option.names[0] + "]";
  }
  text += "\n" + option_rows(command, "Options", columns);
  text += option_rows(help.program, "Options of every command", columns);
  return text + "\n" + command.footer + "\n";
}

}  // namespace subbyte::app
