#include "gpu_arrays.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "bindings.h"
#include "errors.h"
#include "gpu_memory.h"

namespace subbyte::python {

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace {

constexpr int kManagedMemory = 13;  // kDLCUDAManaged
constexpr intptr_t kDefaultStream = 1;
constexpr intptr_t kNoOrder = -1;

constexpr const char* kExchange = "__dlpack__";
constexpr const char* kPlace = "__dlpack_device__";
constexpr const char* kInterface = "__cuda_array_interface__";

struct Place {
  int kind = nb::device::cpu::value;
  int device = 0;

  bool is_gpu() const { return kind == nb::device::cuda::value || kind == kManagedMemory; }
};

Place place_of(nb::handle array) {
  const nb::object found = array.attr(kPlace)();
  return {nb::cast<int>(found[0]), nb::cast<int>(found[1])};
}

/// Both DLPack and the driver call the default stream 1; 0 is of the driver alone.
intptr_t number_of(intptr_t stream) {
  return stream == 0 ? kDefaultStream : stream;
}

void* address_of(intptr_t stream) {
  return reinterpret_cast<void*>(stream);
}

/// A capsule of an array whose producer has put its work before what comes to `stream`.
nb::object capsule_of(nb::handle array, intptr_t stream) {
  const nb::object exchange = array.attr(kExchange);
  try {
    return exchange("stream"_a = stream, "max_version"_a = nb::make_tuple(1, 1));
  } catch (nb::python_error& error) {  // of a producer of before 2024
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return exchange("stream"_a = stream);
}

/// The type that "<f2" and the like say.
nb::dlpack::dtype dtype_of(const std::string& type) {
  using Code = nb::dlpack::dtype_code;
  const char kind = type.size() == 3 ? type[1] : '\0';
  const Code code = kind == 'f' ? Code::Float : kind == 'u' ? Code::UInt : Code::Int;
  const int bytes = kind == '\0' ? 0 : type[2] - '0';
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * bytes), 1};
}

/// An array by its __cuda_array_interface__ alone, as those of Numba are.
Result<AnyArray> import_interface(nb::handle array, std::string_view name, int device, void* stream,
                                  bool writable) {
  const nb::object given = array.attr(kInterface);
  const nb::object data = given["data"];
  if (writable && nb::cast<bool>(data[1])) {
    return Error{"array.dtype", fmt::format("{}: expected an array that may be written", name)};
  }
  const nb::dlpack::dtype dtype = dtype_of(nb::cast<std::string>(given["typestr"]));
  const nb::object sizes = given["shape"];
  const std::size_t ndim = nb::len(sizes);
  std::vector<std::size_t> shape(ndim);
  std::vector<int64_t> strides(ndim);
  int64_t following = 1;
  const nb::object steps = given.attr("get")("strides");
  for (std::size_t i = ndim; i-- > 0;) {
    shape[i] = nb::cast<std::size_t>(sizes[i]);
    strides[i] = steps.is_none() || dtype.bits == 0
                     ? following
                     : nb::cast<int64_t>(steps[i]) * 8 / int64_t{dtype.bits};
    following *= static_cast<int64_t>(shape[i]);
  }
  const nb::object own = given.attr("get")("stream");
  if (!own.is_none()) {
    const intptr_t first = number_of(nb::cast<intptr_t>(own));
    if (address_of(first) != stream) {
      SUBBYTE_CHECK(device::put_in_order(device, address_of(first), stream));
    }
  }
  return AnyArray(reinterpret_cast<const void*>(nb::cast<uintptr_t>(data[0])), ndim, shape.data(),
                  array, strides.data(), dtype, nb::device::cuda::value, device);
}

/// An array that subbyte has made. It keeps the memory, and its consumers keep it.
class DeviceArray {
 public:
  DeviceArray(const device::Buffer& memory, std::vector<std::size_t> shape, nb::dlpack::dtype dtype,
              int device, void* stream)
      : shape_(std::move(shape)),
        dtype_(dtype),
        device_(device),
        stream_(stream),
        data_(memory.data()) {
    const nb::capsule owner(new device::Buffer(memory),
                            [](void* held) noexcept { delete static_cast<device::Buffer*>(held); });
    exchanged_ =
        nb::cast(nb::ndarray<nb::array_api>(data_, shape_.size(), shape_.data(), owner, nullptr,
                                            dtype_, nb::device::cuda::value, device_));
  }

  nb::object shape() const {
    nb::list sizes;
    for (const std::size_t size : shape_) sizes.append(size);
    return nb::tuple(sizes);
  }
  const char* dtype() const { return name_of(dtype_); }
  int device() const { return device_; }
  intptr_t stream() const { return reinterpret_cast<intptr_t>(stream_); }

  nb::object place() const { return nb::make_tuple(nb::device::cuda::value, device_); }

  nb::object exchange(nb::handle stream, nb::handle max_version, nb::handle dl_device,
                      nb::handle copy) const {
    const intptr_t later = stream.is_none() ? kDefaultStream : nb::cast<intptr_t>(stream);
    if (later != kNoOrder && address_of(number_of(later)) != stream_) {
      take(device::put_in_order(device_, stream_, address_of(number_of(later))));
    }
    return exchanged_.attr(kExchange)("max_version"_a = max_version, "dl_device"_a = dl_device,
                                      "copy"_a = copy);
  }

  nb::object interface() const {
    if (dtype_ == kBfloat16) throw nb::attribute_error("numpy has no bfloat16: use DLPack");
    nb::dict made;
    made["version"] = 3;
    made["shape"] = shape();
    made["typestr"] = dtype_ == kFloat32 ? "<f4" : "<f2";
    made["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(data_), false);
    made["strides"] = nb::none();
    made["stream"] = stream();
    return made;
  }

  std::string repr() const {
    return fmt::format("DeviceArray({}, {}, GPU {})", nb::cast<std::string>(nb::str(shape())),
                       dtype(), device_);
  }

 private:
  std::vector<std::size_t> shape_;
  nb::dlpack::dtype dtype_;
  int device_;
  void* stream_;
  void* data_;
  nb::object exchanged_;
};

}  // namespace

const char* name_of(nb::dlpack::dtype type) {
  return type == kFloat32 ? "float32" : type == kFloat16 ? "float16" : "bfloat16";
}

Result<std::optional<int>> gpu_of(nb::handle array) {
  if (nb::hasattr(array, kPlace)) {
    const Place place = place_of(array);
    if (!place.is_gpu()) return std::optional<int>();
    SUBBYTE_CHECK(check_gpu(place.device));
    return std::optional(place.device);
  }
  if (!nb::hasattr(array, kInterface)) return std::optional<int>();
  SUBBYTE_CHECK(check_gpu(0));
  const nb::object data = nb::object(array.attr(kInterface))["data"];
  const int device = device::gpu_of(reinterpret_cast<const void*>(nb::cast<uintptr_t>(data[0])));
  if (device >= 0) return std::optional(device);
  return Error{"array.device",
               "expected memory of a GPU, as an array says of itself, found an address of none"};
}

void* stream_of(nb::handle array, int device) {
  const auto module = nb::cast<std::string>(array.type().attr("__module__"));
  if (module == "torch" || module.starts_with("torch.")) {
    const nb::object current =
        nb::module_::import_("torch.cuda").attr("current_stream")(device).attr("cuda_stream");
    return address_of(number_of(nb::cast<intptr_t>(current)));
  }
  if (!nb::hasattr(array, kInterface)) return address_of(kDefaultStream);
  const nb::object named = nb::object(array.attr(kInterface)).attr("get")("stream");
  return address_of(named.is_none() ? kDefaultStream : number_of(nb::cast<intptr_t>(named)));
}

Result<AnyArray> import_on_gpu(nb::handle array, std::string_view name, int device, void* stream,
                               bool writable) {
  SUBBYTE_TRY(const std::optional<int> its_device, gpu_of(array));
  if (!its_device) {
    return Error{"array.device", fmt::format("{}: expected an array in the memory of GPU {}, where "
                                             "x is, found one of the host",
                                             name, device)};
  }
  if (*its_device != device) {
    return Error{"array.device", fmt::format("{}: expected an array in the memory of GPU {}, where "
                                             "x is, found one of GPU {}",
                                             name, device, *its_device)};
  }
  AnyArray made;
  if (nb::hasattr(array, kExchange)) {
    const nb::object capsule = capsule_of(array, reinterpret_cast<intptr_t>(stream));
    nb::ndarray<> to_write;
    if (writable && !nb::try_cast<nb::ndarray<>>(capsule, to_write, /*convert=*/false)) {
      return Error{"array.dtype", fmt::format("{}: expected an array that may be written", name)};
    }
    made = writable ? AnyArray(to_write) : nb::cast<AnyArray>(capsule);
  } else {
    SUBBYTE_TRY(made, import_interface(array, name, device, stream, writable));
  }
  SUBBYTE_CHECK(check_order(made, name));
  return made;
}

Result<nb::object> new_device_array(std::vector<std::size_t> shape, nb::dlpack::dtype dtype,
                                    int device, void* stream, void** memory) {
  int64_t bytes = dtype.bits / 8;
  for (const std::size_t size : shape) bytes *= static_cast<int64_t>(size);
  SUBBYTE_TRY(const device::Buffer made, allocate_on_gpu(device, bytes, stream));
  *memory = made.data();
  return nb::cast(DeviceArray(made, std::move(shape), dtype, device, stream));
}

void add_device_array(nb::module_& module) {
  nb::class_<DeviceArray>(module, "DeviceArray",
                          "Numbers in the memory of a GPU, row after row: torch.from_dlpack(), "
                          "cupy.from_dlpack() and the like take them without a copy. Their memory "
                          "is freed with the last that uses it, which waits for the GPU.")
      .def_prop_ro("shape", &DeviceArray::shape, nb::sig("def shape(self) -> tuple[int, ...]"),
                   "The sizes.")
      .def_prop_ro("dtype", &DeviceArray::dtype, "\"float32\", \"float16\" or \"bfloat16\".")
      .def_prop_ro("device", &DeviceArray::device, "The number of the GPU.")
      .def_prop_ro("stream", &DeviceArray::stream,
                   "The stream, a cudaStream_t, in which the numbers come to be.")
      .def_prop_ro("__cuda_array_interface__", &DeviceArray::interface,
                   nb::sig("def __cuda_array_interface__(self) -> dict[str, typing.Any]"))
      .def("__dlpack_device__", &DeviceArray::place,
           nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__dlpack__", &DeviceArray::exchange, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, "
                   "int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | "
                   "None = None) -> typing.Any"))
      .def("__repr__", &DeviceArray::repr);
}

}  // namespace subbyte::python
