#include "torch_operators/expression.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>
#include <string>
#include <utility>

#include "torch_operators/tensor.h"

namespace subbyte::torch_operators {
namespace {

int64_t multiply(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
int64_t add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
/// Rounded down, as Python has it.
int64_t divide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return multiply(a, -1);
  return a / b - static_cast<int64_t>(a % b != 0 && (a < 0) != (b < 0));
}
int64_t per(int64_t a, int64_t b) {
  return divide(add(a, add(b, -1)), b);
}
int64_t up(int64_t a, int64_t b) {
  return multiply(per(a, b), b);
}

struct Operation {
  std::string_view word;
  int level;  // of precedence
  int64_t (*apply)(int64_t a, int64_t b);
};
constexpr int kLevels = 3;
constexpr Operation kWords[] = {
    {"==", 0, [](int64_t a, int64_t b) { return int64_t{a == b}; }},
    {"<", 0, [](int64_t a, int64_t b) { return int64_t{a < b}; }},
    {">", 0, [](int64_t a, int64_t b) { return int64_t{a > b}; }},
    {"+", 1, add},
    {"-", 1, [](int64_t a, int64_t b) { return add(a, multiply(b, -1)); }},
    {"//", 2, divide},
    {"*", 2, multiply},
    {"%", 2, [](int64_t a, int64_t b) { return add(a, multiply(divide(a, b), multiply(b, -1))); }},
};
constexpr Operation kFunctions[] = {
    {"per", 0, per},
    {"up", 0, up},
    {"groups", 0, [](int64_t k, int64_t g) { return g == 0 ? 1 : per(k, g); }},
    {"scale_rows", 0, [](int64_t m, int64_t l) { return l == 2 ? m : up(m, l == 0 ? 128 : 8); }},
    {"scale_cols", 0, [](int64_t c, int64_t l) { return l == 2 ? c : up(c, 4); }},
    {"bytes", 0, [](int64_t, int64_t t) { return bytes_of(static_cast<int32_t>(t)); }},
};

/// Stands for "a if b else c" of the last three values.
int64_t choose(int64_t, int64_t) {
  return 0;
}

}  // namespace

class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, FunctionRef<int(std::string_view)> place_of)
      : text_(text), rest_(text), place_of_(place_of) {}

  std::vector<Expression::Step> parse() {
    choice();
    if (!rest_.empty()) fail();
    return std::move(steps_);
  }

 private:
  [[noreturn]] void fail() const {
    throw std::logic_error("not an expression of sizes: " + std::string(text_));
  }
  bool takes(std::string_view word) {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!takes(word)) fail();
  }

  void choice() {
    binary(0);
    if (!takes("if ")) return;
    binary(0);
    expect("else ");
    choice();
    steps_.push_back({choose});
  }
  void binary(int level) {
    if (level == kLevels) return operand();
    binary(level + 1);
    const auto is_next = [&](const Operation& word) {
      return word.level == level && takes(word.word);
    };
    for (;;) {
      const auto* const word = std::ranges::find_if(kWords, is_next);
      if (word == std::end(kWords)) return;
      binary(level + 1);
      steps_.push_back({word->apply});
    }
  }
  void operand() {
    if (takes("(")) {
      choice();
      return expect(")");
    }
    const auto* const end = std::ranges::find_if_not(
        rest_, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    const std::string_view word(rest_.begin(), end);
    if (word.empty()) fail();
    rest_.remove_prefix(word.size());
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
      steps_.push_back({nullptr, std::stoll(std::string(word))});
    } else if (takes("(")) {
      call(word);
    } else {
      steps_.push_back({nullptr, 0, place_of_(word)});
    }
  }
  void call(std::string_view name) {
    const auto* const function = std::ranges::find(kFunctions, name, &Operation::word);
    if (function == std::end(kFunctions)) fail();
    if (name == "bytes") steps_.push_back({});  // a first operand that it does not have
    choice();
    if (takes(",")) choice();
    expect(")");
    steps_.push_back({function->apply});
  }

  std::string_view text_;
  std::string_view rest_;
  FunctionRef<int(std::string_view)> place_of_;
  std::vector<Expression::Step> steps_;
};

Expression::Expression(std::string_view text, FunctionRef<int(std::string_view)> place_of)
    : steps_(ExpressionParser(text, place_of).parse()) {}

int64_t Expression::of(std::span<const int64_t> values) const {
  std::array<int64_t, 16> stack;
  stack[0] = 0;
  std::size_t size = 0;
  for (const Step& step : steps_) {
    if (step.apply == nullptr) {
      stack.at(size++) =
          step.place < 0 ? step.number : values[static_cast<std::size_t>(step.place)];
    } else if (step.apply == choose) {
      size -= 2;
      if (stack[size] == 0) stack[size - 1] = stack[size + 1];
    } else {
      --size;
      stack[size - 1] = step.apply(stack[size - 1], stack[size]);
    }
  }
  return stack[0];
}

}  // namespace subbyte::torch_operators
