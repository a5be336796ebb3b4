#include "linear_on_gpu.h"

#include <fmt/format.h>

#include <utility>

#include "errors.h"
#include "gil.h"
#include "gpu_arrays.h"
#include "gpu_memory.h"
#include "host.h"
#include "linear_shape.h"

namespace subbyte::python {

namespace nb = nanobind;

namespace {

Result<bool> is_captured(int device, void* stream) {
  SUBBYTE_TRY(const device::Gpu gpu, device::Gpu::use(device, stream));
  return gpu.is_captured();
}

/// The packed matrix, which the first product on a GPU makes there. Codes: those of
/// PackedMatrix::upload(), cuda.capture.
Result<std::shared_ptr<const device::PackedMatrix>> copy_on_gpu(const HeldMatrix& matrix,
                                                                int device, void* stream) {
  GpuCopies& copies = *matrix.on_gpus;
  if (auto found = copies.find(device)) return found;
  SUBBYTE_TRY(const bool captured, is_captured(device, stream));
  if (captured) {
    return Error{"cuda.capture",
                 "the first product of a matrix on a GPU packs it there, which cannot be while the "
                 "stream is captured: make the call once before"};
  }
  // Who has the host makes copies: signal handlers run while it is waited for, and may come here.
  SUBBYTE_TRY(Host host, Host::take());
  if (auto found = copies.find(device)) return found;
  SUBBYTE_TRY(const device::Gpu gpu, device::Gpu::use(device, stream));
  auto made = device::PackedMatrix::upload(matrix.host, gpu::RowOrder::kNatural, gpu,
                                           host.execution().pool());
  if (!made.ok()) {
    return Error{made.error().code,
                 fmt::format("x is in the memory of GPU {}: {}", device, made.error().message)};
  }
  return copies.keep(device, std::move(made).value());
}

Format format_of(nb::dlpack::dtype type) {
  return type == kFloat32 ? Format::kF32 : type == kFloat16 ? Format::kF16 : Format::kBF16;
}

Status check_type(const AnyArray& array, std::string_view name, nb::dlpack::dtype expected) {
  if (array.dtype() == expected) return {};
  return Error{"array.dtype", fmt::format("{}: expected {}, as x is, found another type", name,
                                          name_of(expected))};
}

struct GpuArguments {
  int device = 0;
  void* stream = nullptr;
  AnyArray x;
  AnyArray bias;
  AnyArray out;
  LinearShape shape;
};

Result<GpuArguments> read_arguments(const HeldMatrix& matrix, int device, nb::handle x,
                                    nb::handle bias, nb::handle out) {
  GpuArguments found;
  found.device = device;
  found.stream = stream_of(x, found.device);
  SUBBYTE_TRY(found.x, import_on_gpu(x, "x", found.device, found.stream, false));
  const nb::dlpack::dtype type = found.x.dtype();
  if (type != kFloat32 && type != kFloat16 && type != kBfloat16) {
    return Error{"array.dtype", "x: expected float32, float16 or bfloat16, found another type"};
  }
  SUBBYTE_TRY(found.shape, linear_shape(matrix.host.view, found.x));
  if (!bias.is_none()) {
    SUBBYTE_TRY(found.bias, import_on_gpu(bias, "bias", found.device, found.stream, false));
    SUBBYTE_CHECK(check_type(found.bias, "bias", type));
    SUBBYTE_CHECK(check_bias(matrix.host.view, found.bias.size()));
  }
  if (!out.is_none()) {
    SUBBYTE_TRY(found.out, import_on_gpu(out, "out", found.device, found.stream, true));
    SUBBYTE_CHECK(check_type(found.out, "out", type));
    SUBBYTE_CHECK(check_out(found.shape, sizes_of(found.out)));
  }
  return found;
}

Status multiply(const device::PackedMatrix& packed, GpuCopies& copies,
                const GpuArguments& arguments, void* y) {
  device::Product product;
  product.number = format_of(arguments.x.dtype());
  device::Workspaces& workspaces =
      copies.workspaces(arguments.device, product.number == Format::kF32);
  SUBBYTE_TRY(const device::Gpu gpu,
              device::Gpu::use(arguments.device, arguments.stream, workspaces));
  product.m = arguments.shape.m;
  product.x = arguments.x.data();
  product.y = y;
  product.bias = arguments.bias.is_valid() ? arguments.bias.data() : nullptr;
  product.x_stride = packed.cols();
  product.y_stride = packed.rows();
  return packed.multiply(product, gpu);
}

}  // namespace

nb::object linear_on_gpu(const HeldMatrix& matrix, int device, nb::handle x, nb::handle bias,
                         nb::object out) {
  const GpuArguments arguments = take(read_arguments(matrix, device, x, bias, out));
  const std::shared_ptr<const device::PackedMatrix> packed =
      take(without_gil([&] { return copy_on_gpu(matrix, arguments.device, arguments.stream); }));
  void* y = nullptr;
  if (out.is_none()) {
    out = take(new_device_array(arguments.shape.result, arguments.x.dtype(), arguments.device,
                                arguments.stream, &y));
  } else {
    y = const_cast<void*>(arguments.out.data());
  }
  take(without_gil([&] { return multiply(*packed, *matrix.on_gpus, arguments, y); }));
  return out;
}

}  // namespace subbyte::python
