#pragma once
// Values as Python writes them, which models copy from earlier calls: ['a', 1], {'b': (True,)}.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace subbyte {

/// The same value in JSON; a tuple is a list. nullopt for what is no such literal, or has no form
/// in JSON: sets, keys that are no texts, halves of surrogate pairs, numbers that JSON writes
/// otherwise.
std::optional<std::string> python_literal_as_json(std::string_view text);

/// Calls as Python writes them, f(x=1, s='a'), in a list or one after the other. Texts may have
/// line breaks, which models do not always escape.
struct PythonCalls {
  std::vector<std::pair<std::string, std::string>> calls;  // names, and arguments in JSON
  bool is_read = false;
  bool is_open = false;  // it broke off inside a text
};
PythonCalls read_python_calls(std::string_view text);

}  // namespace subbyte
