#include "serve/page.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <span>
#include <string>

#include "base/sha256.h"

namespace subbyte::serve {
namespace {

/// The digest of a text in base64, as policies have it.
std::string digest_of(std::string_view text) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string hex = sha256(std::as_bytes(std::span(text)));
  hex += "00";  // 33 bytes are a multiple of 3, of which the last is none
  std::string result;
  for (std::size_t i = 0; i < hex.size(); i += 6) {
    uint32_t bits = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 6, bits, 16);
    for (int shift = 18; shift >= 0; shift -= 6) result += kLetters[(bits >> shift) & 63];
  }
  result.back() = '=';
  return result;
}

}  // namespace

http::Response page() {
  static const std::string kBody = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>subbyte</title>\n<style>{}</style>\n</head>\n<body>\n{}"
      "<script>{}</script>\n</body>\n</html>\n",
      kPageStyle, kPageHtml, kPageScript);
  static const std::string kPolicy = fmt::format(
      "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      digest_of(kPageStyle), digest_of(kPageScript));
  return {.type = "text/html; charset=utf-8",
          .body = kBody,
          .headers = {{"Content-Security-Policy", kPolicy},
                      {"Cache-Control", "no-cache"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Referrer-Policy", "no-referrer"},
                      {"X-Content-Type-Options", "nosniff"}}};
}

}  // namespace subbyte::serve
