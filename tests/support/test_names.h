#pragma once
// Names of the cases of parameterised tests, from the values: what ctest would print of a struct
// are its bytes.

#include <gtest/gtest.h>

#include <cctype>
#include <sstream>
#include <string>
#include <tuple>

namespace subbyte {

/// Letters, digits and single underscores, of anything that can be printed.
template <typename T>
std::string test_name_of(const T& value) {
  std::ostringstream text;
  text << std::boolalpha << value;
  std::string name;
  for (const char c : text.str()) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_plain || (!name.empty() && name.back() != '_')) name.push_back(is_plain ? c : '_');
  }
  if (!name.empty() && name.back() == '_') name.pop_back();
  return name;
}

template <typename... T>
std::string test_name_of(const std::tuple<T...>& values) {
  return std::apply(
      [](const auto&... value) {
        std::string name;
        ((name += (name.empty() ? "" : "_") + test_name_of(value)), ...);
        return name;
      },
      values);
}

/// The last argument of INSTANTIATE_TEST_SUITE_P.
struct NamedByValue {
  template <typename T>
  std::string operator()(const ::testing::TestParamInfo<T>& test) const {
    return test_name_of(test.param);
  }
};

}  // namespace subbyte
