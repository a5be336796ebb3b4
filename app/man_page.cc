// The help as a man page: subbyte man > subbyte.1

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/help.h"
#include "base/version.h"

namespace subbyte::app {
namespace {

/// Nothing in it is taken for a request or an escape of roff, and hyphens can be copied.
std::string escaped(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    line_begins = c == '\n';
  }
  return out;
}

std::string options_of(const CommandHelp& command) {
  std::string text;
  for (const OptionHelp& option : command.options) {
    text +=
        fmt::format(".TP\n\\fB{}\\fR", escaped(fmt::format("{}", fmt::join(option.names, ", "))));
    if (!option.positional && !option.value.empty()) text += " \\fI" + option.value + "\\fR";
    text += "\n" + escaped(option.help);
    if (!option.choices.empty()) {
      text += escaped(fmt::format(" ({})", fmt::join(option.choices, ", ")));
    }
    text += "\n";
  }
  return text;
}

std::string as_is(std::string_view text) {
  return ".PP\n.nf\n" + escaped(text) + "\n.fi\n";
}

}  // namespace

std::string man_page(const ProgramHelp& help) {
  std::string text = fmt::format(".TH SUBBYTE 1 \"\" \"subbyte {}\"\n", library_version());
  text += ".SH NAME\nsubbyte \\- " + escaped(help.program.summary) + "\n";
  text += ".SH SYNOPSIS\n.B subbyte\n.I COMMAND\n[\\fIOPTIONS\\fR] ...\n.SH COMMANDS\n";
  for (const CommandHelp& command : help.commands) {
    text += ".SS " + command.name + "\n" + escaped(command.summary) + "\n" + options_of(command) +
            as_is(command.footer);
  }
  text += ".SH OPTIONS OF EVERY COMMAND\n" + options_of(help.program);
  for (const Topic& topic : kTopics) {
    text +=
        fmt::format(".SH {}\n{}.\n{}", topic.name == "environment" ? "ENVIRONMENT" : "EXIT STATUS",
                    topic.title, as_is(topic.text));
  }
  return text;
}

}  // namespace subbyte::app
