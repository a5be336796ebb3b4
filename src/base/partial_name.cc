#include "base/partial_name.h"

#include <sys/random.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "base/sha256.h"

namespace subbyte {
namespace {

constexpr std::string_view kPartial = ".partial-";
constexpr std::size_t kDrawn = 8;
constexpr std::size_t kMark = 12;

/// The last digits of a name that begins so.
std::string mark_of(std::string_view begin) {
  const std::string text = std::string("subbyte output ").append(begin);
  return sha256(std::as_bytes(std::span(text))).substr(0, kMark);
}

bool consists_of(std::string_view text, std::string_view digits) {
  return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
}

}  // namespace

std::string partial_name(std::string_view target, int64_t pid, uint32_t number) {
  char drawn[kDrawn + 1];
  std::snprintf(drawn, sizeof drawn, "%08x", number);
  std::string name(target);
  name.append(kPartial).append(std::to_string(pid)).append("-").append(drawn);
  return name + mark_of(name);
}

std::string partial_name(std::string_view target) {
  uint32_t number = 0;
  if (::getrandom(&number, sizeof number, 0) < 0) number = static_cast<uint32_t>(::clock());
  return partial_name(target, ::getpid(), number);
}

std::optional<std::string_view> target_of_partial(std::string_view name) {
  const auto at = name.rfind(kPartial);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const std::string_view rest = name.substr(at + kPartial.size());
  const auto dash = rest.find('-');
  if (dash == std::string_view::npos || !consists_of(rest.substr(0, dash), "0123456789") ||
      rest.size() != dash + 1 + kDrawn + kMark ||
      !consists_of(rest.substr(dash + 1), "0123456789abcdef")) {
    return std::nullopt;
  }
  const std::string_view begin = name.substr(0, name.size() - kMark);
  if (name.substr(begin.size()) != mark_of(begin)) return std::nullopt;
  return name.substr(0, at);
}

}  // namespace subbyte
