#include "app/foreign_arguments.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

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

/// Tells whether a word after an option is its value and no word of the sentence.
bool is_value(std::string_view word) {
  constexpr std::string_view kTypes[] = {"f16", "bf16", "f32", "fp8"};
  return word == "cpu" || word.starts_with("cuda") || std::ranges::count(kTypes, word) > 0 ||
         (!word.empty() && word[0] >= '0' && word[0] <= '9');
}

/// "=4" or "=\"cuda:N\"" for a text that begins with " 4" or " cuda:N", and how long that is there;
/// empty where no value follows.
std::pair<std::string, std::size_t> value_in(std::string_view text) {
  if (!text.starts_with(' ')) return {};
  const auto end = std::ranges::find_if_not(text.substr(1), is_of_value);
  const std::string_view word(text.begin() + 1, end);
  if (!is_value(word)) return {};
  const bool is_number = word[0] >= '0' && word[0] <= '9';
  return {"=" + (is_number ? std::string(word) : quote(word)), 1 + word.size()};
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
  return ForeignArgument{row->ours.empty() ? "" : argument_of(row->ours),
                         std::string(neutral_values(option).value_or("")), in_python(row->instead)};
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
    const char c = sentence[i];
    if (c == '`' || c == '"') is_quoted = !is_quoted;
    const std::string_view rest = sentence.substr(i);
    const bool begins = result.empty() || result.back() == ' ' || result.back() == '(';
    const bool is_option = rest.starts_with("--") && rest.size() > 2 && rest[2] >= 'a';
    if (is_quoted || !begins || !is_option) {
      result += c;
      ++i;
      continue;
    }
    const auto end = std::ranges::find_if_not(
        rest, [](char letter) { return letter == '-' || (letter >= 'a' && letter <= 'z'); });
    const std::string_view option(rest.begin(), end);
    const auto [value, length] = value_in(rest.substr(option.size()));
    result += argument_of(option) + value;
    i += option.size() + length;
  }
  return result;
}

}  // namespace subbyte::app
