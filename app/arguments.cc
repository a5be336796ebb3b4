#include "app/arguments.h"

#include <CLI/CLI.hpp>
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

template <class Value>
Argument Command::option(const std::string& names, Value& value, const std::string& help) {
  return Argument(app_->add_option(names, value, help));
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
template Argument Command::option(const std::string&, std::optional<uint64_t>&, const std::string&);
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

}  // namespace subbyte::app
