// What Python calls in libsubbyte_torch.so, through ctypes.

#include <cstdint>
#include <exception>
#include <string>

#include "torch_operators/gradients.h"
#include "torch_operators/kept.h"
#include "torch_operators/operators.h"

#define SUBBYTE_EXPORT extern "C" __attribute__((visibility("default")))

/// Registers the operators with the torch of this process, once; `capability` is what
/// torch.backends.cpu.get_cpu_capability() says. NULL, or a line that says why it cannot, which
/// lives until the next call.
SUBBYTE_EXPORT const char* subbyte_torch_register(const char* capability) {
  static std::string& line = *new std::string;
  try {
    subbyte::torch_operators::set_int4_tile(capability);
    const subbyte::Status status = subbyte::torch_operators::register_operators();
    if (status.ok()) return nullptr;
    line = to_string(status.error());
  } catch (const std::exception& failure) {
    line = failure.what();
  }
  return line.c_str();
}

/// Lets go of the copies that operators keep of weights in layouts of others.
SUBBYTE_EXPORT void subbyte_torch_forget() {
  subbyte::torch_operators::forget_all();
}

/// Bytes of those copies.
SUBBYTE_EXPORT int64_t subbyte_torch_kept_bytes() {
  return subbyte::torch_operators::kept_bytes();
}

/// Says why the call that Python has been handed on this thread is refused.
SUBBYTE_EXPORT void subbyte_torch_refuse_call(const char* line) {
  subbyte::torch_operators::refuse_call(line);
}
