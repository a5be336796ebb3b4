// Every character of Unicode 15.1 that is not for private use beside what CPython 3.13 says of it
// and makes of it (tests/data/unicode/write_python_letters.py).

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/methods.h"
#include "jinja/template.h"
#include "support/paths.h"
#include "unicode/utf8.h"

namespace subbyte::jinja {
namespace {

using Points = std::vector<char32_t>;

/// The lines of the file, by their names.
std::map<std::string, std::string> read_goldens() {
  std::ifstream file(std::string(kTestData) + "/unicode/python_letters.txt");
  std::map<std::string, std::string> goldens;
  std::string name;
  std::string rest;
  while (file >> name && std::getline(file, rest)) goldens[name] = rest;
  return goldens;
}

/// "41-5a 61-7a".
Points points_of(const std::string& ranges) {
  Points points;
  std::istringstream in(ranges);
  char32_t first = 0;
  char32_t last = 0;
  in >> std::hex;
  for (uint32_t begin = 0, end = 0; in >> begin && in.ignore() && in >> end;) {
    first = begin;
    last = end;
    for (char32_t point = first; point <= last; ++point) points.push_back(point);
  }
  return points;
}

/// "df=53,53 e0=c0".
std::map<char32_t, std::string> changes_of(const std::string& line) {
  std::map<char32_t, std::string> changes;
  std::istringstream in(line);
  in >> std::hex;
  for (uint32_t point = 0; in >> point;) {
    std::string& text = changes[point];
    uint32_t part = 0;
    do {
      in.ignore();
      in >> part;
      utf8::append(text, part);
    } while (in.peek() == ',');
  }
  return changes;
}

std::string text_of(char32_t point) {
  std::string text;
  utf8::append(text, point);
  return text;
}

class Letters : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    goldens_ = new std::map<std::string, std::string>(read_goldens());
    all_ = new Points(points_of((*goldens_)["all"]));
    ASSERT_EQ(all_->size(), 149'878U);
  }
  static void TearDownTestSuite() {
    delete goldens_;
    delete all_;
  }

  inline static std::map<std::string, std::string>* goldens_ = nullptr;
  inline static Points* all_ = nullptr;
};

TEST_F(Letters, are_what_python_says) {
  for (const std::string name :
       {"isalpha", "isdecimal", "isdigit", "isnumeric", "isspace", "isalnum", "isprintable",
        "islower", "isupper", "istitle", "isidentifier", "continues"}) {
    const std::string before = name == "continues" ? "a" : "";
    const std::string method = name == "continues" ? "isidentifier" : name;
    const Points expected = points_of((*goldens_)[name]);
    ASSERT_FALSE(expected.empty()) << name;
    Points found;
    for (const char32_t point : *all_) {
      if (*answer_of_text(method, before + text_of(point))) found.push_back(point);
    }
    ASSERT_EQ(found, expected) << name;
  }
}

TEST_F(Letters, become_what_python_makes_of_them) {
  std::string text;
  for (const char32_t point : *all_) {
    if (point != '\n') text += text_of(point) + "\n";
  }
  for (const std::string name : {"lower", "upper", "title", "casefold", "swapcase"}) {
    auto expected = changes_of((*goldens_)[name]);
    ASSERT_FALSE(expected.empty()) << name;
    if (name == "upper" || name == "title" || name == "swapcase") {  // of version 16
      expected[0x19B] = "\uA7DC";
      expected[0x264] = "\uA7CB";
    }
    const auto chat = Template::compile("{{ x." + name + "() }}", "letters");
    ASSERT_TRUE(chat.ok()) << chat.error().message;
    const std::vector<Variable> variables = {{"x", json::Value(text), Origin::kInput}};
    const auto made = chat->render(variables, {});
    ASSERT_TRUE(made.ok()) << made.error().message;
    std::istringstream lines(made->bytes());
    std::string line;
    for (const char32_t point : *all_) {
      if (point == '\n') continue;
      ASSERT_TRUE(std::getline(lines, line));
      const auto changed = expected.find(point);
      ASSERT_EQ(line, changed == expected.end() ? text_of(point) : changed->second)
          << name << " of U+" << std::hex << static_cast<uint32_t>(point);
    }
  }
}

}  // namespace
}  // namespace subbyte::jinja
