#include "app/arguments.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <optional>

namespace subbyte::app {

Argument Argument::required() {
  return Argument(option_->required());
}
Argument Argument::shows_default() {
  return Argument(option_->capture_default_str());
}
Argument Argument::between(int64_t least, int64_t most) {
  return Argument(option_->check(CLI::Range(least, most)));
}
Argument Argument::one_of(const std::vector<std::string>& values) {
  return Argument(option_->check(CLI::IsMember(values)));
}
Argument Argument::excludes(Argument other) {
  return Argument(option_->excludes(other.option_));
}
Argument Argument::group(const std::string& title) {
  return Argument(option_->group(title));
}
Argument Argument::one_at_a_time() {
  return Argument(option_->allow_extra_args(false));
}

namespace {

/// CLI11 would take -1 and what is too large as 2^64 - 1.
std::string unsigned_number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool valid = error == std::errc() && end == text.data() + text.size();
  return valid ? "" : "Value " + text + " not between 0 and 2^64 - 1";
}

}  // namespace

template <class Value>
Argument Command::option(const std::string& names, Value& value, const std::string& help) {
  CLI::Option* option = app_->add_option(names, value, help);
  if constexpr (std::is_same_v<Value, uint64_t>) option->check(unsigned_number);
  return Argument(option);
}
template Argument Command::option(const std::string&, std::string&, const std::string&);
template Argument Command::option(const std::string&, std::filesystem::path&, const std::string&);
template Argument Command::option(const std::string&, int&, const std::string&);
template Argument Command::option(const std::string&, int64_t&, const std::string&);
template Argument Command::option(const std::string&, uint64_t&, const std::string&);
template Argument Command::option(const std::string&, double&, const std::string&);
template Argument Command::option(const std::string&, std::optional<std::string>&,
                                  const std::string&);
template Argument Command::option(const std::string&, std::optional<int64_t>&, const std::string&);
template Argument Command::option(const std::string&, std::optional<double>&, const std::string&);
template Argument Command::option(const std::string&, std::vector<std::string>&,
                                  const std::string&);

Argument Command::flag(const std::string& names, bool& value, const std::string& help) {
  return Argument(app_->add_flag(names, value, help));
}
void Command::callback(std::function<void()> function) {
  app_->callback(std::move(function));
}

Command add_command(CLI::App& app, const std::string& name, const std::string& summary,
                    const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->footer("Examples:\n" + examples);
  return Command(*command);
}

namespace {

/// CLI11 knows what is allowed as "TEXT:{a,b}" or "INT:INT in [1 - 9]".
OptionHelp describe(const CLI::Option& option) {
  OptionHelp help;
  help.positional = option.get_positional();
  help.required = option.get_required();
  for (const std::string& name : option.get_snames()) help.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) help.names.push_back("--" + name);
  if (help.positional) help.names = {option.get_name(true)};
  help.help = option.get_description();
  help.group = option.get_group();
  const std::string type = option.get_type_name();
  const std::size_t colon = std::min(type.find(':'), type.size());
  if (option.get_items_expected_max() > 0) help.value = type.substr(0, colon);
  const std::size_t begin = type.find('{');
  if (begin != std::string::npos) {
    for (std::string& choice :
         CLI::detail::split(type.substr(begin + 1, type.find('}') - begin - 1), ',')) {
      help.choices.push_back(std::move(choice));
    }
  }
  const std::size_t range = type.find(" in [");
  if (range != std::string::npos) {
    help.help += " (" + type.substr(range + 5, type.rfind(']') - range - 5) + ")";
  }
  if (!option.get_default_str().empty()) help.help += " [" + option.get_default_str() + "]";
  return help;
}

}  // namespace

CommandHelp describe_program(const CLI::App& app) {
  CommandHelp help = {app.get_parent() == nullptr ? "" : app.get_name(),
                      app.get_description(),
                      app.get_footer(),
                      {}};
  for (const CLI::Option* option : app.get_options()) help.options.push_back(describe(*option));
  return help;
}

std::vector<CommandHelp> describe_commands(const CLI::App& app) {
  std::vector<CommandHelp> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(describe_program(*command));
  }
  return commands;
}

}  // namespace subbyte::app
