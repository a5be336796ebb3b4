#pragma once
// A template as tokens, with trim_blocks and lstrip_blocks, as chat templates are written for.

#include <string>
#include <string_view>
#include <vector>

namespace subbyte::jinja {

enum class TokenKind : unsigned char {
  kText,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;  // of a string without its escapes, of a number without underscores
  int line;
};

/// The last token is kEnd. Code jinja.syntax.
std::vector<Token> tokenize(std::string_view source);

}  // namespace subbyte::jinja
