#pragma once
// Tensors of torch as operators see them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/format.h"
#include "torch_operators/shim.h"

namespace subbyte::torch_operators {

/// Owns a handle. What a function of libtorch refuses is a std::runtime_error.
class Tensor {
 public:
  /// Takes the handle over; `name` is that of the argument, for messages.
  explicit Tensor(TensorHandle handle, const char* name = "result");
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor();

  /// A new contiguous tensor on the device of `like`; its numbers are not set.
  static Tensor empty(std::span<const int64_t> sizes, int32_t dtype, const Tensor& like);
  static Tensor empty_on_cpu(std::span<const int64_t> sizes, int32_t dtype);

  const char* name() const { return name_; }
  std::span<const int64_t> sizes() const { return sizes_; }
  int64_t dim() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t size(int64_t i) const { return sizes_[i < 0 ? i + dim() : i]; }
  /// How many elements it has, and what they take if they are contiguous.
  int64_t count() const { return count_; }
  int64_t num_bytes() const { return count_ * element_bytes_; }
  int32_t dtype() const { return dtype_; }
  /// f32, f16, bf16, e4m3, e5m2 or e8m0; kNone for any other type.
  Format format() const;
  bool on_cpu() const { return device_type_ == numbers().cpu; }
  int32_t device_index() const { return device_index_; }
  bool same_device(const Tensor& other) const {
    return device_type_ == other.device_type_ && (on_cpu() || device_index_ == other.device_index_);
  }

  bool is_contiguous() const;
  /// Itself, or a copy that is contiguous.
  Tensor contiguous() &&;
  /// Says whether contiguous() had to copy.
  bool is_copy() const { return is_copy_; }

  /// Elements of a contiguous tensor.
  template <typename T = std::byte>
  T* data() const {
    return static_cast<T*>(data_);
  }
  template <typename T = std::byte>
  std::span<T> span() const {
    return {static_cast<T*>(data_), static_cast<std::size_t>(num_bytes()) / sizeof(T)};
  }

  /// Itself, or a copy on the CPU, for which the GPU is waited for.
  Tensor to_cpu() const;
  /// The same, made at the first call and kept as long as this handle.
  const Tensor& host() const;

  /// Itself, or a copy where `other` is.
  Tensor to_device_of(const Tensor& other) &&;

  /// Another handle of the same tensor.
  Tensor share() const;
  /// Gives the handle away.
  TensorHandle release();
  TensorHandle handle() const { return handle_; }

 private:
  static Tensor empty_at(std::span<const int64_t> sizes, int32_t dtype, int32_t device_type,
                         int32_t device_index);

  TensorHandle handle_;
  const char* name_;
  std::span<const int64_t> sizes_;
  int64_t count_ = 1;
  int64_t element_bytes_ = 0;
  int32_t dtype_ = -1;
  int32_t device_type_ = -1;
  int32_t device_index_ = -1;
  void* data_ = nullptr;
  bool is_copy_ = false;
  mutable std::unique_ptr<Tensor> host_;
};

/// "f32", "u8", "i32"; "another type".
std::string_view name_of(int32_t dtype);
/// The type of torch for f32, f16, bf16, e4m3, e5m2; that of bytes for any other.
int32_t dtype_of(Format format);
/// "[3, 64]".
std::string shown(std::span<const int64_t> sizes);

/// "NAME: expected EXPECTED, found FOUND", code torch.argument.
Error refuse(std::string_view name, std::string_view expected, std::string_view found);
/// The same with the sizes and the type of a tensor as what was found.
Error refuse(const Tensor& tensor, std::string_view expected);

/// Codes torch.argument.
Status check_dtype(const Tensor& tensor, std::initializer_list<int32_t> allowed);
Status check_floats(const Tensor& tensor);  // f32, f16, bf16
Status check_dim(const Tensor& tensor, int64_t dim);
Status check_sizes(const Tensor& tensor, std::initializer_list<int64_t> sizes);

/// Checks that `tensor` is on the device of `like`.
Status check_device(const Tensor& tensor, const Tensor& like);

/// Checks what an operator is to write into: contiguous, of that type and those sizes.
Status check_out(const Tensor& out, std::span<const int64_t> sizes, int32_t dtype);

}  // namespace subbyte::torch_operators
