#pragma once
// The description of an operator, from which its schema, the checks of its operands, its results
// and its fake kernel (python/subbyte/torch/_fakes.py) are made: a schema of torch with notes in
// braces after the names of arguments and after results.
//
//   "scaled(Tensor x{floats [..., K]}, Tensor w{x [N=, K=]}, Tensor? bias{floats [N]}=None, "
//   "int bits{2..8}, str rule{ceil|even}=\"ceil\") -> Tensor{x [..., N]}"
//
//   note of      is
//   Tensor       types, and its sizes [a, b] or how many elements (n) it has
//     types      f32|f16 or another list; floats is f32|f16|bf16, halves f16|bf16; the name of an
//                argument: its type; any. `anywhere` before them: it need not be where the first
//                tensor is
//     sizes      NAME= gives a size a name; other ones have to be what an expression says, or _;
//                "..." is any dimensions, `rows` their product, the same in all operands
//     @ n        which of the types a result has, from 0 on
//     (n: words) "absmax: expected 4 scales", numbers without words; (n=) gives n a name
//   int          2..8 or 2|4|8
//   int[]        the names of its elements
//   bool, str    False, or nf4|fp4; the value of a text is its place in the list, from 1 on
//   ScalarType   types; where it is absent, the first of them
//   str format   {K=codes}: K is how many columns the format says that codes has (weights.h)
//
// An absent number is -1, an absent text 0. Names are given before anything is compared, so that
// it is x that is refused, the first operand, where it does not go with the others.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "torch_operators/expression.h"
#include "torch_operators/tensor.h"

namespace subbyte::torch_operators {

enum class ArgumentKind : uint8_t { kTensor, kInteger, kNumber, kBoolean, kText, kType, kIntegers };

/// One of [a, b] or of (n).
struct Size {
  enum class Kind : uint8_t { kAny, kBatch, kNamed, kIs, kExpression };
  Kind kind = Kind::kAny;
  int place = -1;  // of a value: what is given a name, or what it is
  Expression expression;
};

struct Note {
  std::vector<TypeNumber> types;  // none: any
  int type_of = -1;               // instead: the argument whose type it is
  Expression choice;              // of a result with one of several types
  bool is_anywhere = false;
  bool has_sizes = false;
  bool is_count = false;
  std::vector<Size> sizes;
  std::string unit;                // of a count
  std::vector<std::string> words;  // of texts and booleans; numbers as they were written
  std::vector<int64_t> numbers;    // allowed ones
  bool is_range = false;           // from the first number to the second
};

struct Argument {
  std::string name;
  ArgumentKind kind = ArgumentKind::kTensor;
  bool is_optional = false;
  bool is_noted = false;
  Note note;
};

struct Signature {
  /// Throws std::logic_error: the text is ours.
  static Signature parse(std::string_view text);

  int place_of(std::string_view name) const;  // in the values; -1

  std::string text;
  std::string name;    // with its overload
  std::string schema;  // without notes
  std::vector<Argument> arguments;
  std::vector<Note> results;
  int out = -1;  // the argument that the result is written to
  /// Names of values: of the arguments, `rows`, and sizes that have one.
  std::vector<std::string> names;
};

}  // namespace subbyte::torch_operators
