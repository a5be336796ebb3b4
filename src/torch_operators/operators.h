#pragma once
// Operators as functions of typed arguments, and the list of those that are registered.
//
//   Status scale(Arguments& arguments, Results& results) {
//     Tensor x = arguments.tensor("x");          // in the order of the schema, all of them first
//     const double factor = arguments.number();
//     SUBBYTE_CHECK(check_floats(x));            // an Error becomes an exception of Python
//     results.add(...);
//     return {};
//   }

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "torch_operators/tensor.h"

namespace subbyte::torch_operators {

/// Reads the stack from the bottom up; what is read belongs to the caller.
class Arguments {
 public:
  explicit Arguments(const Word* stack) : next_(stack) {}

  Tensor tensor(const char* name);  // as it is
  /// Contiguous: a copy where it was not.
  Tensor packed_tensor(const char* name) { return tensor(name).contiguous(); }
  std::optional<Tensor> optional_tensor(const char* name);  // contiguous
  int64_t integer() { return static_cast<int64_t>(*next_++); }
  bool boolean() { return (*next_++ & 1) != 0; }
  double number();
  int32_t dtype() { return static_cast<int32_t>(*next_++); }
  std::string text();
  std::optional<std::string> optional_text();
  std::optional<int64_t> optional_integer();
  std::optional<bool> optional_boolean();
  std::optional<double> optional_number();
  std::vector<int64_t> integers();

 private:
  std::optional<Word> optional_word();

  const Word* next_;
};

/// Results in the order of the schema.
class Results {
 public:
  void add(Tensor tensor) {
    if (!writes_to_) tensors_.push_back(std::move(tensor));
  }
  void write(Word* stack);

  /// A tensor for the one result: a new one like `like`, or that which an operator of the same body
  /// is told to write to, which must be contiguous and of this type and these sizes. Code
  /// torch.argument.
  Result<Tensor> result(std::span<const int64_t> sizes, int32_t dtype, const Tensor& like) const;
  /// The operator writes to `out` and has no results.
  void write_to(Tensor out) { writes_to_.emplace(std::move(out)); }

 private:
  std::vector<Tensor> tensors_;
  std::optional<Tensor> writes_to_;
};

using Body = Status (*)(Arguments& arguments, Results& results);

/// Runs `body`; an error becomes a std::runtime_error with text and code.
void run(Body body, Word* stack);
/// The same with the argument at `out` as what the body's result is written to, and with arguments
/// after it that choose nothing: tensors, `num_unused` of them.
void run_out(Body body, Word* stack, int out, int num_unused);

template <Body kBody>
void kernel(Word* stack, uint64_t /*num_arguments*/, uint64_t /*num_results*/) {
  run(kBody, stack);
}

/// A kernel whose schema is that of kBody with `Tensor(a!) out` after its kOut arguments.
template <Body kBody, int kOut, int kNumUnused = 0>
void kernel_out(Word* stack, uint64_t /*num_arguments*/, uint64_t /*num_results*/) {
  run_out(kBody, stack, kOut, kNumUnused);
}

struct Operator {
  const char* schema;
  Kernel cpu = nullptr;
  Kernel cuda = nullptr;
};

/// An operator whose kernel asks where its tensors are.
constexpr Operator on_both(const char* schema, Kernel kernel) {
  return {schema, kernel, kernel};
}

/// Operators of one file, each list with its subject.
std::span<const Operator> linear_operators();
std::span<const Operator> experts_operators();
std::span<const Operator> quantize_operators();
std::span<const Operator> int4_operators();
std::span<const Operator> bitsandbytes_operators();
std::span<const Operator> bitsandbytes_products();
std::span<const Operator> kbit_operators();
std::span<const Operator> kbit_products();
std::span<const Operator> flashinfer_operators();
std::span<const Operator> marlin_operators();
std::span<const Operator> awq_operators();

/// Tells int4_operators() which tiles this torch has: "AVX512", "AVX2" or another answer of
/// torch.backends.cpu.get_cpu_capability(). Called before any operator.
void set_int4_tile(std::string_view capability);

/// Defines all operators in the namespace `subbyte` of torch. Codes: torch.library.
Status register_operators();

}  // namespace subbyte::torch_operators
