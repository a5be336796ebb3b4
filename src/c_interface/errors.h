#pragma once
// What all functions for C share: no exception leaves them, errors are kept for the thread, and
// what callers hand over is looked at before it is used.

#include <subbyte/subbyte.h>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/operands.h"
#include "formats/format.h"

namespace subbyte::c {

/// Keeps an error for the thread and gives its number (enum subbyte_status).
int fail(const Error& error) noexcept;
int fail(std::string_view code, const char* message) noexcept;

/// Calls `body`, which returns a Status, for a function of the interface.
template <typename Body>
int run(const Body& body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? SUBBYTE_OK : fail(status.error());
  } catch (const std::bad_alloc&) {
    return fail("memory", "not enough memory");
  } catch (const std::exception& failure) {  // no threads, for one
    return fail("c.exception", failure.what());
  } catch (...) {  // of a function of the caller's
    return fail("c.exception", "expected no exception, found one that is not std::exception");
  }
}

/// An address that a caller hands over, by its name in the header.
struct NamedAddress {
  const char* name;
  const void* address;
};
/// Code c.null for the first one that is NULL.
Status check_addresses(std::initializer_list<NamedAddress> addresses);

using device::refuse;

/// A result of the device library for operands that are fields of the structure `name`: a refusal
/// has the whole name, "weights.input_order: expected ...".
template <typename R>
R within(std::string_view name, R result) {
  if (result.ok() || result.error().code != device::kArgument) return result;
  return Error{device::kArgument, std::string(name) + "." + result.error().message};
}

/// Code c.struct_size: neither a size that this version knows nor a larger one whose end is 0.
Status check_struct_size(const char* name, const void* from, std::size_t size, std::size_t known);

/// A structure of a caller that was compiled with an older or a newer header: what is missing is 0.
/// Codes: c.null, c.struct_size.
template <typename T>
Result<T> read_struct(const char* name, const T* from) {
  SUBBYTE_CHECK(check_addresses({{name, from}}));
  std::size_t size = 0;
  std::memcpy(&size, from, sizeof size);
  SUBBYTE_CHECK(check_struct_size(name, from, size, sizeof(T)));
  T to = {};
  std::memcpy(&to, from, size < sizeof(T) ? size : sizeof(T));
  return to;
}

/// Writes a structure as far as the caller's has room. Codes: as read_struct().
template <typename T>
Status write_struct(const char* name, T* to, T from) {
  SUBBYTE_CHECK(check_addresses({{name, to}}));
  std::size_t size = 0;
  std::memcpy(&size, to, sizeof size);
  if (size < sizeof size) return check_struct_size(name, to, size, sizeof(T));
  from.struct_size = size;
  std::memcpy(to, &from, size < sizeof(T) ? size : sizeof(T));
  return {};
}

/// The format of a number of enum subbyte_format. Code c.argument.
Result<Format> format_of(const char* name, int32_t number);
/// The same for f32, f16 and bf16.
Result<Format> float_of(const char* name, int32_t number);
int32_t number_of(Format format);

/// A copy for the caller, who frees it with subbyte_free(). Code memory.
Status hand_out(std::string_view text, char** to);

}  // namespace subbyte::c
