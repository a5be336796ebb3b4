#pragma once
// Tokens of a template as a syntax tree, by the grammar of Jinja 3.1.

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/lexer.h"
#include "jinja/syntax.h"

namespace subbyte::jinja {

struct Syntax {
  Body body;
  std::set<std::string, std::less<>> names;  // of the variables that it reads
};

/// Codes: jinja.syntax; jinja.limit for a template that is nested too deeply; jinja.unsupported.
/// The constants of the tree are taken from `meter`.
Syntax parse(std::string_view source, Meter& meter);

/// How an operator of two operands is written.
struct OperatorSign {
  std::string_view text;
  Operator operation;
};

class Parser {
 public:
  Parser(std::vector<Token> tokens, Meter& meter) : meter_(meter), tokens_(std::move(tokens)) {}
  Syntax run();

 private:
  struct MacroUse {
    bool caller = false;
    bool varargs = false;
    bool kwargs = false;
  };
  using Names = std::initializer_list<std::string_view>;
  /// Counts a level of nesting. Code jinja.limit.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) { parser_.check_depth(++parser_.depth_); }
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  // parser.cc: statements.
  Body body(Names ends);
  void statement(Body& nodes);
  std::unique_ptr<Node> node(NodeKind kind) const;
  std::unique_ptr<Node> if_statement();
  std::unique_ptr<Node> for_statement();
  std::unique_ptr<Node> set_statement();
  std::unique_ptr<Node> macro_statement();
  std::unique_ptr<Node> call_statement();
  std::unique_ptr<Node> filter_statement();
  std::unique_ptr<Node> with_statement();
  std::unique_ptr<Node> scope_statement(std::string_view end);
  std::unique_ptr<Node> print_statement();
  std::unique_ptr<Node> jump_statement(NodeKind kind);
  void signature(Node& node);
  Body hard_body(Names ends, bool keeps_loop);
  std::unique_ptr<Node> with_body(std::unique_ptr<Node> node, std::string_view end,
                                  bool keeps_loop);
  std::unique_ptr<Node> with_macro_body(std::unique_ptr<Node> node, std::string_view end);
  Target target(std::string_view end, bool may_be_attribute);
  Target single_target();

  // expression_parser.cc
  ExpressionPtr tuple(bool with_conditions = true, std::string_view end = {},
                      bool in_parentheses = false);
  ExpressionPtr expression(bool with_conditions = true);
  ExpressionPtr or_expression();
  ExpressionPtr and_expression();
  ExpressionPtr not_expression();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concat();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr factor();
  ExpressionPtr chain(std::span<const OperatorSign> signs, ExpressionPtr (Parser::*operand)());
  ExpressionPtr chain(std::string_view word, ExpressionKind kind,
                      ExpressionPtr (Parser::*operand)());
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr number();
  ExpressionPtr list();
  ExpressionPtr dictionary();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr with_filters(ExpressionPtr value);
  ExpressionPtr after_dot(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr call(ExpressionPtr value);
  ExpressionPtr filter(ExpressionPtr value, bool begins);
  ExpressionPtr test(ExpressionPtr value);
  void arguments(Expression& expression);
  std::string dotted_name();
  void note_unknown(const Expression& expression, bool is_known);
  ExpressionPtr make(ExpressionKind kind, int line) const;
  void adopt(Expression& parent, ExpressionPtr child);

  void check_depth(int depth) const;
  const Token& peek(std::size_t ahead = 0) const;
  bool at(TokenKind kind) const { return peek().kind == kind; }
  bool at_operator(std::string_view sign) const;
  bool at_name(std::string_view name) const;
  bool skip_operator(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view sign);
  void expect_block_end();
  std::string expect_name();
  Token take();
  [[noreturn]] void fail(const std::string& message) const;
  std::string found() const;

  Meter& meter_;
  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  int depth_ = 0;
  int loops_ = 0;         // around this place
  bool is_soft_ = false;  // inside a condition, where filters are looked up when they run
  std::vector<std::pair<std::string, int>> unknown_;  // filters and tests, with their lines
  std::vector<MacroUse> macros_;                      // around this place
  std::set<std::string, std::less<>> names_;
};

}  // namespace subbyte::jinja
