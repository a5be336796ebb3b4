#pragma once
// Makes templates that do one thing with values of any kind and size: each filter, test, method and
// function that the tables of the interpreter have, each operator and each statement. What such a
// template takes is compared with what it was charged.

#include <array>
#include <cstdint>
#include <ctime>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/evaluator.h"
#include "jinja/filters.h"
#include "jinja/methods.h"
#include "jinja/syntax.h"
#include "jinja/template.h"

namespace subbyte::jinja::testing {

template <typename Kind>
struct Construct {
  Kind kind;
  std::string_view source;  // of the values a, b and c
};
inline constexpr Construct<ExpressionKind> kExpressions[] = {
    {ExpressionKind::kConstant, "7"},        {ExpressionKind::kName, "a"},
    {ExpressionKind::kTuple, "(a, b)"},      {ExpressionKind::kList, "[a, b]"},
    {ExpressionKind::kDictionary, "{a: b}"}, {ExpressionKind::kAttribute, "a.b"},
    {ExpressionKind::kItem, "a[b]"},         {ExpressionKind::kSlice, "a[b:c]"},
    {ExpressionKind::kSlice, "a[::b]"},      {ExpressionKind::kCall, "m(*a)"},
    {ExpressionKind::kCall, "m(**a)"},       {ExpressionKind::kFilter, "a|string"},
    {ExpressionKind::kTest, "a is string"},  {ExpressionKind::kNot, "not a"},
    {ExpressionKind::kNegative, "-a"},       {ExpressionKind::kPositive, "+a"},
    {ExpressionKind::kAnd, "a and b"},       {ExpressionKind::kOr, "a or b"},
    {ExpressionKind::kArithmetic, "a + b"},  {ExpressionKind::kComparison, "a == b"},
    {ExpressionKind::kConcat, "a ~ b ~ c"},  {ExpressionKind::kConditional, "a if b else c"}};
inline constexpr Construct<Operator> kOperators[] = {
    {Operator::kAdd, "a + b"},           {Operator::kSubtract, "a - b"},
    {Operator::kMultiply, "a * b"},      {Operator::kDivide, "a / b"},
    {Operator::kFloorDivide, "a // b"},  {Operator::kModulo, "a % b"},
    {Operator::kPower, "a ** b"},        {Operator::kEqual, "a == b"},
    {Operator::kNotEqual, "a != b"},     {Operator::kLess, "a < b"},
    {Operator::kLessEqual, "a <= b"},    {Operator::kGreater, "a > b"},
    {Operator::kGreaterEqual, "a >= b"}, {Operator::kIn, "a in b"},
    {Operator::kNotIn, "a not in b"}};
inline constexpr Construct<NodeKind> kStatements[] = {
    {NodeKind::kText, "text"},
    {NodeKind::kPrint, "{{ a }}"},
    {NodeKind::kIf, "{% if a %}{% elif b %}{% endif %}"},
    {NodeKind::kFor, "{% for k in a %}{% endfor %}"},
    {NodeKind::kFor, "{% for k, v in a if k %}{% endfor %}"},
    {NodeKind::kSet, "{% set y, z = a %}"},
    {NodeKind::kSetBlock, "{% set z %}{{ a }}{{ b }}{% endset %}"},
    {NodeKind::kMacro, "{% macro g(p=a) %}{{ p }}{% endmacro %}{% set z = g() %}"},
    {NodeKind::kCallBlock, "{% call m() %}{{ a }}{% endcall %}"},
    {NodeKind::kFilterBlock, "{% filter upper %}{{ a }}{% endfilter %}"},
    {NodeKind::kWith, "{% with w = a %}{% endwith %}"},
    {NodeKind::kScope, "{% generation %}{{ a }}{% endgeneration %}"},
    {NodeKind::kScope, "SCOPES"},
    {NodeKind::kBreak, "{% break %}"},
    {NodeKind::kContinue, "{% continue %}"}};

// N is the size, an even number; x is a value of the input.
inline constexpr std::string_view kTexts[] = {"'a' * N",    "'ab' * N",      "'\\u00e4' * N",
                                              "'a\\n' * N", "' ' * N",       "'a b ' * N",
                                              "'9' * N",    "'<b>' * N",     "'%s' * N",
                                              "'{}' * N",   "'a' * N ~ 'b'", "'a' * N * 2 ~ 'c'",
                                              "'\\t' * N",  "('a' ~ x) * N", "'a.' * N",
                                              "'%.300f'",   "'a'",           "''"};
inline constexpr std::string_view kLists[] = {"[1] * N",
                                              "['a' * 9] * N",
                                              "range([N, 90000]|min)|list",
                                              "('ab' * N)|list",
                                              "[[1, 2]] * N",
                                              "[x, 1.5, none]",
                                              "[]"};
inline constexpr std::string_view kTuples[] = {"(1, 'a') * N", "range([N, 90000]|min)", "shared"};
inline constexpr std::string_view kDictionaries[] = {
    "dict(range([N, 90000]|min)|batch(2))", "dict(range([N, 90000]|min)|map('string')|batch(2))",
    "{'a' * N: 1}", "{'a': 1, 'b': x}", "{shared: 1}"};
inline constexpr std::string_view kNumbers[] = {
    "(-9223372036854775807 - 1)", "-1", "0", "1", "2147483648", "9223372036854775807",
    "18446744073709551616",       "N"};
inline constexpr std::string_view kFloats[] = {"1.5", "1e308", "-2e-308"};
inline constexpr std::string_view kOthers[] = {
    "none",  "true",     "nothing",      "namespace(a=1)",
    "range", "joiner()", "cycler(1, 2)", "([1] * N)|map('string')",
    "x",     "m"};

/// A name of the outermost of many scopes, each with names of its own, and one that is nowhere.
inline std::string many_scopes() {
  constexpr int kScopes = 80;
  constexpr int kNames = 15;
  std::string begin;
  std::string end;
  for (int i = 0; i < kScopes; ++i) {
    for (int k = 0; k < kNames; ++k)
      begin += (k == 0 ? "{% with v" : ", v") + std::to_string(k) + "=1";
    begin += " %}";
    end += "{% endwith %}";
  }
  return begin + "{% for k in range(50) %}{% set z = a %}{% set z = " + std::string(250, 'v') +
         " %}{% endfor %}" + end;
}

class TemplateGenerator {
 public:
  explicit TemplateGenerator(uint64_t seed) : random_(seed) {
    add("expression", kExpressions);
    add("operator", kOperators);
    for (const auto& made : kStatements) {
      operations_.push_back(
          {"statement " + std::string(made.source), std::string(made.source), ""});
      replace(operations_.back().source, "SCOPES", many_scopes());
    }
    for (const std::string_view name : filter_names()) {
      operations_.push_back(
          {"filter " + std::string(name), "a|" + std::string(name) + "ARGUMENTS", ""});
    }
    for (const std::string_view name : test_names()) {
      const std::string call = "[a]|select('" + std::string(name) + "'";
      operations_.push_back({"test " + std::string(name), call + ")", ""});
      operations_.push_back({"test " + std::string(name) + " b", call + ", b)", ""});
    }
    for (const std::string_view name : global_names()) {
      operations_.push_back({"function " + std::string(name), std::string(name) + "ARGUMENTS", ""});
    }
    for (const Methods& methods : all_methods()) {
      for (const std::string_view name : methods.names) {
        operations_.push_back({"method " + std::string(methods.type) + "." + std::string(name),
                               "a." + std::string(name) + "ARGUMENTS", methods.type});
      }
    }
  }

  std::size_t num_operations() const { return operations_.size(); }
  const std::string& name(std::size_t operation) const { return operations_[operation].name; }

  /// A template that does it `repeats` times; three sizes of the same one are next to each other.
  std::array<std::string, 3> make(std::size_t operation, std::size_t size, std::size_t repeats) {
    const Operation& made = operations_[operation];
    std::string body = made.source;
    constexpr std::string_view kArguments[] = {"()", "(b)", "(b, c)", "(b, c, b)", "(*[c, b])"};
    replace(body, "ARGUMENTS", one_of(kArguments));
    if (!made.name.starts_with("statement")) body = "{% set z = " + body + " %}";
    const std::string values = "{% set a = " + value(made.self) + " %}{% set b = " + value("") +
                               " %}{% set c = " + value("") + " %}";
    std::array<std::string, 3> sources;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      sources[i] =
          "{% macro m() %}{{ varargs|length }}{{ kwargs|length }}{% endmacro %}"
          "{% set s = namespace(t=(1,)) %}{% for i in range(30) %}{% set s.t = (s.t, s.t) "
          "%}{% endfor %}{% set shared = s.t %}" +
          values + "{% for i in range(" + std::to_string(repeats) + ") %}" + body + "{% endfor %}";
      replace(sources[i], "N", std::to_string(size << i));
    }
    return sources;
  }

  std::size_t below(std::size_t count) { return random_() % count; }

 private:
  struct Operation {
    std::string name;
    std::string source;
    std::string_view self;  // the type of a; any if it is empty
  };

  template <typename Constructs>
  void add(const std::string& kind, const Constructs& constructs) {
    for (const auto& made : constructs) {
      operations_.push_back({kind + " " + std::string(made.source), std::string(made.source), ""});
    }
  }
  template <typename Names>
  std::string_view one_of(const Names& names) {
    return names[below(std::size(names))];
  }
  /// An expression without capital letters but N.
  std::string value(std::string_view type) {
    if (type == "str") return std::string(one_of(kTexts));
    if (type == "list") return std::string(one_of(kLists));
    if (type == "tuple") return std::string(one_of(kTuples));
    if (type == "dict") return std::string(one_of(kDictionaries));
    if (type == "float") return std::string(one_of(kFloats));
    constexpr std::string_view kTypes[] = {"str", "str", "list", "tuple", "dict", "float"};
    constexpr std::size_t kNames = 4;
    switch (below(4)) {
      case 0:
        return std::string(one_of(kNumbers));
      case 1:
        if (below(kNames) == 0) {
          const auto names = below(2) == 0 ? filter_names() : test_names();
          return "'" + std::string(one_of(names)) + "'";
        }
        return std::string(one_of(kOthers));
      default:
        return value(one_of(kTypes));
    }
  }
  static void replace(std::string& text, std::string_view what, std::string_view by) {
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
      text.replace(at, what.size(), by);
      at += by.size();
    }
  }

  std::mt19937_64 random_;
  std::vector<Operation> operations_;
};

inline double processor_seconds() {
  std::timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Measured {
  double seconds = 0;
  Usage usage;
  std::string outcome;  // the code of an error, or nothing
};

inline Measured measure(const std::string& source, const Limits& limits) {
  const auto chat = Template::compile(source, "t");
  if (!chat.ok()) return {0, {}, std::string(chat.error().code)};
  Measured measured;
  const double begin = processor_seconds();
  const auto text =
      chat->render({{"x", {"one", "two"}, Origin::kInput}},
                   {.now = {}, .roles = {}, .limits = limits, .usage = &measured.usage});
  measured.seconds = processor_seconds() - begin;
  if (!text.ok()) measured.outcome = text.error().code;
  return measured;
}

}  // namespace subbyte::jinja::testing
