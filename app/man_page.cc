// The help as a man page: subbyte man > subbyte.1

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/help.h"
#include "app/wrap.h"
#include "subbyte/version.h"

namespace subbyte::app {
namespace {

constexpr int kColumns = 80;

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

std::string option_entry(const Option& option) {
  std::string names = fmt::format("{}", fmt::join(option.names, ", "));
  if (!option.place.empty()) names = names.empty() ? option.place : option.place + ", " + names;
  std::string text = fmt::format(".TP\n\\fB{}\\fR", escaped(names));
  if (option.place.empty() && !option.is_flag()) text += " \\fI" + option.value + "\\fR";
  return text + "\n" + escaped(help_of(option)) + "\n";
}

/// The headings that man pages have for such things.
std::string_view title_of(const Topic& topic) {
  if (topic.name == "environment") return "ENVIRONMENT";
  return topic.name == "exit-codes" ? "EXIT STATUS" : "OPTIONS OF OTHER PROGRAMS";
}

std::string as_is(std::string_view text) {
  return ".PP\n.nf\n" + escaped(text) + "\n.fi\n";
}

}  // namespace

std::string man_page(const Program& program) {
  std::string text = fmt::format(".TH SUBBYTE 1 \"\" \"subbyte {}\"\n", subbyte::version());
  text += ".SH NAME\nsubbyte \\- " + escaped(program.summary) + "\n";
  text += ".SH SYNOPSIS\n.B subbyte\n.I COMMAND\n[\\fIOPTIONS\\fR] ...\n.SH COMMANDS\n";
  for (const CommandInfo& command : program.commands) {
    text += ".SS " + command.name + "\n" + escaped(command.summary) + "\n";
    for (const Option& option : command.options) text += option_entry(option);
    text += as_is("Examples:\n" + command.examples);
  }
  text += ".SH OPTIONS OF EVERY COMMAND\n";
  for (const SharedOption& shared : program.shared) {
    if (shared.by == Shares::kNothing) text += option_entry(shared.option);
  }
  text += ".SH OPTIONS OF COMMANDS THAT COMPUTE\n";
  for (const SharedOption& shared : program.shared) {
    if (shared.by != Shares::kNothing) text += option_entry(shared.option);
  }
  for (const Topic& topic : program.topics) {
    text += fmt::format(".SH {}\n{}.\n{}", title_of(topic), topic.title,
                        as_is(wrap(topic.text(), kColumns, 4)));
  }
  return text;
}

}  // namespace subbyte::app
