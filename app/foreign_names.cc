#include "app/foreign_names.h"

#include <algorithm>
#include <string>

#include "subbyte/json.h"

namespace subbyte::app {
namespace {

constexpr ForeignOption kOptions[] = {
#define SUBBYTE_ALIAS(names, ours) {names, ours, ""},
#define SUBBYTE_NO_OPTION(names, instead) {names, "", instead},
#define SUBBYTE_NO_SETTING(names, neutral, instead) {names, "", instead},
#define SUBBYTE_NO_OPTION_OF(command, names, instead) {names, "", instead, command},
#include "app/foreign_names.def"
};

constexpr ForeignCommand kCommands[] = {
#define SUBBYTE_NO_COMMAND(names, instead) {names, instead},
#include "app/foreign_names.def"
};

struct Neutral {
  std::string_view names, values;
};
constexpr Neutral kNeutral[] = {
#define SUBBYTE_NEUTRAL(names, values) {names, values},
#define SUBBYTE_NO_SETTING(names, neutral, instead) {names, neutral},
#include "app/foreign_names.def"
};

constexpr std::string_view kFlags[] = {
#define SUBBYTE_FLAG(names) names,
#include "app/foreign_names.def"
};

constexpr std::string_view kLists[] = {
#define SUBBYTE_LIST(names) names,
#include "app/foreign_names.def"
};

bool is_in(std::span<const std::string_view> rows, std::string_view name) {
  return std::ranges::any_of(rows, [&](std::string_view names) { return has_word(names, name); });
}

template <class Row>
const Row* find(std::span<const Row> rows, std::string_view name) {
  const auto row =
      std::ranges::find_if(rows, [&](const Row& r) { return has_word(r.names, name); });
  return row == rows.end() ? nullptr : &*row;
}

}  // namespace

bool has_word(std::string_view names, std::string_view name) {
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find(' ', begin), names.size());
    if (names.substr(begin, end - begin) == name) return true;
    begin = end + 1;
  }
  return false;
}

std::span<const ForeignOption> foreign_options() {
  return kOptions;
}

std::span<const ForeignCommand> foreign_commands() {
  return kCommands;
}

const ForeignOption* find_foreign_option(std::string_view name, std::string_view command) {
  const ForeignOption* found = nullptr;
  for (const ForeignOption& row : foreign_options()) {
    if (!has_word(row.names, name)) continue;
    if (!row.command.empty() && row.command == command) return &row;
    if (row.command.empty() && found == nullptr) found = &row;
  }
  return found;
}

const ForeignCommand* find_foreign_command(std::string_view name) {
  return find(foreign_commands(), name);
}

std::optional<std::string_view> neutral_values(std::string_view name) {
  const Neutral* const row = find<Neutral>(kNeutral, name);
  if (row == nullptr) return std::nullopt;
  return row->values;
}

bool is_neutral(std::string_view values, std::string_view typed) {
  if (values == "*") return true;
  const auto number = Json::parse(typed);
  const Json all = Json::parse("[" + std::string(values) + "]").value();
  return std::ranges::any_of(all, [&](const Json& value) {
    return value.is_string() ? value.string() == typed : number.ok() && value == *number;
  });
}

bool is_foreign_flag(std::string_view name) {
  return name.starts_with("--enable-") || name.starts_with("--disable-") || is_in(kFlags, name);
}

bool is_foreign_list(std::string_view name) {
  return is_in(kLists, name);
}

}  // namespace subbyte::app
