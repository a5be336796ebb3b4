#pragma once
// Arithmetic of sizes, in words that Python reads as well (python/subbyte/torch/_fakes.py):
// integers, names, + - * // % == < > ( ), a if c else b, and the functions
//
//   per(a, b)            a / b, rounded up
//   up(a, b)             a, rounded up to a multiple of b
//   groups(k, g)         groups of g inputs in k, where 0 is all of them
//   scale_rows(m, l)     rows of FlashInfer's scales in the layout l: 0 is 128x4, 1 8x4, 2 linear
//   scale_cols(c, l)     and their columns
//   bytes(t)             of an element of type t

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "subbyte/function_ref.h"

namespace subbyte::torch_operators {

class Expression {
 public:
  Expression() = default;
  /// `place_of` gives the place of a name in the values. Throws std::logic_error: the text is ours.
  Expression(std::string_view text, FunctionRef<int(std::string_view)> place_of);

  /// Wraps around where 64 bits do not suffice; something divided by 0 is 0. 0 of no text.
  int64_t of(std::span<const int64_t> values) const;

 private:
  friend class ExpressionParser;
  /// A number, the value at a place, or what is made of the last two values; they come first.
  struct Step {
    int64_t (*apply)(int64_t a, int64_t b) = nullptr;
    int64_t number = 0;
    int place = -1;
  };
  std::vector<Step> steps_;
};

}  // namespace subbyte::torch_operators
