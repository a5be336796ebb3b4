#include "app/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "app/output.h"
#include "app/wrap.h"

namespace subbyte::app {
namespace {

constexpr std::size_t kIndent = 28;
constexpr std::size_t kNarrowIndent = 6;
constexpr int kNarrowColumns = 60;
constexpr int kMaxColumns = 100;

std::string wrapped(const std::string& text, std::size_t at, std::size_t indent, int columns) {
  return wrap(text, std::min(columns, kMaxColumns), indent, at) + "\n";
}

std::string row(const std::string& head, const std::string& text, int columns) {
  const std::size_t indent = columns < kNarrowColumns ? kNarrowIndent : kIndent;
  std::string line = wrap("  " + head, columns, kNarrowIndent);
  if (line.size() + 2 > indent) {
    line += "\n";
    line += std::string(indent, ' ');
  } else {
    line.resize(indent, ' ');
  }
  return line + wrapped(text, indent, indent, columns);
}

std::string head_of(const Option& option) {
  const std::string names = fmt::format("{}", fmt::join(option.names, ", "));
  if (!option.place.empty()) {
    return names.empty() ? option.place : fmt::format("{} ({})", option.place, names);
  }
  return option.is_flag() ? names : names + " " + option.value;
}

std::string heading(const std::string& text, int columns) {
  return "\n" + styled(Style::kBold, wrap(text, columns, 2), stdout) + "\n";
}

std::string option_row(const Option& option, int columns) {
  return row(head_of(option), help_of(option), columns);
}

/// Rows under their title; nothing without any.
std::string section(const std::string& title, const std::string& rows, int columns) {
  return rows.empty() ? rows : heading(title, columns) + rows;
}

/// The options of a command in their groups, those with a place first.
std::string own_rows(const CommandInfo& command, int columns) {
  std::vector<std::string> groups = {""};
  for (const Option& option : command.options) {
    if (option.place.empty() && std::ranges::find(groups, option.group) == groups.end()) {
      groups.push_back(option.group);
    }
  }
  std::string text;
  for (const std::string& group : groups) {
    std::string rows;
    for (const Option& option : command.options) {
      const bool here = option.place.empty() ? option.group == group : group.empty();
      if (here) rows += option_row(option, columns);
    }
    text += section((group.empty() ? "Arguments" : group) + ":", rows, columns);
  }
  return text;
}

/// Those of every command, or those beyond that a command takes.
std::string shared_rows(std::span<const SharedOption* const> options, bool every, int columns) {
  std::string rows;
  for (const SharedOption* shared : options) {
    const bool is_of_every = shared->by == Shares::kNothing;
    if (is_of_every == every) rows += option_row(shared->option, columns);
  }
  return rows;
}

}  // namespace

std::string help_of(const Option& option) {
  std::string text = option.help;
  if (!option.choices.empty()) text += fmt::format(" ({})", fmt::join(option.choices, ", "));
  if (option.range) text += fmt::format(" ({})", describe_range(*option.range));
  if (!option.default_text.empty()) text += fmt::format(" [{}]", option.default_text);
  return text;
}

std::string program_text(const Program& program, int columns) {
  std::string text =
      wrapped(program.summary, 0, 0, columns) + "\n" +
      wrapped(fmt::format("Usage: {} COMMAND [OPTIONS] ...", program.name), 0, 6, columns);
  text += heading("Commands:", columns);
  for (const CommandInfo& command : program.commands) {
    text += row(command.name, command.summary, columns);
  }
  CommandInfo any;
  any.shares = Shares::kModel;
  const auto shared = program.shared_of(any);
  text += section("Options of every command:", shared_rows(shared, true, columns), columns);
  text +=
      section("Options of commands that compute:", shared_rows(shared, false, columns), columns);
  std::string topics;
  for (const Topic& topic : program.topics) {
    topics += row(std::string(topic.name), std::string(topic.title), columns);
  }
  text += section("Help on other things (subbyte help NAME):", topics, columns);
  return text + "\n" + wrapped(program.footer, 0, 0, columns);
}

std::string command_text(const Program& program, const CommandInfo& command, int columns) {
  std::string text = wrapped(command.summary, 0, 0, columns);
  std::string usage = fmt::format("Usage: {} {} [OPTIONS]", program.name, command.name);
  for (const Option& option : command.options) {
    if (option.place.empty()) continue;
    const std::string place = option.place + (option.is_list ? "..." : "");
    usage += option.required ? " " + place : " [" + place + "]";
  }
  text += "\n" + wrapped(usage, 0, 6, columns) + own_rows(command, columns);
  const auto shared = program.shared_of(command);
  text += section("Machine:", shared_rows(shared, false, columns), columns);
  text += section("Options of every command:", shared_rows(shared, true, columns), columns);
  return text + heading("Examples:", columns) + wrapped(command.examples, 0, 6, columns);
}

}  // namespace subbyte::app
