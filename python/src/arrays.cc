#include "arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/float16.h"
#include "errors.h"

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

AnyArray array_of(nb::handle object, std::string_view name) {
  AnyArray array;
  if (nb::try_cast<AnyArray>(object, array)) return array;
  if (!nb::hasattr(object, "__dlpack__")) {
    raise({"array.type", fmt::format("{}: expected an array of numpy, or one that speaks DLPack, "
                                     "found {}",
                                     name, name_of_type(object))});
  }
  std::string reason = "it cannot be exchanged by DLPack";
  try {
    object.attr("__dlpack__")();
  } catch (nb::python_error& error) {
    reason = nb::str(error.value()).c_str();
  }
  raise({"array.exchange", fmt::format("{}: expected an array that its framework hands out, found "
                                       "one of which that says: {}",
                                       name, reason)});
}

Status check_array(const AnyArray& array, std::string_view name) {
  if (array.device_type() != nb::device::cpu::value) {
    return Error{"array.device",
                 fmt::format("{}: expected an array in the memory of the host, found one on a "
                             "device: copy it",
                             name)};
  }
  SUBBYTE_CHECK(check_address(array.data(), array.dtype().bits / 8, name));
  return check_order(array, name);
}

Status check_address(const void* data, uintptr_t number_bytes, std::string_view name) {
  if (number_bytes == 0 ||
      reinterpret_cast<uintptr_t>(data) % std::min<uintptr_t>(number_bytes, 8) == 0)
    return {};
  return Error{"array.order",
               fmt::format("{}: expected numbers at addresses that are multiples of their size, "
                           "found others: numpy.array() makes a copy",
                           name)};
}

Status check_order(const AnyArray& array, std::string_view name) {
  if (array.size() == 0) return {};  // whose strides say nothing
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

Status check_apart(std::span<const float> out, std::span<const float> numbers,
                   std::string_view name) {
  const std::less<> before;
  if (!before(out.data(), numbers.data() + numbers.size()) ||
      !before(numbers.data(), out.data() + out.size())) {
    return {};
  }
  return Error{"array.overlap",
               fmt::format("out: expected memory of its own, found some of {}", name)};
}

Result<RowReader> rows_of(const AnyArray& array, std::string_view name) {
  SUBBYTE_CHECK(check_array(array, name));
  if (array.ndim() != 2 || array.size() == 0) {
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
