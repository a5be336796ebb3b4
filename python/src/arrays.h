#pragma once
// Arrays of numpy and of whatever speaks DLPack, as they come and go: without copies.

#include <nanobind/ndarray.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "quantize/row_reader.h"

namespace subbyte::python {

/// An array of any type on any device that may be read only.
using AnyArray = nanobind::ndarray<nanobind::ro>;

/// The sizes of an array.
template <typename Array>
std::vector<std::size_t> sizes_of(const Array& array) {
  std::vector<std::size_t> sizes(array.ndim());
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = array.shape(i);
  return sizes;
}

/// An array of the host as an argument; one that its framework does not hand out raises an Error
/// with code array.exchange and the reason, and what is no array one with array.type. With the GIL.
AnyArray array_of(nanobind::handle object, std::string_view name);

/// Checks that `array` lies in the memory of the host, row after row, at addresses that its numbers
/// may have. Codes: array.device, array.order.
Status check_array(const AnyArray& array, std::string_view name);

/// Checks that numbers of so many bytes may lie there. Code: array.order.
Status check_address(const void* data, uintptr_t number_bytes, std::string_view name);

/// Checks that the rows of `array` follow each other, wherever they lie. Code: array.order.
Status check_order(const AnyArray& array, std::string_view name);

/// Its numbers, where they are float32. Codes: those of check_array, array.dtype.
Result<std::span<const float>> floats_of(const AnyArray& array, std::string_view name);

/// Checks that what is written to `out` overwrites nothing of `numbers`. Code array.overlap.
Status check_apart(std::span<const float> out, std::span<const float> numbers,
                   std::string_view name);

/// Reads the rows of a matrix [rows][cols] of float64, float32, float16 or bfloat16; the array must
/// outlive it. Codes: those of check_array, array.shape, array.dtype.
Result<RowReader> rows_of(const AnyArray& array, std::string_view name);

/// Memory for an array that is returned, not yet written; Python frees it.
template <typename T>
class NewArray {
 public:
  explicit NewArray(std::vector<std::size_t> shape)
      : shape_(std::move(shape)),
        size_(size_of(shape_)),
        values_(std::make_unique_for_overwrite<T[]>(size_)) {}

  std::span<T> values() { return {values_.get(), size_}; }

  /// The array of a framework, once.
  template <typename Array>
  Array finish(nanobind::dlpack::dtype dtype) {
    T* const data = values_.release();
    const nanobind::capsule owner(data,
                                  [](void* memory) noexcept { delete[] static_cast<T*>(memory); });
    return Array(data, shape_.size(), shape_.data(), owner, nullptr, dtype);
  }

 private:
  static std::size_t size_of(const std::vector<std::size_t>& shape) {
    std::size_t size = 1;
    for (const std::size_t each : shape) size *= each;
    return size;
  }

  std::vector<std::size_t> shape_;
  std::size_t size_;
  std::unique_ptr<T[]> values_;
};

inline constexpr nanobind::dlpack::dtype kFloat32 = {
    static_cast<uint8_t>(nanobind::dlpack::dtype_code::Float), 32, 1};
inline constexpr nanobind::dlpack::dtype kFloat16 = {
    static_cast<uint8_t>(nanobind::dlpack::dtype_code::Float), 16, 1};
inline constexpr nanobind::dlpack::dtype kBfloat16 = {
    static_cast<uint8_t>(nanobind::dlpack::dtype_code::Bfloat), 16, 1};

}  // namespace subbyte::python
