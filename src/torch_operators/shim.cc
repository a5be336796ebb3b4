#include "torch_operators/shim.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace subbyte::torch_operators {
namespace {

Functions found_functions;
Numbers found_numbers;

/// Looks up names in libraries that are loaded already: torch hides its own from the process, so a
/// search of all of it finds nothing.
class Lookup {
 public:
  Lookup()
      : cpu_(dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD)),
        cuda_(dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD)) {}

  bool has_torch() const { return cpu_ != nullptr; }
  const std::string& missing() const { return missing_; }

  template <typename Function>
  void find(Function*& function, const char* name) {
    maybe(function, name);
    if (function == nullptr && missing_.empty()) missing_ = name;
  }

  template <typename Function>
  void maybe(Function*& function, const char* name) {
    void* address = cpu_ == nullptr ? nullptr : dlsym(cpu_, name);
    if (address == nullptr && cuda_ != nullptr) address = dlsym(cuda_, name);
    function = reinterpret_cast<Function*>(address);
  }

  /// The number that a function without arguments returns; -1 where there is none.
  int32_t number(const char* name) {
    int32_t (*function)() = nullptr;
    maybe(function, name);
    return function == nullptr ? -1 : function();
  }

 private:
  void* cpu_;
  void* cuda_;
  std::string missing_;
};

void find_functions(Lookup& lookup, Functions& f) {
#define SUBBYTE_FIND(name) lookup.find(f.name, #name)
  SUBBYTE_FIND(aoti_torch_library_init_fragment);
  SUBBYTE_FIND(aoti_torch_library_init_impl);
  SUBBYTE_FIND(aoti_torch_library_def);
  SUBBYTE_FIND(torch_library_impl);
  SUBBYTE_FIND(aoti_torch_delete_tensor_object);
  SUBBYTE_FIND(aoti_torch_new_tensor_handle);
  SUBBYTE_FIND(aoti_torch_get_data_ptr);
  SUBBYTE_FIND(aoti_torch_get_dim);
  SUBBYTE_FIND(aoti_torch_get_sizes);
  SUBBYTE_FIND(aoti_torch_get_strides);
  SUBBYTE_FIND(aoti_torch_get_dtype);
  SUBBYTE_FIND(aoti_torch_get_device_type);
  SUBBYTE_FIND(aoti_torch_get_device_index);
  SUBBYTE_FIND(aoti_torch_empty_strided);
  SUBBYTE_FIND(aoti_torch_copy_);
  SUBBYTE_FIND(torch_call_dispatcher);
  SUBBYTE_FIND(torch_list_size);
  SUBBYTE_FIND(torch_list_get_item);
  SUBBYTE_FIND(torch_delete_list);
  SUBBYTE_FIND(torch_string_length);
  SUBBYTE_FIND(torch_string_c_str);
  SUBBYTE_FIND(torch_delete_string);
  SUBBYTE_FIND(torch_get_num_threads);
  SUBBYTE_FIND(torch_parallel_for);
#undef SUBBYTE_FIND
  lookup.maybe(f.torch_delete_stable_ivalue, "torch_delete_stable_ivalue");
  lookup.maybe(f.aoti_torch_get_current_cuda_stream, "aoti_torch_get_current_cuda_stream");
  lookup.maybe(f.aoti_torch_create_cuda_guard, "aoti_torch_create_cuda_guard");
  lookup.maybe(f.aoti_torch_delete_cuda_guard, "aoti_torch_delete_cuda_guard");
}

void find_numbers(Lookup& lookup, Numbers& n) {
  n.f64 = lookup.number("aoti_torch_dtype_float64");
  n.f32 = lookup.number("aoti_torch_dtype_float32");
  n.f16 = lookup.number("aoti_torch_dtype_float16");
  n.bf16 = lookup.number("aoti_torch_dtype_bfloat16");
  n.u8 = lookup.number("aoti_torch_dtype_uint8");
  n.u16 = lookup.number("aoti_torch_dtype_uint16");
  n.i8 = lookup.number("aoti_torch_dtype_int8");
  n.i16 = lookup.number("aoti_torch_dtype_int16");
  n.i32 = lookup.number("aoti_torch_dtype_int32");
  n.i64 = lookup.number("aoti_torch_dtype_int64");
  n.e4m3 = lookup.number("aoti_torch_dtype_float8_e4m3fn");
  n.e5m2 = lookup.number("aoti_torch_dtype_float8_e5m2");
  n.e8m0 = lookup.number("torch_dtype_float8_e8m0fnu");
  n.cpu = lookup.number("aoti_torch_device_type_cpu");
  n.cuda = lookup.number("aoti_torch_device_type_cuda");
}

}  // namespace

Status load_shim() {
  Lookup lookup;
  if (!lookup.has_torch()) {
    return Error{
        "torch.library",
        "libtorch_cpu.so is not loaded in this process; import torch before subbyte.torch"};
  }
  Functions all{};
  find_functions(lookup, all);
  if (!lookup.missing().empty()) {
    return Error{"torch.library", "libtorch_cpu.so has no function " + lookup.missing() +
                                      "; subbyte.torch needs torch 2.10 or later"};
  }
  found_functions = all;
  find_numbers(lookup, found_numbers);
  return {};
}

const Functions& functions() {
  return found_functions;
}

const Numbers& numbers() {
  return found_numbers;
}

void check(int32_t failed, const char* name) {
  if (failed != 0) throw std::runtime_error(std::string("libtorch: ") + name + " failed");
}

}  // namespace subbyte::torch_operators
