#pragma once
// Operators as functions of a call, and the list of those that are registered.
//
//   Status scale(Call& call) {
//     const Tensor x = call.tensor();        // in the order of the signature, all of them first
//     const double factor = call.number();
//     SUBBYTE_CHECK(call.check());           // what the signature says of them
//     SUBBYTE_TRY(Tensor out, call.result());
//     ...                                    // an Error becomes an exception of Python
//     return call.add(std::move(out));
//   }

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "torch_operators/signature.h"
#include "torch_operators/tensor.h"

namespace subbyte::torch_operators {

/// A call of an operator. Arguments are read from the stack in the order of the signature, whose
/// names they have; what is read belongs to the caller.
class Call {
 public:
  Call(const Signature& signature, Word* stack);

  /// Contiguous: a copy where it was not.
  Tensor tensor() { return keep(next_tensor().contiguous()); }
  Tensor tensor_as_it_is() { return keep(next_tensor()); }
  int64_t integer();
  bool boolean() { return (last() = integer() & 1) != 0; }
  double number() { return std::bit_cast<double>(integer()); }
  int32_t dtype() { return static_cast<int32_t>(integer()); }
  std::string text();
  std::vector<int64_t> integers();
  std::optional<Tensor> optional_tensor() { return optional(&Call::tensor); }
  std::optional<Tensor> tensor_unless_empty();
  std::optional<int64_t> optional_integer() { return optional(&Call::integer); }
  std::optional<double> optional_number() { return optional(&Call::number); }
  /// ScalarType?, where it is absent the first that the signature allows.
  int32_t dtype_or_first();
  /// The place of a text, which may be absent, among those that the signature allows.
  int64_t choice();
  /// Passes over arguments that choose nothing, as far as the signature allows them.
  void skip(int count = 1);

  /// Gives names that the signature has their values, by what has been read and by the caller, who
  /// may know more. A value that check() has not been given before. Codes: argument.
  Status bind();
  void bind(std::string_view name, int64_t value);
  /// Checks what has been read by the signature. Code argument.
  Status check();

  /// A new tensor for result i, where the first tensor is unless a device is given; or the one that
  /// the operator is told to write to, which has to be as the result is and contiguous. Code
  /// argument.
  Result<Tensor> result(std::size_t i = 0, std::optional<Device> device = std::nullopt) const;
  /// Says whether there is one, and the tensor that the operator is told to write to.
  bool writes() const { return out_.has_value(); }
  Tensor& out() { return *out_; }
  /// Adds the next result, unless the operator has been told to write to it; never fails.
  Status add(Tensor tensor);
  /// Leaves the results on the stack.
  void finish();

 private:
  /// A tensor that has been read.
  struct Operand {
    std::size_t place;
    int32_t dtype;
    bool is_elsewhere;  // than the first one
    std::span<const int64_t> sizes;
  };
  /// No more than a tensor may have, and one; in no memory of its own.
  struct Sizes {
    void add(int64_t size) { values.at(count++) = size; }
    std::span<const int64_t> span() const { return {values.data(), count}; }
    std::array<int64_t, 80> values;
    std::size_t count = 0;
  };

  template <typename T>
  std::optional<T> optional(T (Call::*read)()) {
    if (skips_absent()) return std::nullopt;
    return (this->*read)();
  }
  bool skips_absent();
  Word word();
  Tensor next_tensor();
  Tensor keep(Tensor tensor);
  const Argument& argument_of(const Operand& operand) const {
    return signature_.arguments[operand.place];
  }
  int64_t& last() { return values_[next_ - 1]; }
  int64_t& value(int place) { return values_[static_cast<std::size_t>(place)]; }
  Status check_value(const Argument& argument, int64_t value) const;
  Status bind_sizes(const Operand& operand);
  Status check_operand(const Operand& operand) const;
  Status check_sizes(const Operand& operand, const Note& note) const;
  Sizes sizes_of(const Note& note) const;
  int32_t type_of(const Note& note) const;
  bool has_type(const Note& note, int32_t dtype) const;
  std::string types_of(const Note& note) const;
  Error refuse_operand(const Operand& operand, std::string_view expected) const;

  static constexpr std::size_t kMost = 24;  // arguments; as many sizes have names

  const Signature& signature_;
  Word* const stack_;
  std::size_t next_ = 0;
  bool is_bound_ = false;
  uint32_t absent_ = 0;  // bits of arguments
  std::array<int64_t, 2 * kMost> values_{};
  std::array<Operand, kMost> operands_;
  std::size_t num_operands_ = 0;
  Device device_;                   // of the first tensor
  bool has_batch_ = false;          // "..." is known
  std::vector<int64_t> list_;       // that integers() has read
  std::span<const int64_t> batch_;  // "..."
  std::string other_text_;          // none of those that the signature allows
  std::optional<Tensor> out_;
  std::vector<Tensor> results_;
};

using Body = Status (*)(Call& call);

/// An operator for CPUs and GPUs: its body asks where tensors are.
struct Operator {
  const char* text;  // of its signature
  Body body;
};

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

/// An operator with its signature, which is never destroyed.
struct Registered {
  Signature signature;
  Body body;
};
/// All of them, made at the first call.
std::span<const Registered> all_operators();
/// Gives all of them their kernels for a dispatch key of torch. Code torch.library.
Status implement(const char* key, std::span<const Kernel> kernels);
/// Runs one; an error becomes a std::runtime_error with text and code.
void run(const Registered& op, Word* stack);

// A kernel gets no more than a stack, so each operator has a function of its own.
inline constexpr std::size_t kMostOperators = 96;
template <void (*kRun)(std::size_t index, Word* stack)>
constexpr std::array<Kernel, kMostOperators> kernels() {
  return []<std::size_t... kIndices>(std::index_sequence<kIndices...>) {
    return std::array<Kernel, kMostOperators>{
        [](Word* stack, uint64_t, uint64_t) { kRun(kIndices, stack); }...};
  }
  (std::make_index_sequence<kMostOperators>());
}

/// Tells int4_operators() which tiles this torch has: "AVX512", "AVX2" or another answer of
/// torch.backends.cpu.get_cpu_capability(). Called before any operator.
void set_int4_tile(std::string_view capability);

/// Defines all operators in the namespace `subbyte` of torch. Codes: torch.library.
Status register_operators();

}  // namespace subbyte::torch_operators
