#include "app/foreign_arguments.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "app/foreign_names.h"
#include "base/quote.h"

namespace subbyte::app {
namespace {

struct Same {
  std::string_view option, argument;
};
constexpr Same kSame[] = {
#define SUBBYTE_SAME(option, argument) {option, argument},
#include "app/foreign_names.def"
};

struct Neutral {
  std::string_view names, values;
};
constexpr Neutral kNeutral[] = {
#define SUBBYTE_NEUTRAL(names, values) {names, values},
#include "app/foreign_names.def"
};

struct NoArgument {
  std::string_view names, neutral, instead;
};
constexpr NoArgument kArguments[] = {
#define SUBBYTE_NO_ARGUMENT(names, neutral, instead) {names, neutral, instead},
#include "app/foreign_names.def"
};

struct NoMember {
  std::string_view names, instead;
};
constexpr NoMember kMembers[] = {
#define SUBBYTE_NO_MEMBER(names, instead) {names, instead},
#include "app/foreign_names.def"
};

template <class Row>
const Row* find(std::span<const Row> rows, std::string_view name) {
  const auto row =
      std::ranges::find_if(rows, [&](const Row& r) { return has_word(r.names, name); });
  return row == rows.end() ? nullptr : &*row;
}

/// "--ctx-size" as the package calls it: "context".
std::string argument_of(std::string_view option) {
  const auto same = std::ranges::find(kSame, option, &Same::option);
  if (same != std::end(kSame)) return std::string(same->argument);
  std::string name(option.substr(std::min(option.find_first_not_of('-'), option.size())));
  std::ranges::replace(name, '-', '_');
  return name;
}

/// The other way, for what is an option of another program.
std::string option_of(std::string_view argument) {
  std::string name = "--" + std::string(argument);
  std::ranges::replace(name, '_', '-');
  return name;
}

bool is_of_value(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == ':' || c == 'N';
}

/// "cuda:N" at the beginning of a text, where that is a value and no word of the sentence.
std::string_view value_in(std::string_view text) {
  const auto end = std::ranges::find_if_not(text, is_of_value);
  const std::string_view value = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  return value == "cpu" || value.starts_with("cuda") ? value : std::string_view();
}

}  // namespace

std::optional<ForeignArgument> find_foreign_argument(std::string_view name) {
  if (const NoArgument* const row = find<NoArgument>(kArguments, name)) {
    return ForeignArgument{{}, std::string(row->neutral), in_python(row->instead)};
  }
  const std::string option = option_of(name);
  const auto same = std::ranges::find(kSame, option, &Same::option);
  if (same != std::end(kSame)) return ForeignArgument{std::string(same->argument), {}, {}};
  const ForeignOption* const row = find_foreign_option(option);
  if (row == nullptr) return std::nullopt;
  const Neutral* const neutral = find<Neutral>(kNeutral, name);
  return ForeignArgument{row->ours.empty() ? "" : argument_of(row->ours),
                         std::string(neutral == nullptr ? "" : neutral->values),
                         in_python(row->instead)};
}

std::vector<std::string> foreign_argument_names() {
  std::vector<std::string> names;
  const auto add = [&](std::string_view words) {
    for (std::size_t begin = 0; begin < words.size();) {
      const std::size_t end = std::min(words.find(' ', begin), words.size());
      const std::string_view word = words.substr(begin, end - begin);
      if (!word.starts_with('-') || word.starts_with("--")) names.push_back(argument_of(word));
      begin = end + 1;
    }
  };
  for (const NoArgument& row : kArguments) add(row.names);
  for (const ForeignOption& row : foreign_options()) {
    if (row.command.empty()) add(row.names);
  }
  return names;
}

std::string_view instead_of_member(std::string_view name) {
  const NoMember* const row = find<NoMember>(kMembers, name);
  return row == nullptr ? std::string_view() : row->instead;
}

std::string in_python(std::string_view sentence) {
  std::string result;
  bool is_quoted = false;
  for (std::size_t i = 0; i < sentence.size();) {
    if (sentence[i] == '`') is_quoted = !is_quoted;
    const std::string_view rest = sentence.substr(i);
    if (is_quoted || !rest.starts_with("--")) {
      result += sentence[i++];
      continue;
    }
    const auto last =
        std::ranges::find_if_not(rest, [](char c) { return c == '-' || (c >= 'a' && c <= 'z'); });
    const std::string_view option = rest.substr(0, static_cast<std::size_t>(last - rest.begin()));
    result += argument_of(option);
    i += option.size();
    const std::string_view value = value_in(rest.substr(std::min(option.size() + 1, rest.size())));
    if (value.empty()) continue;
    result += "=" + quote(value);
    i += 1 + value.size();
  }
  return result;
}

}  // namespace subbyte::app
