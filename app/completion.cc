// The help as completion of shells: commands, options, and the values of options that have a list.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/help.h"

namespace subbyte::app {
namespace {

std::vector<std::string> option_names(const CommandHelp& command) {
  std::vector<std::string> names;
  for (const OptionHelp& option : command.options) {
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::vector<std::string> command_names(const ProgramHelp& help) {
  std::vector<std::string> names;
  for (const CommandHelp& command : help.commands) names.push_back(command.name);
  return names;
}

/// Lines of `case "$command $previous" in`.
std::string choices_of(const CommandHelp& command, const std::string& name) {
  std::string text;
  for (const OptionHelp& option : command.options) {
    if (option.choices.empty()) continue;
    for (const std::string& spelling : option.names) {
      text += fmt::format("    {}\\ {}) words=\"{}\" ;;\n", name, spelling,
                          fmt::join(option.choices, " "));
    }
  }
  return text;
}

std::string bash(const ProgramHelp& help) {
  std::string text =
      "_subbyte() {\n"
      "  local command=${COMP_WORDS[1]} current=${COMP_WORDS[COMP_CWORD]}\n"
      "  local previous=${COMP_WORDS[COMP_CWORD-1]} words=\n"
      "  case \"$command $previous\" in\n";
  for (const CommandHelp& command : help.commands) text += choices_of(command, command.name);
  text += choices_of(help.program, "*");
  text += "  esac\n  if [[ -n $words ]]; then :\n";
  text += fmt::format("  elif ((COMP_CWORD == 1)); then words=\"{}\"\n",
                      fmt::join(command_names(help), " "));
  text += "  elif [[ $current == -* ]]; then\n    case \"$command\" in\n";
  for (const CommandHelp& command : help.commands) {
    text += fmt::format("      {}) words=\"{} {}\" ;;\n", command.name,
                        fmt::join(option_names(command), " "),
                        fmt::join(option_names(help.program), " "));
  }
  text +=
      "    esac\n  fi\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}\ncomplete -o default -F _subbyte subbyte\n";
  return text;
}

std::string fish_option(const OptionHelp& option, const std::string& condition) {
  std::string text = "complete -c subbyte" + condition;
  for (const std::string& name : option.names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.value.empty()) text += " -r";
  if (!option.choices.empty()) text += fmt::format(" -f -a '{}'", fmt::join(option.choices, " "));
  std::string help;
  for (const char c : option.help)
    help += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return text + " -d '" + help + "'\n";
}

std::string fish(const ProgramHelp& help) {
  std::string text;
  for (const CommandHelp& command : help.commands) {
    text += fmt::format("complete -c subbyte -n __fish_use_subcommand -f -a {}\n", command.name);
    for (const OptionHelp& option : command.options) {
      const std::string seen = " -n '__fish_seen_subcommand_from " + command.name + "'";
      if (!option.positional) text += fish_option(option, seen);
    }
  }
  for (const OptionHelp& option : help.program.options) text += fish_option(option, "");
  return text;
}

}  // namespace

std::string completion_script(const ProgramHelp& help, std::string_view shell) {
  if (shell == "bash") return bash(help);
  if (shell == "zsh") {
    return "#compdef subbyte\nautoload -U +X bashcompinit && bashcompinit\n" + bash(help);
  }
  return shell == "fish" ? fish(help) : "";
}

}  // namespace subbyte::app
