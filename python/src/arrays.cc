#include "arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/float16.h"

namespace subbyte::python {

namespace nb = nanobind;

namespace {

std::string shape_of(const AnyArray& array) {
  return fmt::format("[{}]", fmt::join(sizes_of(array), ", "));
}

Error wrong_dtype(const AnyArray& array, std::string_view name, std::string_view expected) {
  static constexpr std::string_view kKinds[] = {"int",    "uint",    "float", "handle",
                                                "bfloat", "complex", "bool"};
  const nb::dlpack::dtype type = array.dtype();
  const std::string_view kind = type.code < std::size(kKinds) ? kKinds[type.code] : "type";
  return {"array.dtype",
          fmt::format("{}: expected {}, found {}{}", name, expected, kind, int{type.bits})};
}

template <typename T>
RowReader reader_of(const AnyArray& array) {
  const auto* const values = static_cast<const T*>(array.data());
  const auto cols = static_cast<int64_t>(array.shape(1));
  return [values, cols](int64_t row, float* out) {
    for (int64_t col = 0; col < cols; ++col) {
      const T value = values[row * cols + col];
      if constexpr (std::is_same_v<T, double>) {
        out[col] = static_cast<float>(value);
      } else {
        out[col] = to_float(value);
      }
    }
  };
}

}  // namespace

Status check_array(const AnyArray& array, std::string_view name) {
  if (array.device_type() != nb::device::cpu::value) {
    return Error{"array.device",
                 fmt::format("{}: expected an array in the memory of the host, found one on a "
                             "device: copy it",
                             name)};
  }
  return check_order(array, name);
}

Status check_order(const AnyArray& array, std::string_view name) {
  int64_t stride = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != stride) {
      return Error{"array.order",
                   fmt::format("{}: expected rows that follow each other in memory, found strides "
                               "of another kind: numpy.ascontiguousarray() makes a copy",
                               name)};
    }
    stride *= static_cast<int64_t>(array.shape(i));
  }
  return {};
}

Result<std::span<const float>> floats_of(const AnyArray& array, std::string_view name) {
  SUBBYTE_CHECK(check_array(array, name));
  if (array.dtype() != nb::dtype<float>()) return wrong_dtype(array, name, "float32");
  return std::span(static_cast<const float*>(array.data()), array.size());
}

Result<RowReader> rows_of(const AnyArray& array, std::string_view name) {
  SUBBYTE_CHECK(check_array(array, name));
  if (array.ndim() != 2) {
    return Error{"array.shape",
                 fmt::format("{}: expected [outputs, inputs], found {}", name, shape_of(array))};
  }
  const nb::dlpack::dtype type = array.dtype();
  if (type == nb::dtype<float>()) return reader_of<float>(array);
  if (type == nb::dtype<double>()) return reader_of<double>(array);
  if (type == kFloat16) return reader_of<Float16>(array);
  if (type == kBfloat16) return reader_of<BFloat16>(array);
  return wrong_dtype(array, name, "float32, float64, float16 or bfloat16");
}

}  // namespace subbyte::python
