#pragma once
// Errors as values. The library never prints, aborts or exits, and throws nothing but
// std::bad_alloc: what can go wrong because of a file, an argument or the machine is a Result.
//
//   auto session = subbyte::Session::open("Qwen/Qwen3-0.6B-AWQ");
//   if (!session) return complain(to_string(session.error()));
//   session->add(...);
//
//   auto session = subbyte::Session::open("Qwen/Qwen3-0.6B-AWQ").value();  // throws Exception

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "subbyte/version.h"

SUBBYTE_BEGIN_NAMESPACE

/// One refusal. `code` is stable and for programs ("safetensors.header_too_large"), of static
/// storage; `message` is one printable line for people and names file, tensor, what was expected
/// and what was found.
struct Error {
  Error() = default;
  /// Escapes in `text` what would leave the line or cannot be seen.
  Error(std::string_view stable_code, std::string_view text);

  std::string_view code;
  std::string message;
};

/// One line for people, with the code: `model.safetensors: cannot open [file.not_found]`.
std::string to_string(const Error& error);

/// An Error for those who ask for a value that is not there.
class Exception : public std::runtime_error {
 public:
  explicit Exception(Error error)
      : std::runtime_error(to_string(error)), error_(std::move(error)) {}
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// A value, or the Error that came instead of it.
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  /// The value; throws Exception where there is an error. Of a temporary Result it is no reference,
  /// so that loops over f().value() are sound.
  T& value() & { return check(), **this; }
  const T& value() const& { return check(), **this; }
  T value() && { return check(), *std::move(*this); }

  /// The value, only when ok().
  T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  T operator*() && { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() noexcept { return std::get_if<0>(&state_); }
  const T* operator->() const noexcept { return std::get_if<0>(&state_); }

  /// The error, only when not ok().
  const Error& error() const& noexcept { return *std::get_if<1>(&state_); }
  Error&& error() && noexcept { return std::move(*std::get_if<1>(&state_)); }

 private:
  void check() const {
    if (!ok()) throw Exception(error());
  }

  std::variant<T, Error> state_;
};

/// Success, or an Error: the Result of something that has no value.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit

  bool ok() const noexcept { return ok_; }
  explicit operator bool() const noexcept { return ok_; }
  /// Throws Exception where there is an error.
  void value() const {
    if (!ok_) throw Exception(error_);
  }
  const Error& error() const& noexcept { return error_; }
  Error&& error() && noexcept { return std::move(error_); }

 private:
  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

SUBBYTE_END_NAMESPACE
