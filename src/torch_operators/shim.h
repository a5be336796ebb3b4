#pragma once
// The C interface that libtorch exports (the base of its stable ABI), found in the running process:
// no header of torch and no link is needed, so that one library serves torch 2.10 and all later.
//
// An operator is a function of a stack of 64-bit words. It gets its arguments there and leaves its
// results there, from the bottom up; operators.h reads and writes them. Numbers are their bits,
// tensors handles which belong to the operator, an optional argument is 0 or the address of a word.

#include <cstdint>

#include "base/status.h"

namespace subbyte::torch_operators {

using Word = uint64_t;
using Kernel = void (*)(Word* stack, uint64_t num_arguments, uint64_t num_results);

struct TensorObject;
struct LibraryObject;
struct TextObject;
struct ListObject;
struct GuardObject;
using TensorHandle = TensorObject*;
using LibraryHandle = LibraryObject*;
using TextHandle = TextObject*;
using ListHandle = ListObject*;
using GuardHandle = GuardObject*;

/// Functions by the names that libtorch gives them; those with an int32_t return 0 when they
/// succeed.
struct Functions {
  int32_t (*aoti_torch_library_init_fragment)(const char* space, const char* file, uint32_t line,
                                              LibraryHandle* library);
  int32_t (*aoti_torch_library_init_impl)(const char* space, const char* device, const char* file,
                                          uint32_t line, LibraryHandle* library);
  int32_t (*aoti_torch_library_def)(LibraryHandle library, const char* schema);
  int32_t (*torch_library_impl)(LibraryHandle library, const char* name, Kernel kernel,
                                uint64_t version);
  int32_t (*aoti_torch_delete_tensor_object)(TensorHandle tensor);
  int32_t (*aoti_torch_new_tensor_handle)(TensorHandle tensor, TensorHandle* other);
  int32_t (*aoti_torch_get_data_ptr)(TensorHandle tensor, void** data);
  int32_t (*aoti_torch_get_dim)(TensorHandle tensor, int64_t* dim);
  int32_t (*aoti_torch_get_sizes)(TensorHandle tensor, int64_t** sizes);
  int32_t (*aoti_torch_get_strides)(TensorHandle tensor, int64_t** strides);
  int32_t (*aoti_torch_get_dtype)(TensorHandle tensor, int32_t* dtype);
  int32_t (*aoti_torch_get_device_type)(TensorHandle tensor, int32_t* type);
  int32_t (*aoti_torch_get_device_index)(TensorHandle tensor, int32_t* index);
  int32_t (*aoti_torch_empty_strided)(int64_t dim, const int64_t* sizes, const int64_t* strides,
                                      int32_t dtype, int32_t device_type, int32_t device_index,
                                      TensorHandle* tensor);
  int32_t (*aoti_torch_copy_)(TensorHandle to, TensorHandle from, int32_t non_blocking);
  int32_t (*torch_call_dispatcher)(const char* name, const char* overload, Word* stack,
                                   uint64_t version);
  int32_t (*torch_list_size)(ListHandle list, std::size_t* size);
  int32_t (*torch_list_get_item)(ListHandle list, std::size_t index, Word* item);
  int32_t (*torch_delete_list)(ListHandle list);
  int32_t (*torch_string_length)(TextHandle text, std::size_t* length);
  int32_t (*torch_string_c_str)(TextHandle text, const char** data);
  int32_t (*torch_delete_string)(TextHandle text);
  int32_t (*torch_get_num_threads)(uint32_t* threads);
  int32_t (*torch_parallel_for)(int64_t begin, int64_t end, int64_t grain,
                                void (*body)(int64_t begin, int64_t end, void* context),
                                void* context);
  /// From torch 2.13 on, else nullptr: a word of an optional argument is freed with `delete` then.
  int32_t (*torch_delete_stable_ivalue)(Word* word);
  /// Only torch with CUDA has these, else nullptr.
  int32_t (*aoti_torch_get_current_cuda_stream)(int32_t device_index, void** stream);
  int32_t (*aoti_torch_create_cuda_guard)(int32_t device_index, GuardHandle* guard);
  int32_t (*aoti_torch_delete_cuda_guard)(GuardHandle guard);
};

/// Types of numbers and devices as this torch counts them; -1 for a type that it has not.
struct Numbers {
  int32_t f64, f32, f16, bf16, u8, u16, i8, i16, i32, i64, e4m3, e5m2, e8m0;
  int32_t cpu, cuda;
};

/// Version that this library speaks to libtorch: 2.10.
inline constexpr uint64_t kTorchVersion = uint64_t{2} << 56 | uint64_t{10} << 48;

/// Finds all of it in the libtorch_cpu.so and libtorch_cuda.so that the process has loaded. Code
/// torch.library when there is none, or one that lacks a function: torch before 2.10.
Status load_shim();

/// Results of load_shim().
const Functions& functions();
const Numbers& numbers();

/// Throws std::runtime_error when a function of libtorch has failed, with its name.
void check(int32_t failed, const char* name);

}  // namespace subbyte::torch_operators
