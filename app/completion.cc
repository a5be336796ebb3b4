// The help as completion of shells: commands, options, the values of options that are known, and
// the models of the Hugging Face cache.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/help.h"

namespace subbyte::app {
namespace {

std::vector<const Option*> options_of(const Program& program, const CommandInfo& command) {
  std::vector<const Option*> options;
  for (const Option& option : command.options) options.push_back(&option);
  for (const SharedOption* shared : program.shared_of(command)) options.push_back(&shared->option);
  return options;
}

std::vector<std::string> option_names(const Program& program, const CommandInfo& command) {
  std::vector<std::string> names;
  for (const Option* option : options_of(program, command)) {
    names.insert(names.end(), option->names.begin(), option->names.end());
  }
  return names;
}

std::vector<std::string> command_names(const Program& program) {
  std::vector<std::string> names;
  for (const CommandInfo& command : program.commands) names.push_back(command.name);
  return names;
}

const std::vector<std::string>& values_of(const Option& option) {
  return option.choices.empty() ? option.suggestions : option.choices;
}

/// Lines of `case "$command $previous" in`.
std::string values_after(const Program& program, const CommandInfo& command) {
  std::string text;
  for (const Option* option : options_of(program, command)) {
    if (values_of(*option).empty()) continue;
    for (const std::string& name : option->names) {
      text += fmt::format("    {}\\ {}) words=\"{}\" ;;\n", command.name, name,
                          fmt::join(values_of(*option), " "));
    }
  }
  return text;
}

/// What prints the names of the models of the cache, in a shell.
constexpr std::string_view kListModels =
    "subbyte list -q 2>/dev/null | sed -n \"s/^\\([^ ]\\+\\) .*/\\1/p\"";

/// The words that the first place of a command may have; empty where there is no list.
std::vector<std::string> words_of_place(const CommandInfo& command) {
  for (const Option& option : command.options) {
    if (!option.place.empty()) return values_of(option);
  }
  return {};
}

bool takes_model(const CommandInfo& command) {
  return std::ranges::any_of(command.options, [](const Option& option) {
    return option.place == "MODEL" || option.place == "SRC" || option.place == "A";
  });
}

/// Lines of `case "$command" in` for what is no option.
std::string bash_places(const Program& program) {
  std::string text;
  for (const CommandInfo& command : program.commands) {
    const auto words = words_of_place(command);
    if (!words.empty()) {
      text += fmt::format("      {}) words=\"{}\" ;;\n", command.name, fmt::join(words, " "));
    } else if (takes_model(command)) {
      text += fmt::format(
          "      {}) words=\"$({}) $(compgen -d -X '*.partial-*' -- \"$current\")\"\n"
          "        words+=\" $(compgen -f -X '!*.ak4[78]' -- \"$current\")\"\n"
          "        compopt -o filenames +o default 2>/dev/null ;;\n",
          command.name, kListModels);
    }
  }
  return text;
}

std::string bash(const Program& program) {
  std::string text =
      "_subbyte() {\n"
      "  local command=${COMP_WORDS[1]} current=${COMP_WORDS[COMP_CWORD]}\n"
      "  local previous=${COMP_WORDS[COMP_CWORD-1]} words= IFS=$' \\t\\n'\n"
      "  case \"$command $previous\" in\n";
  for (const CommandInfo& command : program.commands) text += values_after(program, command);
  text += "  esac\n  if [[ -n $words ]]; then :\n";
  text += fmt::format("  elif ((COMP_CWORD == 1)); then words=\"{}\"\n",
                      fmt::join(command_names(program), " "));
  text += "  elif [[ $current == -* ]]; then\n    case \"$command\" in\n";
  for (const CommandInfo& command : program.commands) {
    text += fmt::format("      {}) words=\"{}\" ;;\n", command.name,
                        fmt::join(option_names(program, command), " "));
  }
  text += "    esac\n  else\n    case \"$command\" in\n" + bash_places(program);
  text +=
      "    esac\n  fi\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}\ncomplete -o default -F _subbyte subbyte\n";
  return text;
}

std::string fish_option(const Option& option, const std::string& condition) {
  std::string text = "complete -c subbyte" + condition;
  for (const std::string& name : option.names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.is_flag()) text += " -r";
  if (!values_of(option).empty()) {
    text += fmt::format(" -f -a '{}'", fmt::join(values_of(option), " "));
  }
  std::string help;
  for (const char c : option.help)
    help += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return text + " -d '" + help + "'\n";
}

std::string fish(const Program& program) {
  std::string text;
  for (const CommandInfo& command : program.commands) {
    const std::string seen = " -n '__fish_seen_subcommand_from " + command.name + "'";
    text += fmt::format("complete -c subbyte -n __fish_use_subcommand -f -a {}\n", command.name);
    for (const Option* option : options_of(program, command)) {
      if (!option->names.empty()) text += fish_option(*option, seen);
    }
    const auto words = words_of_place(command);
    if (!words.empty()) {
      text += fmt::format("complete -c subbyte{} -f -a '{}'\n", seen, fmt::join(words, " "));
    } else if (takes_model(command)) {
      text += fmt::format("complete -c subbyte{} -a '({})'\n", seen, kListModels);
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const Program& program, std::string_view shell) {
  if (shell == "bash") return bash(program);
  if (shell == "zsh") {
    return "#compdef subbyte\nautoload -U +X bashcompinit && bashcompinit\n" + bash(program);
  }
  return shell == "fish" ? fish(program) : "";
}

}  // namespace subbyte::app
