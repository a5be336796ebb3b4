#pragma once
// What goes wrong inside the interpreter: thrown by parser and evaluator, caught by Template, which
// adds the line. No exception leaves the layer.

#include <string>
#include <string_view>

namespace subbyte::jinja {

struct Refusal {
  std::string_view code;  // of base/status.h
  std::string message;
  int line = 0;  // where the thrower knows it; 0: of what is evaluated
};

inline constexpr std::string_view kSyntax = "jinja.syntax";
inline constexpr std::string_view kUndefined = "jinja.undefined";
inline constexpr std::string_view kType = "jinja.type";
inline constexpr std::string_view kValue = "jinja.value";
inline constexpr std::string_view kLimit = "jinja.limit";
inline constexpr std::string_view kRaised = "jinja.raised";
inline constexpr std::string_view kUnsafeUse = "jinja.unsafe";
inline constexpr std::string_view kUnsupported = "jinja.unsupported";

[[noreturn]] inline void refuse(std::string_view code, std::string message, int line = 0) {
  throw Refusal{code, std::move(message), line};
}

}  // namespace subbyte::jinja
