#include "app/parser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/foreign_names.h"
#include "base/near_words.h"
#include "base/quote.h"

namespace subbyte::app {
namespace {

/// "--name=value" or "-x=value" taken apart.
struct Typed {
  std::string name;
  std::optional<std::string> value;
};

Typed take_apart(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos) return {argument, std::nullopt};
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

/// "_" in a long name is "-".
std::string spelled(std::string name) {
  if (name.starts_with("--")) std::ranges::replace(name, '_', '-');
  return name;
}

bool is_option(const std::string& argument) {
  return argument.size() > 1 && argument[0] == '-';
}

/// A name in a message as it was typed, where it is one.
std::string shown(const std::string& name) {
  const bool plain = name.size() <= 40 && std::ranges::all_of(name, [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
                     });
  return plain ? name : quote(name);
}

/// "run", "run and chat", "run, chat and logits"; of many "other commands".
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMax = 6;
  if (names.size() > kMax) return "other commands";
  std::string text = names[0];
  for (std::size_t i = 1; i < names.size(); ++i) {
    text += (i + 1 < names.size() ? ", " : " and ") + names[i];
  }
  return text;
}

bool has_name(const Option& option, const std::string& name) {
  return std::ranges::find(option.names, name) != option.names.end();
}

Option* find_option(Program& program, CommandInfo& command, const std::string& name) {
  for (Option* option : program.options_of(command)) {
    if (has_name(*option, name)) return option;
  }
  return nullptr;
}

/// By its own name, or by the name that another program has for it.
Option* find_option_or_alias(Program& program, CommandInfo& command, const std::string& name) {
  if (Option* const own = find_option(program, command, name)) return own;
  for (const ForeignOption& row : foreign_options()) {
    if (row.ours.empty() || !has_word(row.names, name)) continue;
    if (Option* const own = find_option(program, command, std::string(row.ours))) return own;
  }
  return nullptr;
}

/// The commands with such an option, and what it is called there.
std::vector<std::string> commands_with(Program& program, const std::string& name) {
  std::vector<std::string> names;
  for (CommandInfo& command : program.commands) {
    const Option* const option = find_option_or_alias(program, command, name);
    if (option == nullptr) continue;
    names.push_back(command.name);
    if (!has_name(*option, name)) names.back() += fmt::format(" (as {})", option->name());
  }
  return names;
}

/// "-n5" of an option that takes a whole number.
Option* find_with_number(Program& program, CommandInfo& command, const std::string& argument) {
  if (argument.size() < 3 || argument[1] == '-') return nullptr;
  const std::size_t digits = argument[2] == '-' ? 3 : 2;
  const bool is_number =
      digits < argument.size() && argument.find_first_not_of("0123456789", digits) == argument.npos;
  Option* const option = find_option(program, command, argument.substr(0, 2));
  return is_number && option != nullptr && option->value == "N" ? option : nullptr;
}

class Parser {
 public:
  Parser(Program& program, std::span<const std::string> arguments)
      : program_(program), arguments_(arguments) {}

  Result<CommandInfo*> parse();

 private:
  bool at_end() const { return next_ == arguments_.size(); }
  bool is_answered() const { return program_.wants_help || program_.wants_version; }
  Error mistake(const std::string& text) const;

  Result<std::string> read_command();
  Error no_command(const std::string& word);
  Error option_before_command(const std::string& name);
  Error no_option(const std::string& argument);

  Status read_option(const std::string& argument);
  bool skip_neutral(const Typed& typed);
  bool skip_list(std::string_view neutral);
  Result<std::string> value_of(const Option& option, const Typed& typed);
  /// `name`: as it was typed.
  Status take(Option& option, const std::string& name, const std::string& text);
  Status read_places();
  std::string meant_by_place();
  Status check();

  Program& program_;
  std::span<const std::string> arguments_;
  std::size_t next_ = 0;
  CommandInfo* command_ = nullptr;
  CommandInfo before_command_;       // none of its own: the shared options, whoever takes them
  std::vector<std::string> places_;  // what was given without a name
};

Error Parser::mistake(const std::string& text) const {
  const bool is_named = command_ != nullptr && !command_->name.empty();
  return {"usage.arguments", (is_named ? command_->name + ": " : "") + text};
}

Result<CommandInfo*> Parser::parse() {
  SUBBYTE_TRY(const std::string word, read_command());
  if (is_answered()) return nullptr;
  command_ = program_.find(word);
  if (command_ == nullptr) return no_command(word);
  bool only_places = false;
  while (!at_end() && !is_answered()) {
    const std::string& argument = arguments_[next_++];
    if (!only_places && argument == "--") {
      only_places = true;
    } else if (!only_places && is_option(argument)) {
      SUBBYTE_CHECK(read_option(argument));
    } else {
      places_.push_back(argument);
    }
  }
  if (is_answered()) return command_;
  SUBBYTE_CHECK(read_places());
  SUBBYTE_CHECK(check());
  return command_;
}

/// The first argument that is no option, or a value of one.
Result<std::string> Parser::read_command() {
  before_command_.shares = Shares::kModel;
  while (!at_end()) {
    const std::string& argument = arguments_[next_++];
    if (argument == "version") {
      program_.wants_version = true;
      return argument;
    }
    if (!is_option(argument)) return argument;
    command_ = &before_command_;
    const std::string name = spelled(take_apart(argument).name);
    if (find_option(program_, before_command_, name) == nullptr) {
      return option_before_command(argument);
    }
    SUBBYTE_CHECK(read_option(argument));
    command_ = nullptr;
    if (is_answered()) return argument;
  }
  return Error{"usage.command", "no command was given; `subbyte help` lists them"};
}

Error Parser::no_command(const std::string& word) {
  if (const ForeignCommand* const foreign = find_foreign_command(word)) {
    return {"usage.command", fmt::format("no command {}: {}", quote(word), foreign->instead)};
  }
  std::vector<std::string> names;
  for (const CommandInfo& command : program_.commands) names.push_back(command.name);
  const std::string near = did_you_mean(word, names);
  if (!near.empty()) {
    return {"usage.command", fmt::format("no command {}{}", quote(word), near)};
  }
  const bool is_path = word.find('/') != word.npos || word == "." || word == "..";
  return {"usage.command", fmt::format("no command {}; {}", quote(word),
                                       is_path ? "`subbyte run MODEL -p TEXT` continues a text"
                                               : "`subbyte help` lists them")};
}

/// `subbyte -m MODEL -p TEXT` is what other programs take.
Error Parser::option_before_command(const std::string& argument) {
  const std::string name = spelled(take_apart(argument).name);
  const auto commands = commands_with(program_, name);
  command_ = nullptr;
  if (commands.empty()) {
    const ForeignOption* const foreign = find_foreign_option(name);
    return mistake(
        fmt::format("no option {}{}{}", shown(name), foreign == nullptr ? "" : ": ",
                    foreign == nullptr ? "; `subbyte --help` lists them" : foreign->instead));
  }
  return {"usage.command",
          fmt::format("a command comes before {}: `subbyte run MODEL -p TEXT` continues a text, "
                      "`subbyte chat MODEL` talks, `subbyte help` lists the others",
                      shown(name))};
}

Error Parser::no_option(const std::string& argument) {
  const std::string name = spelled(take_apart(argument).name);
  const ForeignOption* const foreign = find_foreign_option(name, command_->name);
  if (foreign != nullptr && foreign->ours.empty()) {
    return mistake(fmt::format("no option {}: {}", shown(name), foreign->instead));
  }
  const auto others = commands_with(program_, name);
  if (!others.empty()) {
    return mistake(fmt::format("no option {} here; {} {} it", shown(name), listed(others),
                               others.size() == 1 ? "has" : "have"));
  }
  std::vector<std::string> names;
  for (const Option* option : program_.options_of(*command_)) {
    names.insert(names.end(), option->names.begin(), option->names.end());
  }
  const bool is_bundle = name.size() > 2 && name[1] != '-';
  const std::string first = name.substr(0, 2);
  const bool is_joined = is_bundle && find_option(program_, *command_, first) != nullptr;
  const bool is_long = is_bundle && std::ranges::find(names, "-" + name) != names.end();
  if (is_joined && !is_long) {
    return mistake(fmt::format(
        "no option {}; a value of {} stands apart from it or after =", shown(name), first));
  }
  const std::string near = did_you_mean(name, names);
  if (!near.empty()) return mistake(fmt::format("no option {}{}", shown(name), near));
  return mistake(fmt::format("no option {}; `{} {} --help` lists them", shown(name), program_.name,
                             command_->name));
}

Status Parser::read_option(const std::string& argument) {
  if (Option* const option = find_with_number(program_, *command_, argument)) {
    return take(*option, argument.substr(0, 2), argument.substr(2));
  }
  Typed typed = take_apart(argument);
  typed.name = spelled(typed.name);
  Option* const option = find_option_or_alias(program_, *command_, typed.name);
  if (option == nullptr) return skip_neutral(typed) ? Status() : Status(no_option(argument));
  if (!option->is_flag()) {
    SUBBYTE_TRY(const std::string value, value_of(*option, typed));
    return take(*option, typed.name, value);
  }
  if (typed.value) return mistake(fmt::format("{} takes no value", typed.name));
  return take(*option, typed.name, "");
}

/// Takes an option of another program that asks for nothing, such as --tensor-parallel-size 1, with
/// its value. False: it is none, or asks for something.
bool Parser::skip_neutral(const Typed& typed) {
  std::string name = typed.name;
  bool is_off = false;
  if (name.starts_with("--no-") && is_foreign_flag("--" + name.substr(5))) {
    name = "--" + name.substr(5);
    is_off = true;
  }
  const std::optional<std::string_view> values = neutral_values(name);
  if (!values) return false;
  if (typed.value) return is_neutral(*values, *typed.value);
  if (is_foreign_list(name)) return skip_list(*values);
  const bool has_word = !at_end() && is_neutral(*values, arguments_[next_]);
  if (is_foreign_flag(name)) {
    if (has_word && *values != "*") {  // "-fa on" is written, too
      ++next_;
      return true;
    }
    return is_neutral(*values, is_off ? "false" : "true");
  }
  if (!has_word ||
      find_option(program_, *command_, take_apart(arguments_[next_]).name) != nullptr) {
    return false;
  }
  ++next_;
  return true;
}

/// Takes all values before the next option.
bool Parser::skip_list(std::string_view neutral) {
  const std::size_t first = next_;
  while (!at_end() && !is_option(arguments_[next_])) {
    if (!is_neutral(neutral, arguments_[next_++])) return false;
  }
  return next_ > first;
}

Result<std::string> Parser::value_of(const Option& option, const Typed& typed) {
  if (typed.value) return *typed.value;
  if (at_end()) return mistake(fmt::format("{} needs a value ({})", typed.name, option.value));
  const std::string& value = arguments_[next_];
  if (is_option(value) && find_option(program_, *command_, take_apart(value).name) != nullptr) {
    return mistake(fmt::format("{} needs a value ({}), found the option {}; {}={} means the text",
                               typed.name, option.value, shown(value), typed.name, shown(value)));
  }
  ++next_;
  return value;
}

Status Parser::take(Option& option, const std::string& name, const std::string& text) {
  option.given = true;
  std::optional<std::string> expected;
  std::string near;
  if (!option.choices.empty() && std::ranges::find(option.choices, text) == option.choices.end()) {
    expected = fmt::format("one of {}", fmt::join(option.choices, ", "));
    near = did_you_mean(text, option.choices);
  } else if (!option.edges_are_default || (text != "0" && text != "-1")) {
    expected = option.take(text);
  }
  if (!expected) return {};
  return mistake(fmt::format("{}: expected {}, found {}{}", name, *expected, quote(text), near));
}

/// The option that a word without a name may be for: "; --format gives the format".
std::string Parser::meant_by_place() {
  constexpr std::pair<const char*, const char*> kMeant[] = {
      {"--prompt", "a text"}, {"--format", "the format"}, {"--to", "the format"}};
  for (const auto& [name, what] : kMeant) {
    if (find_option(program_, *command_, name) == nullptr) continue;
    return fmt::format("; {} gives {}", name, what);
  }
  // Others take several words at once.
  for (const Option& option : command_->options) {
    if (!option.is_list || !option.given || option.names.empty()) continue;
    return fmt::format("; {} is given again for each {}", option.name(), option.value);
  }
  return {};
}

/// What has no name goes where its place is, unless that was given by name.
Status Parser::read_places() {
  auto place = command_->options.begin();
  std::string last;
  for (const std::string& text : places_) {
    while (place != command_->options.end() &&
           (place->place.empty() || (place->given && !place->is_list))) {
      ++place;
    }
    if (place == command_->options.end()) {
      return mistake(fmt::format("{} was not expected{}{}{}", quote(text),
                                 last.empty() ? "" : " after ", last, meant_by_place()));
    }
    SUBBYTE_CHECK(take(*place, place->place, text));
    last = place->place;
    if (!place->is_list) ++place;
  }
  return {};
}

Status Parser::check() {
  for (const SharedOption& shared : program_.shared) {
    if (shared.option.given && shared.by > command_->shares) return no_option(shared.option.name());
  }
  for (const Option& option : command_->options) {
    if (option.required && !option.given) {
      const std::string& name = option.place.empty() ? option.name() : option.place;
      return mistake(fmt::format("{} is required: {}", name, option.help));
    }
    for (const Option* other : option.excluded) {
      if (!option.given || !other->given) continue;
      return mistake(
          fmt::format("{} and {} cannot be given together", option.name(), other->name()));
    }
  }
  return {};
}

}  // namespace

Result<CommandInfo*> parse(Program& program, std::span<const std::string> arguments) {
  return Parser(program, arguments).parse();
}

}  // namespace subbyte::app
