#pragma once
// Where the checks put what they find.

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/verify.h"

namespace subbyte {

/// A code and how bad it is; codes.def lists them.
struct VerifyCode {
  std::string_view code;
  Severity severity;
};

std::span<const VerifyCode> verify_codes();

/// The name with # for the numbers between dots.
std::string tensor_kind(std::string_view name);

class Findings {
 public:
  /// `code` lives forever.
  void add(std::string_view code, std::string_view where, std::string expected, std::string found);

  /// A refusal of another layer. Where: the tensor that its message names, else `where`.
  void add(const Error& error, std::string_view where);

  /// Says whether another layer refused this tensor.
  bool has_refusal(std::string_view tensor) const;
  bool has_errors() const;
  bool has(std::string_view code) const;

  /// All of them, errors first; else in the order in which they were added. Tensors that are
  /// missing, or surplus, are one for each kind.
  std::vector<Finding> take();

 private:
  std::vector<Finding> findings_;
  std::set<std::string, std::less<>> refused_;
  std::set<std::string> messages_;  // of errors that were added
};

}  // namespace subbyte
