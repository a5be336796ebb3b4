#include "app/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <filesystem>
#include <limits>

#include "app/number_list.h"

namespace subbyte::app {
namespace {

/// The largest number that is a bound in its own right, and not the end of what can be computed.
constexpr int64_t kLargestBound = int64_t{1} << 20;

template <class Value>
struct IsOptional : std::false_type {};
template <class Value>
struct IsOptional<std::optional<Value>> : std::true_type {};

/// "a whole number", with what the option allows.
std::string describe_whole(const Option& option, bool is_unsigned) {
  if (!option.range) return is_unsigned ? "a whole number from 0 to 2^64 - 1" : "a whole number";
  return fmt::format("a whole number, {}", describe_range(*option.range));
}

template <class Number>
std::optional<Number> parse_number(const std::string& text) {
  Number number = {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

template <std::integral Number>
std::optional<std::string> take(const Option& option, const std::string& text, Number& value) {
  const auto number = parse_number<Number>(text);
  if (!number) return describe_whole(option, std::unsigned_integral<Number>);
  if (option.range) {
    const auto [least, most] = *option.range;
    if (std::cmp_greater(*number, most)) {
      return fmt::format("a whole number, {} to {}", least, most);
    }
    if (std::cmp_less(*number, least)) {
      return describe_whole(option, std::unsigned_integral<Number>);
    }
  }
  value = *number;
  return std::nullopt;
}

std::optional<std::string> take(const Option&, const std::string& text, double& value) {
  const auto number = parse_number<double>(text);
  if (!number) return "a number such as 0.5";
  value = *number;
  return std::nullopt;
}

template <class Text>
requires std::same_as<Text, std::string> || std::same_as<Text, std::filesystem::path>
    std::optional<std::string> take(const Option&, const std::string& text, Text& value) {
  value = text;
  return std::nullopt;
}

std::optional<std::string> take(const Option&, const std::string& text,
                                std::vector<std::string>& values) {
  values.push_back(text);
  return std::nullopt;
}

std::optional<std::string> take(const Option& option, const std::string& text,
                                std::vector<int64_t>& values) {
  const auto [least, most] =
      option.range.value_or(std::pair(int64_t{0}, std::numeric_limits<int64_t>::max()));
  auto numbers = parse_numbers(option.name(), text, least, most);
  if (!numbers.ok()) return fmt::format("numbers from {} to {}, such as 1,2,4 or 1-8", least, most);
  values = *std::move(numbers);
  return std::nullopt;
}

template <class Value>
std::optional<std::string> take(const Option& option, const std::string& text,
                                std::optional<Value>& value) {
  Value taken = {};
  auto expected = take(option, text, taken);
  if (!expected) value = std::move(taken);
  return expected;
}

template <class Value>
std::string value_word() {
  if constexpr (IsOptional<Value>::value) {
    return value_word<typename Value::value_type>();
  } else if constexpr (std::integral<Value>) {
    return "N";
  } else if constexpr (std::same_as<Value, std::vector<int64_t>>) {
    return "NUMBERS";
  } else if constexpr (std::floating_point<Value>) {
    return "NUMBER";
  } else if constexpr (std::same_as<Value, std::filesystem::path>) {
    return "FILE";
  } else {
    return "TEXT";
  }
}

template <class Value>
std::string text_of(const Value& value) {
  if constexpr (std::integral<Value> || std::floating_point<Value> ||
                std::same_as<Value, std::string>) {
    return fmt::format("{}", value);
  } else if constexpr (std::same_as<Value, std::vector<int64_t>>) {
    return fmt::format("{}", fmt::join(value, ","));
  } else {
    return {};
  }
}

/// Whether a command takes a shared option, and has none of that name itself.
bool is_taken_by(const CommandInfo& command, const SharedOption& shared) {
  return shared.by <= command.shares &&
         std::ranges::none_of(command.options, [&](const Option& own) {
           return own.name() == shared.option.name();
         });
}

/// "MODEL,-m,--model": a part without a dash is a place.
void name(Option& option, const std::string& names) {
  std::size_t begin = 0;
  while (begin < names.size()) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const std::string part = names.substr(begin, end - begin);
    if (part.starts_with('-')) {
      option.names.push_back(part);
    } else {
      option.place = part;
    }
    begin = end + 1;
  }
}

template <class Value>
void declare(Option& option, const std::string& names, Value& value, const std::string& help) {
  name(option, names);
  option.value = value_word<Value>();
  option.help = help;
  option.current = [&value] { return text_of(value); };
  option.is_list = std::same_as<Value, std::vector<std::string>>;
  option.take = [&option, &value](const std::string& text) { return take(option, text, value); };
}

void declare_flag(Option& option, const std::string& names, bool& value, const std::string& help) {
  name(option, names);
  option.help = help;
  option.take = [&value](const std::string&) {
    value = true;
    return std::optional<std::string>();
  };
}

}  // namespace

const std::string& Option::name() const {
  const auto found =
      std::ranges::find_if(names, [](const std::string& name) { return name.starts_with("--"); });
  return found != names.end() ? *found : names.empty() ? place : names[0];
}

std::string describe_range(const std::pair<int64_t, int64_t>& range) {
  const auto [least, most] = range;
  if (most > kLargestBound) return fmt::format("{} and up", least);
  return fmt::format("{} to {}", least, most);
}

Argument Argument::required() {
  option_->required = true;
  return *this;
}
Argument Argument::shows_default() {
  option_->default_text = option_->current();
  return *this;
}
Argument Argument::between(int64_t least, int64_t most) {
  option_->range = {least, most};
  return *this;
}
Argument Argument::zero_is_default() {
  option_->edges_are_default = true;
  return *this;
}
Argument Argument::one_of(std::vector<std::string> values) {
  option_->choices = std::move(values);
  return *this;
}
Argument Argument::such_as(std::vector<std::string> values) {
  option_->suggestions = std::move(values);
  return *this;
}
Argument Argument::value(const std::string& word) {
  option_->value = word;
  return *this;
}
Argument Argument::excludes(Argument other) {
  option_->excluded.push_back(other.option_);
  return *this;
}
Argument Argument::group(const std::string& title) {
  option_->group = title;
  return *this;
}

template <class Value>
Argument Command::option(const std::string& names, Value& value, const std::string& help) {
  Option& option = info_->options.emplace_back();
  declare(option, names, value, help);
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
template Argument Command::option(const std::string&, std::vector<int64_t>&, const std::string&);

Argument Command::flag(const std::string& names, bool& value, const std::string& help) {
  Option& option = info_->options.emplace_back();
  declare_flag(option, names, value, help);
  return Argument(option);
}

Command Program::add_command(const std::string& command_name, const std::string& about,
                             const std::string& examples) {
  CommandInfo& info = commands.emplace_back();
  info.name = command_name;
  info.summary = about;
  info.examples = examples;
  return Command(info);
}

template <class Value>
Argument Program::share(Shares by, const std::string& names, Value& value,
                        const std::string& help) {
  SharedOption& added = shared.emplace_back();
  added.by = by;
  declare(added.option, names, value, help);
  return Argument(added.option);
}
template Argument Program::share(Shares, const std::string&, std::string&, const std::string&);
template Argument Program::share(Shares, const std::string&, int&, const std::string&);
template Argument Program::share(Shares, const std::string&, std::optional<std::string>&,
                                 const std::string&);

Argument Program::share_flag(Shares by, const std::string& names, bool& value,
                             const std::string& help) {
  SharedOption& added = shared.emplace_back();
  added.by = by;
  declare_flag(added.option, names, value, help);
  return Argument(added.option);
}

CommandInfo* Program::find(const std::string& command) {
  const auto found = std::ranges::find(commands, command, &CommandInfo::name);
  return found == commands.end() ? nullptr : &*found;
}

std::vector<Option*> Program::options_of(CommandInfo& command) {
  std::vector<Option*> options;
  for (Option& option : command.options) options.push_back(&option);
  for (SharedOption& each : shared) {
    if (is_taken_by(command, each)) options.push_back(&each.option);
  }
  return options;
}

std::vector<const SharedOption*> Program::shared_of(const CommandInfo& command) const {
  std::vector<const SharedOption*> options;
  for (const SharedOption& each : shared) {
    if (is_taken_by(command, each)) options.push_back(&each);
  }
  return options;
}

}  // namespace subbyte::app
