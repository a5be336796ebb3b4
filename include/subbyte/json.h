#pragma once
// A value of JSON: what requests hand on to the template of a model.

#include <memory>
#include <string>
#include <string_view>

#include "subbyte/status.h"

SUBBYTE_BEGIN_NAMESPACE

/// A value of JSON that does not change; null at first. Copies share it.
class Json {
 public:
  Json() = default;
  /// Reads one value; `where` begins messages. Codes: json.*.
  static Result<Json> parse(std::string_view text, std::string_view where = "JSON");

  bool is_null() const { return node_ == nullptr; }
  /// The value in one line.
  std::string text() const;

  struct Node;  // of the library (json/opaque.h)
  explicit Json(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  const Node* node() const { return node_.get(); }

 private:
  std::shared_ptr<const Node> node_;
};

SUBBYTE_END_NAMESPACE
