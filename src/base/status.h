#pragma once
// Errors as values, as programs of others have them (subbyte/status.h), and how they are handed on:
//
//   Result<Header> read_header(std::span<const std::byte> file);
//
//   Status load() {
//     SUBBYTE_TRY(Header header, read_header(bytes));    // returns the error to our caller
//     SUBBYTE_CHECK(verify(header));                     // the same for a Status
//     return {};
//   }

#include <utility>

#include "base/quote.h"
#include "subbyte/status.h"

#define SUBBYTE_CONCAT_INNER(a, b) a##b
#define SUBBYTE_CONCAT(a, b) SUBBYTE_CONCAT_INNER(a, b)
// Trivial values that are declared and not looked at are no mistake of the caller's: a macro cannot
// write [[maybe_unused]], as some assign to what is there already.
#define SUBBYTE_BEGIN_UNUSED                                                             \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wunused-variable\"") \
      _Pragma("GCC diagnostic ignored \"-Wunused-but-set-variable\"")
#define SUBBYTE_END_UNUSED _Pragma("GCC diagnostic pop") static_cast<void>(0)
#define SUBBYTE_TRY_INNER(result, declaration, expression)      \
  auto result = (expression);                                   \
  if (!result.ok()) return std::move(result).error();           \
  SUBBYTE_BEGIN_UNUSED declaration = std::move(result).value(); \
  SUBBYTE_END_UNUSED

/// Declares from a Result, or assigns, or returns its error.
#define SUBBYTE_TRY(declaration, ...) \
  SUBBYTE_TRY_INNER(SUBBYTE_CONCAT(subbyte_result_, __LINE__), declaration, (__VA_ARGS__))

/// Returns the error of a Status, or of a Result whose value is not wanted.
#define SUBBYTE_CHECK(...)                                         \
  do {                                                             \
    if (auto subbyte_status = (__VA_ARGS__); !subbyte_status.ok()) \
      return std::move(subbyte_status).error();                    \
  } while (false)
