#pragma once
// Errors of the library as answers of a server.

#include <string>

#include "base/status.h"
#include "http/message.h"

namespace subbyte::serve {

/// A refusal with the field of the request that it is about.
struct Problem {
  http::Refusal refusal;
  std::string param;

  http::Response response() const { return http::error_response(refusal, param); }
};

/// 400 for what the request is the reason of, which it has again each time; else 429, 503 or 500.
/// The field is what the message of a reader of JSON names, else `param`.
Problem problem_of(const Error& error, std::string_view param = {});

}  // namespace subbyte::serve
