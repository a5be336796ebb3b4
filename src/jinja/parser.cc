#include "jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "jinja/refusal.h"

namespace subbyte::jinja {
Syntax parse(std::string_view source, Meter& meter) {
  return Parser(tokenize(source), meter).run();
}

Syntax Parser::run() {
  Syntax syntax{body({}), {}};
  if (!unknown_.empty()) {
    refuse(kSyntax, fmt::format("there is no filter or test {}", quote(unknown_[0].first)),
           unknown_[0].second);
  }
  syntax.names = std::move(names_);
  return syntax;
}

/// Nodes up to one of the tags that end it, which is not taken; up to the end without any.
Body Parser::body(Names ends) {
  const Nested nested(*this);
  Body nodes;
  while (!at(TokenKind::kEnd)) {
    if (at(TokenKind::kText)) {
      auto made = node(NodeKind::kText);
      made->text = take().text;
      nodes.push_back(std::move(made));
    } else if (at(TokenKind::kVariableBegin)) {
      auto made = node(NodeKind::kPrint);
      take();
      made->values.push_back(tuple());
      if (!at(TokenKind::kVariableEnd)) fail("expected the end of {{ }}");
      take();
      nodes.push_back(std::move(made));
    } else {
      const Token& name = peek(1);
      const bool ends_here = name.kind == TokenKind::kName &&
                             std::find(ends.begin(), ends.end(), name.text) != ends.end();
      if (ends_here) {
        take();
        return nodes;
      }
      take();
      statement(nodes);
    }
  }
  if (ends.size() > 0) fail(fmt::format("expected {{% {} %}}", *(ends.end() - 1)));
  return nodes;
}

void Parser::statement(Body& nodes) {
  const std::string name = expect_name();
  if (name == "if") return nodes.push_back(if_statement());
  if (name == "for") return nodes.push_back(for_statement());
  if (name == "set") return nodes.push_back(set_statement());
  if (name == "macro") return nodes.push_back(macro_statement());
  if (name == "call") return nodes.push_back(call_statement());
  if (name == "filter") return nodes.push_back(filter_statement());
  if (name == "with") return nodes.push_back(with_statement());
  if (name == "generation") return nodes.push_back(scope_statement("endgeneration"));
  if (name == "print") return nodes.push_back(print_statement());
  if (name == "break") return nodes.push_back(jump_statement(NodeKind::kBreak));
  if (name == "continue") return nodes.push_back(jump_statement(NodeKind::kContinue));
  constexpr std::string_view kOthers[] = {"block",  "extends", "include",
                                          "import", "from",    "autoescape"};
  if (std::ranges::find(kOthers, name) != std::end(kOthers)) {
    refuse(kUnsupported, fmt::format("the tag {} is not supported", quote(name)), peek().line);
  }
  fail(fmt::format("there is no tag {} here", quote(name)));
}

std::unique_ptr<Node> Parser::node(NodeKind kind) const {
  return std::make_unique<Node>(Node{.kind = kind, .line = peek().line});
}

std::unique_ptr<Node> Parser::if_statement() {
  auto made = node(NodeKind::kIf);
  const bool was_soft = std::exchange(is_soft_, true);
  while (true) {
    ExpressionPtr test = tuple(/*with_conditions=*/false);
    expect_block_end();
    Body then = body({"elif", "else", "endif"});
    made->branches.push_back({std::move(test), std::move(then)});
    const std::string name = take().text;
    if (name == "elif") continue;
    if (name == "else") {
      expect_block_end();
      made->branches.push_back({nullptr, body({"endif"})});
      take();
    }
    break;
  }
  is_soft_ = was_soft;
  expect_block_end();
  return made;
}

/// A body whose filters must be known, with its end, whose name is taken.
Body Parser::hard_body(Names ends, bool keeps_loop) {
  const bool was_soft = std::exchange(is_soft_, false);
  const int loops = std::exchange(loops_, keeps_loop ? loops_ : 0);
  Body nodes = body(ends);
  is_soft_ = was_soft;
  loops_ = loops;
  return nodes;
}

std::unique_ptr<Node> Parser::for_statement() {
  auto made = node(NodeKind::kFor);
  made->targets.push_back(target("in", false));
  if (!skip_name("in")) fail("expected 'in'");
  made->values.push_back(tuple(/*with_conditions=*/false, "recursive"));
  ExpressionPtr filter;
  if (skip_name("if")) filter = expression();
  if (at_name("recursive")) {
    refuse(kUnsupported, "recursive loops are not supported", peek().line);
  }
  expect_block_end();
  ++loops_;
  Body items = hard_body({"else", "endfor"}, true);
  --loops_;
  made->branches.push_back({std::move(filter), std::move(items)});
  if (take().text == "else") {
    expect_block_end();
    made->branches.push_back({nullptr, hard_body({"endfor"}, true)});
    take();
  }
  expect_block_end();
  return made;
}

std::unique_ptr<Node> Parser::set_statement() {
  auto made = node(NodeKind::kSet);
  made->targets.push_back(target("", true));
  if (skip_operator("=")) {
    made->values.push_back(tuple());
    expect_block_end();
    return made;
  }
  made->kind = NodeKind::kSetBlock;
  if (at_operator("|")) made->values.push_back(filter(nullptr, false));
  return with_body(std::move(made), "endset", true);
}

void Parser::signature(Node& made) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (!made.parameters.empty()) expect_operator(",");
    Parameter parameter = {expect_name(), nullptr};
    if (skip_operator("=")) {
      parameter.otherwise = expression();
    } else if (!made.parameters.empty() && made.parameters.back().otherwise) {
      fail("a parameter without a default follows one that has one");
    }
    made.parameters.push_back(std::move(parameter));
  }
  expect_operator(")");
}

/// The end of a tag, a body that makes no loop of its own, and the tag `end`.
std::unique_ptr<Node> Parser::with_body(std::unique_ptr<Node> made, std::string_view end,
                                        bool keeps_loop) {
  expect_block_end();
  made->branches.push_back({nullptr, hard_body({end}, keeps_loop)});
  take();
  expect_block_end();
  return made;
}

std::unique_ptr<Node> Parser::with_macro_body(std::unique_ptr<Node> made, std::string_view end) {
  macros_.emplace_back();
  made = with_body(std::move(made), end, false);
  made->uses_caller = macros_.back().caller;
  made->uses_varargs = macros_.back().varargs;
  made->uses_kwargs = macros_.back().kwargs;
  macros_.pop_back();
  return made;
}

std::unique_ptr<Node> Parser::macro_statement() {
  auto made = node(NodeKind::kMacro);
  made->text = expect_name();
  signature(*made);
  return with_macro_body(std::move(made), "endmacro");
}

std::unique_ptr<Node> Parser::call_statement() {
  auto made = node(NodeKind::kCallBlock);
  made->text = "caller";
  if (at_operator("(")) signature(*made);
  made->values.push_back(expression());
  if (made->values[0]->kind != ExpressionKind::kCall) fail("expected a call");
  return with_macro_body(std::move(made), "endcall");
}

std::unique_ptr<Node> Parser::filter_statement() {
  auto made = node(NodeKind::kFilterBlock);
  made->values.push_back(filter(nullptr, true));
  return with_body(std::move(made), "endfilter", true);
}

std::unique_ptr<Node> Parser::with_statement() {
  auto made = node(NodeKind::kWith);
  while (!at(TokenKind::kBlockEnd)) {
    if (!made->targets.empty()) expect_operator(",");
    made->targets.push_back(target("", false));
    expect_operator("=");
    made->values.push_back(expression());
  }
  return with_body(std::move(made), "endwith", true);
}

std::unique_ptr<Node> Parser::scope_statement(std::string_view end) {
  return with_body(node(NodeKind::kScope), end, false);
}

std::unique_ptr<Node> Parser::print_statement() {
  auto made = node(NodeKind::kPrint);
  while (!at(TokenKind::kBlockEnd)) {
    if (!made->values.empty()) expect_operator(",");
    made->values.push_back(expression());
  }
  expect_block_end();
  return made;
}

std::unique_ptr<Node> Parser::jump_statement(NodeKind kind) {
  auto made = node(kind);
  if (loops_ == 0) fail("break and continue stand in loops");
  expect_block_end();
  return made;
}

/// One name or several with commas, up to a name `end`, "=" or the end of the tag.
Target Parser::target(std::string_view end, bool may_be_attribute) {
  const bool is_attribute =
      may_be_attribute && peek(1).kind == TokenKind::kOperator && peek(1).text == ".";
  if (is_attribute) {
    Target made = {expect_name(), {}, {}};
    take();
    made.attribute = expect_name();
    return made;
  }
  Target first = single_target();
  if (!at_operator(",")) return first;
  Target made;
  made.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    const bool is_end = at(TokenKind::kBlockEnd) || at_operator("=") || at_name(end);
    if (is_end) break;
    made.parts.push_back(single_target());
  }
  return made;
}

Target Parser::single_target() {
  if (!skip_operator("(")) {
    const std::string name = expect_name();
    constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
    if (std::ranges::find(kReserved, name) != std::end(kReserved)) {
      fail(fmt::format("{} cannot be assigned to", quote(name)));
    }
    return {name, {}, {}};
  }
  const Nested nested(*this);
  Target made;
  while (!at_operator(")")) {
    if (!made.parts.empty()) expect_operator(",");
    if (!at_operator(")")) made.parts.push_back(single_target());
  }
  take();
  return made;
}

const Token& Parser::peek(std::size_t ahead) const {
  return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
}

bool Parser::at_operator(std::string_view sign) const {
  return at(TokenKind::kOperator) && peek().text == sign;
}

bool Parser::at_name(std::string_view name) const {
  return at(TokenKind::kName) && peek().text == name;
}

bool Parser::skip_operator(std::string_view sign) {
  const bool is_there = at_operator(sign);
  if (is_there) ++next_;
  return is_there;
}

bool Parser::skip_name(std::string_view name) {
  const bool is_there = at_name(name);
  if (is_there) ++next_;
  return is_there;
}

void Parser::expect_operator(std::string_view sign) {
  if (!skip_operator(sign)) fail(fmt::format("expected {}", quote(sign)));
}

void Parser::expect_block_end() {
  if (!at(TokenKind::kBlockEnd)) fail("expected the end of the tag");
  take();
}

std::string Parser::expect_name() {
  if (!at(TokenKind::kName)) fail("expected a name");
  return take().text;
}

Token Parser::take() {
  Token token = peek();
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

void Parser::fail(const std::string& message) const {
  refuse(kSyntax, fmt::format("{}, found {}", message, found()), peek().line);
}

std::string Parser::found() const {
  switch (peek().kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kBlockEnd:
    case TokenKind::kVariableEnd:
      return "the end of the tag";
    case TokenKind::kText:
      return "text";
    default:
      return quote(peek().text);
  }
}

}  // namespace subbyte::jinja
