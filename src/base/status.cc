#include "base/status.h"

SUBBYTE_BEGIN_NAMESPACE

Error::Error(std::string_view stable_code, std::string_view text)
    : code(stable_code), message(printable(text)) {}

std::string to_string(const Error& error) {
  std::string text = error.message;
  text += " [";
  text += error.code;
  return text += ']';
}

SUBBYTE_END_NAMESPACE
