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
#include "device/operands.h"
#include "formats/format.h"
#include "torch_operators/shim.h"

namespace subbyte::torch_operators {

/// Where a tensor lies, in torch's numbers.
struct Device {
  int32_t type = -1;
  int32_t index = 0;
  bool operator==(const Device&) const = default;
};

/// Owns a handle. What a function of libtorch refuses is a std::runtime_error.
class Tensor {
 public:
  /// Takes the handle over; `name` is that of the argument, for messages.
  explicit Tensor(TensorHandle handle, const char* name = "result");
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor();

  /// A new contiguous tensor; its numbers are not set.
  static Tensor empty(std::span<const int64_t> sizes, int32_t dtype, Device device);
  static Tensor empty(std::span<const int64_t> sizes, int32_t dtype, const Tensor& like) {
    return empty(sizes, dtype, like.device_);
  }
  static Tensor empty_on_cpu(std::span<const int64_t> sizes, int32_t dtype) {
    return empty(sizes, dtype, {numbers().cpu, 0});
  }

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
  Device device() const { return device_; }
  bool on_cpu() const { return device_.type == numbers().cpu; }
  bool same_device(const Tensor& other) const { return device_ == other.device_; }

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
  TensorHandle handle_;
  const char* name_;
  std::span<const int64_t> sizes_;
  int64_t count_ = 1;
  int64_t element_bytes_ = 0;
  int32_t dtype_ = -1;
  Device device_;  // of index 0 on the CPU
  void* data_ = nullptr;
  bool is_copy_ = false;
  mutable std::unique_ptr<Tensor> host_;
};

/// "f32", "u8", "i32"; "another type".
std::string_view name_of(int32_t dtype);
/// Bytes of an element.
int64_t bytes_of(int32_t dtype);
/// The type of torch for f32, f16, bf16, e4m3, e5m2; that of bytes for any other.
int32_t dtype_of(Format format);
/// "[3, 64]".
std::string shown(std::span<const int64_t> sizes);

/// A type as torch counts it.
using TypeNumber = int32_t Numbers::*;
/// The types by a name, "floats" or "halves"; none by another word.
std::vector<TypeNumber> types_by(std::string_view word);

using device::refuse;
/// The same with the type and the sizes of a tensor as what was found. Code argument.
Error refuse(const Tensor& tensor, std::string_view expected);

/// Codes argument.
Status check_dtype(const Tensor& tensor, std::initializer_list<int32_t> allowed);
Status check_sizes(const Tensor& tensor, std::initializer_list<int64_t> sizes);
Status check_device(const Tensor& tensor, const Tensor& like);

}  // namespace subbyte::torch_operators
