#pragma once
// Arrays in the memory of a GPU: those of others by DLPack or __cuda_array_interface__, without
// copies and in the order of their streams, and DeviceArray, which results are.

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "arrays.h"

namespace subbyte::python {

/// "float32", "float16" or "bfloat16", the types of numbers on GPUs.
const char* name_of(nanobind::dlpack::dtype type);

/// The number of the GPU of NVIDIA in whose memory an array says of itself that it lies; none for
/// what lies elsewhere. It is asked in Python, which takes a microsecond. Codes: array.device,
/// cuda.device.
Result<std::optional<int>> gpu_of(nanobind::handle array);

/// The stream that an array belongs to: torch's current one, the one that its
/// __cuda_array_interface__ names, else the default stream.
void* stream_of(nanobind::handle array, int device);

/// The array, once work of its own stream on it comes before what is put into `stream`; with
/// `writable` also to write to. Codes: array.device, array.dtype (read only), array.order.
Result<AnyArray> import_on_gpu(nanobind::handle array, std::string_view name, int device,
                               void* stream, bool writable);

/// A new array of numbers of 16 bits in the memory of a GPU, row after row. Codes: those of
/// allocate_on_gpu().
Result<nanobind::object> new_device_array(std::vector<std::size_t> shape,
                                          nanobind::dlpack::dtype dtype, int device, void* stream,
                                          void** memory);

}  // namespace subbyte::python
