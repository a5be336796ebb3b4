// The expressions of the grammar, from those that bind least to those that bind most.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/quote.h"
#include "jinja/filters.h"
#include "jinja/parser.h"
#include "jinja/refusal.h"

namespace subbyte::jinja {
namespace {

using Kind = ExpressionKind;

constexpr int kMaxDepth = 120;  // of statements and brackets
constexpr int kMaxTree = 200;   // of an expression

constexpr OperatorSign kComparisons[] = {
    {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
    {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
constexpr OperatorSign kSums[] = {{"+", Operator::kAdd}, {"-", Operator::kSubtract}};
constexpr OperatorSign kProducts[] = {{"*", Operator::kMultiply},
                                      {"/", Operator::kDivide},
                                      {"//", Operator::kFloorDivide},
                                      {"%", Operator::kModulo}};
constexpr OperatorSign kPowers[] = {{"**", Operator::kPower}};

std::shared_ptr<const Text> constant_text(Meter& meter, std::string_view text) {
  TextBuilder builder(meter);
  builder.append(text, Origin::kTemplate);
  return builder.finish();
}

}  // namespace

void Parser::check_depth(int depth) const {
  if (depth <= kMaxDepth) return;
  refuse(kLimit, fmt::format("the template is nested deeper than {}", kMaxDepth), peek().line);
}

ExpressionPtr Parser::make(Kind kind, int line) const {
  return std::make_unique<Expression>(Expression{.kind = kind, .line = line});
}

void Parser::adopt(Expression& parent, ExpressionPtr child) {
  if (child) parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMaxTree) {
    refuse(kLimit, fmt::format("an expression is longer than {} operations", kMaxTree),
           parent.line);
  }
  parent.children.push_back(std::move(child));
}

/// One expression, or several with commas between them.
ExpressionPtr Parser::tuple(bool with_conditions, std::string_view end, bool in_parentheses) {
  const int line = peek().line;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  const auto ends = [&] {
    return at(TokenKind::kVariableEnd) || at(TokenKind::kBlockEnd) || at_operator(")") ||
           (!end.empty() && at_name(end));
  };
  while (!ends()) {
    items.push_back(expression(with_conditions));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (items.empty() && !in_parentheses) fail("expected an expression");
  auto made = make(Kind::kTuple, line);
  for (ExpressionPtr& item : items) adopt(*made, std::move(item));
  return made;
}

ExpressionPtr Parser::expression(bool with_conditions) {
  const Nested nested(*this);
  if (!with_conditions) return or_expression();
  const std::size_t num_unknown = unknown_.size();
  ExpressionPtr value = or_expression();
  while (at_name("if")) {
    auto made = make(Kind::kConditional, take().line);
    adopt(*made, std::move(value));
    adopt(*made, or_expression());
    adopt(*made, skip_name("else") ? expression() : nullptr);
    unknown_.resize(std::min(unknown_.size(), num_unknown));
    value = std::move(made);
  }
  return value;
}

/// Operands of one kind with signs between them; the left ones belong together.
ExpressionPtr Parser::chain(std::span<const OperatorSign> signs,
                            ExpressionPtr (Parser::*operand)()) {
  ExpressionPtr value = (this->*operand)();
  while (true) {
    const auto sign =
        std::ranges::find_if(signs, [&](const OperatorSign& one) { return at_operator(one.text); });
    if (sign == signs.end()) return value;
    auto made = make(Kind::kArithmetic, take().line);
    made->operators.push_back(sign->operation);
    adopt(*made, std::move(value));
    adopt(*made, (this->*operand)());
    value = std::move(made);
  }
}

/// The same with a word between them.
ExpressionPtr Parser::chain(std::string_view word, Kind kind, ExpressionPtr (Parser::*operand)()) {
  ExpressionPtr value = (this->*operand)();
  while (at_name(word)) {
    auto made = make(kind, take().line);
    adopt(*made, std::move(value));
    adopt(*made, (this->*operand)());
    value = std::move(made);
  }
  return value;
}

ExpressionPtr Parser::or_expression() {
  return chain("or", Kind::kOr, &Parser::and_expression);
}

ExpressionPtr Parser::and_expression() {
  return chain("and", Kind::kAnd, &Parser::not_expression);
}

ExpressionPtr Parser::not_expression() {
  if (!at_name("not")) return comparison();
  const Nested nested(*this);
  auto made = make(Kind::kNot, take().line);
  adopt(*made, not_expression());
  return made;
}

ExpressionPtr Parser::comparison() {
  ExpressionPtr value = sum();
  auto made = make(Kind::kComparison, value->line);
  while (true) {
    const auto known = std::ranges::find_if(
        kComparisons, [&](const OperatorSign& sign) { return at_operator(sign.text); });
    if (known != std::end(kComparisons)) {
      take();
      made->operators.push_back(known->operation);
    } else if (at_name("in")) {
      take();
      made->operators.push_back(Operator::kIn);
    } else if (at_name("not") && peek(1).kind == TokenKind::kName && peek(1).text == "in") {
      take();
      take();
      made->operators.push_back(Operator::kNotIn);
    } else {
      break;
    }
    if (made->children.empty()) adopt(*made, std::move(value));
    adopt(*made, sum());
  }
  return made->operators.empty() ? std::move(value) : std::move(made);
}

ExpressionPtr Parser::sum() {
  return chain(kSums, &Parser::concat);
}

ExpressionPtr Parser::concat() {
  ExpressionPtr value = product();
  if (!at_operator("~")) return value;
  auto made = make(Kind::kConcat, value->line);
  adopt(*made, std::move(value));
  while (skip_operator("~")) adopt(*made, product());
  return made;
}

ExpressionPtr Parser::product() {
  return chain(kProducts, &Parser::power);
}

ExpressionPtr Parser::power() {
  return chain(kPowers, &Parser::factor);
}

ExpressionPtr Parser::factor() {
  return unary(true);
}

ExpressionPtr Parser::unary(bool takes_filters) {
  const Nested nested(*this);
  ExpressionPtr value;
  if (at_operator("-") || at_operator("+")) {
    const Token sign = take();
    value = make(sign.text == "-" ? Kind::kNegative : Kind::kPositive, sign.line);
    adopt(*value, unary(false));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return takes_filters ? with_filters(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::primary() {
  const int line = peek().line;
  if (at(TokenKind::kName)) return name_or_constant();
  if (at(TokenKind::kInteger) || at(TokenKind::kFloat)) return number();
  if (at(TokenKind::kString)) {
    std::string text;
    while (at(TokenKind::kString)) text += take().text;
    auto made = make(Kind::kConstant, line);
    made->constant = Value(String{constant_text(meter_, text)});
    return made;
  }
  if (skip_operator("(")) {
    ExpressionPtr made = tuple(true, {}, /*in_parentheses=*/true);
    expect_operator(")");
    return made;
  }
  if (at_operator("[")) return list();
  if (at_operator("{")) return dictionary();
  fail("expected an expression");
}

ExpressionPtr Parser::name_or_constant() {
  const Token token = take();
  auto made = make(Kind::kConstant, token.line);
  const std::string& name = token.text;
  if (name == "true" || name == "True") {
    made->constant = Value(true);
  } else if (name == "false" || name == "False") {
    made->constant = Value(false);
  } else if (name == "none" || name == "None") {
    made->constant = Value(None{});
  } else {
    made->kind = Kind::kName;
    made->name = name;
    names_.insert(name);
    for (MacroUse& use : macros_) {
      use.caller = use.caller || name == "caller";
      use.varargs = use.varargs || name == "varargs";
      use.kwargs = use.kwargs || name == "kwargs";
    }
  }
  return made;
}

ExpressionPtr Parser::number() {
  const Token token = take();
  auto made = make(Kind::kConstant, token.line);
  std::string_view text = token.text;
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (read.ec != std::errc()) value = text.find("e-") == text.npos ? HUGE_VAL : 0;
    made->constant = Value(value);
    return made;
  }
  int base = 10;
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
  }
  if (base != 10) text.remove_prefix(2);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  const bool is_whole = end == text.data() + text.size();
  if (is_whole && base == 10 && error == std::errc::result_out_of_range) {
    made->constant = Value(LongInteger{constant_text(meter_, text)});
    return made;
  }
  if (error != std::errc() || !is_whole) {
    refuse(kSyntax, fmt::format("{} is no integer of 64 bits", quote(token.text)), token.line);
  }
  made->constant = Value(value);
  return made;
}

ExpressionPtr Parser::list() {
  auto made = make(Kind::kList, take().line);
  while (!at_operator("]")) {
    if (!made->children.empty()) expect_operator(",");
    if (at_operator("]")) break;
    adopt(*made, expression());
  }
  expect_operator("]");
  return made;
}

ExpressionPtr Parser::dictionary() {
  auto made = make(Kind::kDictionary, take().line);
  while (!at_operator("}")) {
    if (!made->children.empty()) expect_operator(",");
    if (at_operator("}")) break;
    adopt(*made, expression());
    expect_operator(":");
    adopt(*made, expression());
  }
  expect_operator("}");
  return made;
}

ExpressionPtr Parser::postfix(ExpressionPtr value) {
  while (true) {
    if (at_operator(".")) {
      value = after_dot(std::move(value));
    } else if (at_operator("[")) {
      value = subscript(std::move(value));
    } else if (at_operator("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::with_filters(ExpressionPtr value) {
  while (true) {
    if (at_operator("|")) {
      value = filter(std::move(value), false);
    } else if (at_name("is")) {
      value = test(std::move(value));
    } else if (at_operator("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::after_dot(ExpressionPtr value) {
  auto made = make(Kind::kAttribute, take().line);
  adopt(*made, std::move(value));
  if (at(TokenKind::kInteger)) {
    made->kind = Kind::kItem;
    adopt(*made, number());
  } else {
    made->name = expect_name();
  }
  return made;
}

ExpressionPtr Parser::subscript(ExpressionPtr value) {
  auto made = make(Kind::kItem, take().line);
  adopt(*made, std::move(value));
  if (at_operator("]")) fail("expected an expression");
  ExpressionPtr first = at_operator(":") ? nullptr : expression();
  if (!at_operator(":")) {
    adopt(*made, std::move(first));
    if (at_operator(",")) refuse(kUnsupported, "several items in [] are not supported", made->line);
  } else {
    made->kind = Kind::kSlice;
    adopt(*made, std::move(first));
    for (int part = 0; part < 2; ++part) {
      const bool has_part = skip_operator(":") && !at_operator("]") && !at_operator(":");
      adopt(*made, has_part ? expression() : nullptr);
    }
  }
  expect_operator("]");
  return made;
}

ExpressionPtr Parser::call(ExpressionPtr value) {
  auto made = make(Kind::kCall, peek().line);
  adopt(*made, std::move(value));
  arguments(*made);
  return made;
}

void Parser::arguments(Expression& made) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (!made.arguments.empty()) expect_operator(",");
    if (at_operator(")")) break;
    Argument argument = {Argument::Kind::kPositional, {}, nullptr};
    const bool is_named =
        at(TokenKind::kName) && peek(1).kind == TokenKind::kOperator && peek(1).text == "=";
    if (skip_operator("*")) {
      argument.kind = Argument::Kind::kList;
    } else if (skip_operator("**")) {
      argument.kind = Argument::Kind::kDictionary;
    } else if (is_named) {
      argument.kind = Argument::Kind::kNamed;
      argument.name = take().text;
      take();
    } else if (!made.arguments.empty() &&
               made.arguments.back().kind != Argument::Kind::kPositional) {
      fail("an argument without a name follows one that has one");
    }
    argument.value = expression();
    made.depth = std::max(made.depth, argument.value->depth + 1);
    made.arguments.push_back(std::move(argument));
  }
  expect_operator(")");
}

std::string Parser::dotted_name() {
  std::string name = expect_name();
  while (skip_operator(".")) name += "." + expect_name();
  return name;
}

void Parser::note_unknown(const Expression& made, bool is_known) {
  if (!is_known && !is_soft_) unknown_.emplace_back(made.name, made.line);
}

/// `| name(...)`; at the head of a filter block without the bar, and without a value.
ExpressionPtr Parser::filter(ExpressionPtr value, bool begins) {
  while (begins || at_operator("|")) {
    if (!begins) take();
    begins = false;
    auto made = make(Kind::kFilter, peek().line);
    adopt(*made, std::move(value));
    made->name = dotted_name();
    note_unknown(*made, is_filter(made->name));
    if (at_operator("(")) arguments(*made);
    value = std::move(made);
  }
  return value;
}

ExpressionPtr Parser::test(ExpressionPtr value) {
  const int line = take().line;
  const bool is_negated = skip_name("not");
  auto made = make(Kind::kTest, line);
  adopt(*made, std::move(value));
  made->name = dotted_name();
  note_unknown(*made, is_test(made->name));
  const bool is_word = at_name("else") || at_name("or") || at_name("and");
  const bool has_value = at(TokenKind::kString) || at(TokenKind::kInteger) ||
                         at(TokenKind::kFloat) || at_operator("[") || at_operator("{") ||
                         (at(TokenKind::kName) && !is_word);
  if (at_operator("(")) {
    arguments(*made);
  } else if (has_value) {
    if (at_name("is")) fail("tests cannot be chained with 'is'");
    Argument argument = {Argument::Kind::kPositional, {}, postfix(primary())};
    made->depth = std::max(made->depth, argument.value->depth + 1);
    made->arguments.push_back(std::move(argument));
  }
  if (!is_negated) return made;
  auto negated = make(Kind::kNot, line);
  adopt(*negated, std::move(made));
  return negated;
}

}  // namespace subbyte::jinja
