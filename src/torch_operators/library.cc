// What Python calls in libsubbyte_torch.so, through ctypes.

#include <cstdint>
#include <exception>
#include <string>

#include "checkpoints/named_form.h"
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

/// The signatures of all operators (signature.h), a line each.
SUBBYTE_EXPORT const char* subbyte_torch_signatures() {
  static const std::string& lines = *[] {
    auto* const made = new std::string;
    for (const auto& op : subbyte::torch_operators::all_operators()) {
      made->append(op.signature.text).append("\n");
    }
    return made;
  }();
  return lines.c_str();
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

/// The canonical text of a format for weights with so many inputs, by any name of it; the line of
/// an error where `failed` becomes 1. It lives until the next call of this thread.
SUBBYTE_EXPORT const char* subbyte_torch_format(const char* name, int64_t cols, int32_t* failed) {
  thread_local std::string text;
  const auto named = subbyte::named_form({.format = name}, cols);
  *failed = named.ok() ? 0 : 1;
  text = named.ok() ? to_string(named->weights()) : to_string(named.error());
  return text.c_str();
}
