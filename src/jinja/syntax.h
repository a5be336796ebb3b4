#pragma once
// The syntax tree of a template.

#include <memory>
#include <string>
#include <vector>

#include "jinja/operations.h"

namespace subbyte::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind : uint8_t {
  kConstant,     // constant
  kName,         // name
  kTuple,        // children
  kList,         // children
  kDictionary,   // keys and values in turn
  kAttribute,    // child 0 . name
  kItem,         // child 0 [child 1]
  kSlice,        // child 0 [child 1 : child 2 : child 3], nullptr where left out
  kCall,         // child 0 (arguments)
  kFilter,       // child 0 | name(arguments)
  kTest,         // child 0 is name(arguments)
  kNot,          // child 0
  kNegative,     // child 0
  kPositive,     // child 0
  kAnd,          // children 0 and 1
  kOr,           // children 0 and 1
  kArithmetic,   // child 0, operators[0], child 1
  kComparison,   // children with operators between them
  kConcat,       // children
  kConditional,  // child 0 if child 1 else child 2, which may be nullptr
};

struct Argument {
  enum class Kind : uint8_t { kPositional, kNamed, kList, kDictionary } kind;
  std::string name;
  ExpressionPtr value;
};

struct Expression {
  ExpressionKind kind;
  int line;
  int depth = 1;  // of the tree
  std::string name{};
  Value constant{};
  std::vector<ExpressionPtr> children{};
  std::vector<Operator> operators{};
  std::vector<Argument> arguments{};
};

/// Names what is assigned to: a name, an attribute of a namespace, or several in a tuple.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> parts;
};

struct Node;
using Body = std::vector<std::unique_ptr<Node>>;

enum class NodeKind : uint8_t {
  kText,       // text
  kPrint,      // values
  kIf,         // branches; the last one may have no test
  kFor,        // targets[0] in values[0], branches[0] (with a filter as its test), else branches[1]
  kSet,        // targets[0] = values[0]
  kSetBlock,   // targets[0] = branches[0], through the filter values[0], if any
  kMacro,      // text(parameters): branches[0]
  kCallBlock,  // (parameters) values[0]: branches[0]
  kFilterBlock,  // values[0] of branches[0]
  kWith,         // targets = values: branches[0]
  kScope,        // branches[0]
  kBreak,
  kContinue,
};

struct Branch {
  ExpressionPtr test;
  Body body;
};

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;
};

struct Node {
  NodeKind kind;
  int line;
  std::string text{};
  std::vector<ExpressionPtr> values{};
  std::vector<Target> targets{};
  std::vector<Branch> branches{};
  std::vector<Parameter> parameters{};
  // Of macros: the names that its body uses.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

}  // namespace subbyte::jinja
