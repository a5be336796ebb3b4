// The class Matrix of the module, and how arrays become one.

#include "matrix/matrix.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "base/float16.h"
#include "base/thread_pool.h"
#include "bindings.h"
#include "checkpoints/named_form.h"
#include "device/host_product.h"
#include "errors.h"
#include "gil.h"
#include "gpu_arrays.h"
#include "held_matrix.h"
#include "host.h"
#include "linear_on_gpu.h"
#include "linear_shape.h"
#include "matrix/dequantize.h"
#include "matrix/float_rows.h"
#include "transform/format_hints.h"
#include "watch.h"

namespace subbyte::python {

namespace nb = nanobind;

namespace {

constexpr int64_t kRowGrain = 4;

std::vector<std::size_t> shape_of(const Matrix& matrix) {
  return {static_cast<std::size_t>(matrix.view.rows), static_cast<std::size_t>(matrix.view.cols)};
}

/// Bytes of a matrix as an array that keeps the matrix alive; `self` is its object.
nb::object bytes_of(nb::handle self, std::span<const std::byte> bytes, int64_t rows) {
  const std::size_t width = rows == 0 ? 0 : bytes.size() / static_cast<std::size_t>(rows);
  return nb::cast(nb::ndarray<nb::numpy, const uint8_t, nb::ndim<2>>(
      reinterpret_cast<const uint8_t*>(bytes.data()), {static_cast<std::size_t>(rows), width},
      self));
}

/// Numbers of a matrix, likewise.
template <typename T>
nb::object numbers_of(nb::handle self, const T* numbers, std::size_t count) {
  return nb::cast(nb::ndarray<nb::numpy, const T, nb::ndim<1>>(numbers, {count}, self));
}

template <typename Rows, typename T, typename Convert>
Status fill(const MatrixView& matrix, std::span<T> out, const Convert& convert) {
  using Number = std::conditional_t<std::is_same_v<Rows, Dequantizer>, double, float>;
  SUBBYTE_TRY(Host host, Host::take());
  const Rows rows(matrix);
  host.execution().pool().parallel_for(
      matrix.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
        std::vector<Number> row(static_cast<std::size_t>(matrix.cols));
        for (int64_t r = begin; r < end; ++r) {
          rows.row(r, row.data());
          for (int64_t c = 0; c < matrix.cols; ++c) {
            out[static_cast<std::size_t>(r * matrix.cols + c)] =
                convert(row[static_cast<std::size_t>(c)]);
          }
        }
      });
  return {};
}

template <typename Array, typename Rows, typename T, typename Convert>
nb::object dequantized(const Matrix& matrix, nb::dlpack::dtype dtype, const Convert& convert) {
  NewArray<T> result(shape_of(matrix));
  take(without_gil([&] { return fill<Rows, T>(matrix.view, result.values(), convert); }));
  return nb::cast(result.template finish<Array>(dtype));
}

/// The name of a type: a text, or what numpy knows as a type.
std::string dtype_name(nb::handle dtype) {
  if (nb::isinstance<nb::str>(dtype)) return nb::cast<std::string>(dtype);
  try {
    return nb::cast<std::string>(nb::module_::import_("numpy").attr("dtype")(dtype).attr("name"));
  } catch (nb::python_error& error) {
    raise({"array.dtype", fmt::format("dtype: expected a type of numpy or its name, found {}",
                                      nb::repr(dtype).c_str())});
  }
}

nb::object dequantize(const HeldMatrix& held, nb::handle given) {
  const Matrix& matrix = held.host;
  const std::string dtype = dtype_name(given);
  const auto same = [](auto number) { return number; };
  using Numpy = nb::ndarray<nb::numpy>;
  if (dtype == "float32") {
    return dequantized<Numpy, FloatRows, float>(matrix, nb::dtype<float>(), same);
  }
  if (dtype == "float64") {
    return dequantized<Numpy, Dequantizer, double>(matrix, nb::dtype<double>(), same);
  }
  if (dtype == "float16") {
    return dequantized<Numpy, FloatRows, uint16_t>(
        matrix, kFloat16, [](float number) { return to_float16(number).bits; });
  }
  if (dtype == "bfloat16") {  // which numpy does not have: an object that speaks DLPack
    return dequantized<nb::ndarray<nb::array_api>, FloatRows, uint16_t>(
        matrix, kBfloat16, [](float number) { return to_bfloat16(number).bits; });
  }
  raise(
      {"array.dtype", fmt::format("dtype: expected float32, float64, float16 or bfloat16, found {}",
                                  quote(dtype))});
}

/// An array of the caller's that the product is written to.
using OutArray = nb::ndarray<nb::c_contig, nb::device::cpu, float>;

struct LinearArguments {
  std::span<const float> x;
  std::span<const float> bias;
  LinearShape shape;
};

Result<LinearArguments> check(const Matrix& matrix, const AnyArray& x,
                              const std::optional<AnyArray>& bias) {
  LinearArguments result;
  SUBBYTE_TRY(result.x, floats_of(x, "x"));
  SUBBYTE_TRY(result.shape, linear_shape(matrix.view, x));
  if (!bias) return result;
  SUBBYTE_TRY(result.bias, floats_of(*bias, "bias"));
  SUBBYTE_CHECK(check_bias(matrix.view, result.bias.size()));
  return result;
}

Status multiply(const HeldMatrix& matrix, const LinearArguments& arguments, std::span<float> y) {
  SUBBYTE_TRY(Host host, Host::take());
  if (matrix.multiplied == nullptr) {
    SUBBYTE_TRY(device::HostWeights weights,
                device::HostWeights::create(host.execution(), matrix.host));
    matrix.multiplied = std::make_shared<const device::HostWeights>(std::move(weights));
  }
  device::Product product;
  product.number = Format::kF32;
  product.m = arguments.shape.m;
  product.x = arguments.x.data();
  product.y = y.data();
  product.bias = arguments.bias.empty() ? nullptr : arguments.bias.data();
  product.x_stride = matrix.host.view.cols;
  product.y_stride = matrix.host.view.rows;
  return device::multiply(host.execution(), *matrix.multiplied, product);
}

nb::object linear_into(const HeldMatrix& matrix, const LinearArguments& arguments, nb::object out) {
  OutArray array;
  if (!nb::try_cast<OutArray>(out, array, /*convert=*/false)) {
    raise({"array.dtype",
           "out: expected a writable array of float32 in the memory of the host, row after row"});
  }
  take(check_address(array.data(), sizeof(float), "out"));
  take(check_out(arguments.shape, sizes_of(array)));
  const std::span<float> y = {array.data(), array.size()};
  take(check_apart(y, arguments.x, "x"));
  take(check_apart(y, arguments.bias, "bias"));
  take(without_gil([&] { return multiply(matrix, arguments, y); }));
  return out;
}

nb::object linear_of(const HeldMatrix& held, nb::handle x, nb::handle bias, nb::object out) {
  const std::optional<int> gpu = take(gpu_of(x));
  if (gpu) return linear_on_gpu(held, *gpu, x, bias, std::move(out));
  const AnyArray inputs = array_of(x, "x");
  std::optional<AnyArray> addends;
  if (!bias.is_none()) addends = array_of(bias, "bias");
  const LinearArguments arguments = take(check(held.host, inputs, addends));
  if (!out.is_none()) return linear_into(held, arguments, std::move(out));
  NewArray<float> y(arguments.shape.result);
  take(without_gil([&] { return multiply(held, arguments, y.values()); }));
  return nb::cast(y.finish<nb::ndarray<nb::numpy>>(nb::dtype<float>()));
}

HeldMatrix quantize_array(nb::handle source, const std::string& name, std::optional<int> bits,
                          std::optional<int64_t> group_size, std::optional<bool> symmetric) {
  const AnyArray array = array_of(source, "array");
  const RowReader read_row = take(rows_of(array, "array"));
  const auto rows = static_cast<int64_t>(array.shape(0));
  const auto cols = static_cast<int64_t>(array.shape(1));
  const WeightQuantization asked = {name, bits, group_size, symmetric};
  Watch watch{nb::none()};
  return take(without_gil([&]() -> Result<Matrix> {
    SUBBYTE_TRY(Host host, Host::take());
    WatchedExecutor pool(host.execution().pool(), watch);
    return quantize_named(asked, rows, cols, read_row, pool, command_with);
  }));
}

void set_threads(int64_t num_threads) {
  take(check_num_threads(num_threads));
  take(without_gil([&] { return Host::set_threads(static_cast<int>(num_threads)); }));
}

/// "Matrix(384 x 1024, u4 g128 scale f16 zero u8)"
std::string repr(const HeldMatrix& held) {
  const Matrix& matrix = held.host;
  return fmt::format("Matrix({} x {}, {})", matrix.view.rows, matrix.view.cols,
                     to_string(matrix.view.format));
}

void add_facts(nb::class_<HeldMatrix>& matrix) {
  matrix
      .def_prop_ro(
          "shape",
          [](const HeldMatrix& self) {
            return nb::make_tuple(self.host.view.rows, self.host.view.cols);
          },
          nb::sig("def shape(self) -> tuple[int, int]"), "(outputs, inputs).")
      .def_prop_ro(
          "format", [](const HeldMatrix& self) { return to_string(self.host.view.format); },
          "Element, group, scale and zero point, such as \"u4 g128 scale f16 zero u8\".")
      .def_prop_ro(
          "element",
          [](const HeldMatrix& self) {
            return std::string(info(self.host.view.format.element).name);
          },
          "The format of a code, such as \"u4\" or \"e2m1\".")
      .def_prop_ro(
          "group_size", [](const HeldMatrix& self) { return self.host.view.group_size(); },
          "Inputs that share a scale.")
      .def_prop_ro(
          "nbytes", [](const HeldMatrix& self) { return self.host.view.bytes(); },
          "Bytes that a product reads: codes, scales, zero points and the order of inputs.")
      .def_prop_ro(
          "bits_per_weight",
          [](const HeldMatrix& self) {
            return bits_per_weight(self.host.view.format, self.host.view.cols);
          },
          "Bits of a weight, with its part of scales and zero points.")
      .def_prop_ro(
          "tensor_scale", [](const HeldMatrix& self) { return self.host.view.tensor_scale; },
          "One more factor of all weights; 1 where the format has none.");
}

/// The parts of a matrix as bytes, where they lie.
void add_bytes(nb::class_<HeldMatrix>& matrix) {
  matrix
      .def_prop_ro(
          "codes",
          [](nb::handle self) {
            const auto& view = nb::cast<const HeldMatrix&>(self).host.view;
            return bytes_of(self, view.codes, view.rows);
          },
          nb::sig("def codes(self) -> numpy.typing.NDArray[numpy.uint8]"),
          "Codes as numpy uint8 [outputs, bytes of a row], a view that cannot be written: codes "
          "of consecutive inputs follow each other as a little-endian stream of bits.")
      .def_prop_ro(
          "scales",
          [](nb::handle self) {
            const auto& view = nb::cast<const HeldMatrix&>(self).host.view;
            return bytes_of(self, view.scales, view.rows);
          },
          nb::sig("def scales(self) -> numpy.typing.NDArray[numpy.uint8]"),
          "Scales of the groups of each row, likewise; view(numpy.float16) and the like make "
          "numbers of them where the format has those.")
      .def_prop_ro(
          "zeros",
          [](nb::handle self) {
            const auto& view = nb::cast<const HeldMatrix&>(self).host.view;
            return bytes_of(self, view.zeros, view.rows);
          },
          nb::sig("def zeros(self) -> numpy.typing.NDArray[numpy.uint8]"),
          "Zero points or offsets of the groups of each row, likewise; no columns without them.")
      .def_prop_ro(
          "input_order",
          [](nb::handle self) {
            const auto& view = nb::cast<const HeldMatrix&>(self).host.view;
            return numbers_of(self, view.input_order.data(), view.input_order.size());
          },
          nb::sig("def input_order(self) -> numpy.typing.NDArray[numpy.uint32]"),
          "Act-order: stored column k multiplies input input_order[k]; empty without it.")
      .def_prop_ro(
          "codebook",
          [](nb::handle self) {
            const auto& view = nb::cast<const HeldMatrix&>(self).host.view;
            return numbers_of(self, view.codebook.data(), view.codebook.size());
          },
          nb::sig("def codebook(self) -> numpy.typing.NDArray[numpy.float32]"),
          "Values of the codes where the matrix brings its own; empty where it does not.");
}

constexpr const char* kDequantizeDoc =
    "The weights as floats [outputs, inputs].\n\n"
    "dtype: \"float32\", \"float64\" or \"float16\", or these types of numpy; \"bfloat16\", which "
    "numpy lacks, is an object that speaks DLPack: "
    "torch.from_dlpack(matrix.dequantize(\"bfloat16\")). float64 is "
    "exact, the others are the nearest. Raises subbyte.Error with code array.dtype.";

constexpr const char* kLinearDoc =
    "The product x W^T + bias: [.., outputs] for x [.., inputs].\n\n"
    "x, bias and out are arrays of numpy or of whatever speaks DLPack (torch, JAX, CuPy), row "
    "after "
    "row; none is copied. In the memory of the host they are float32, and so is the result, an "
    "array of numpy, whose sums are of float32. In the memory of a GPU (by DLPack or "
    "__cuda_array_interface__) they are float32, float16 or bfloat16 alike, the product runs there "
    "in the "
    "stream of x, which is not waited for, and the result is a DeviceArray; the first call packs "
    "the matrix on that GPU, which it keeps. `out` is written and returned. The GIL is released. "
    "Raises subbyte.Error: array.shape, array.dtype, array.order, array.device, "
    "linear.unsupported, cuda.*.";

}  // namespace

void add_matrix(nb::module_& module) {
  nb::class_<HeldMatrix> matrix(
      module, "Matrix", "A weight matrix [outputs, inputs] in a format of few bits, or dense.");
  add_facts(matrix);
  add_bytes(matrix);
  matrix
      .def("dequantize", &dequantize, nb::arg("dtype").none() = "float32",
           nb::sig("def dequantize(self, dtype: typing.Any = \"float32\") -> typing.Any"),
           kDequantizeDoc)
      .def("linear", &linear_of, nb::arg("x").none(), nb::arg("bias") = nb::none(), nb::kw_only(),
           nb::arg("out") = nb::none(),
           nb::sig("def linear(self, x: typing.Any, bias: typing.Any = None, *, "
                   "out: typing.Any = None) -> typing.Any"),
           kLinearDoc)
      .def("__repr__", &repr);
  module.def("quantize_array", &quantize_array, nb::arg("array").none(), nb::kw_only(),
             nb::arg("format"), nb::arg("bits").none(), nb::arg("group_size").none(),
             nb::arg("symmetric").none(),
             nb::sig("def quantize_array(array: typing.Any, *, format: str, bits: int | None, "
                     "group_size: int | None, symmetric: bool | None) -> Matrix"));
  module.def("set_threads", &set_threads, nb::arg("num_threads"),
             "Says how many threads work on matrices and checkpoints from now on; 0: one for each "
             "processor. A model has threads of its own (Engine).");
}

}  // namespace subbyte::python
