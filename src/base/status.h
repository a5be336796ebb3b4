#pragma once
// Errors as values. The library never prints, aborts or exits: what can go wrong because of a
// file, an argument or the machine comes back as a Result.
//
//   Result<Header> read_header(std::span<const std::byte> file);
//
//   Status load() {
//     SUBBYTE_TRY(Header header, read_header(bytes));    // returns the error to our caller
//     SUBBYTE_CHECK(verify(header));                     // the same for a Status
//     return {};
//   }

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/quote.h"

namespace subbyte {

/// One refusal. `code` is stable and for programs ("safetensors.header_too_large"), a string
/// literal that lives forever; `message` is one printable line for people and names file, tensor,
/// what was expected and what was found.
struct Error {
  Error() = default;
  /// Names and values in `text` are quoted (base/quote.h) by who wrote it; paths stand in it as
  /// they are. Whatever else got in is escaped here, so that every message is one line.
  Error(std::string_view stable_code, std::string_view text)
      : code(stable_code), message(printable(text)) {}

  std::string_view code;
  std::string message;  // written by the constructor alone
};

/// One line for people, with the code: `model.safetensors: cannot open [file.not_found]`.
inline std::string to_string(const Error& error) {
  std::string text = error.message;
  text += " [";
  text += error.code;
  return text += ']';
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  /// Only when ok().
  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  /// Only when not ok().
  const Error& error() const& { return *std::get_if<1>(&state_); }
  Error&& error() && { return std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<T, Error> state_;
};

/// Success or an Error: the Result of something that has no value.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

}  // namespace subbyte

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
