#include "base/cache_directory.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace subbyte {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

/// The home of a user by the list of users; of this one where `user` is empty.
std::optional<std::string> home_of(const std::string& user) {
  std::array<char, 16384> memory{};
  passwd entry{};
  passwd* found = nullptr;
  if (user.empty()) {
    ::getpwuid_r(::getuid(), &entry, memory.data(), memory.size(), &found);
  } else {
    ::getpwnam_r(user.c_str(), &entry, memory.data(), memory.size(), &found);
  }
  if (found == nullptr || entry.pw_dir == nullptr) return std::nullopt;
  return std::string(entry.pw_dir);
}

/// "~" or "~user" at the beginning.
std::string with_home(const std::string& text) {
  if (!text.starts_with('~')) return text;
  const std::size_t end = std::min(text.find('/'), text.size());
  const std::string user = text.substr(1, end - 1);
  std::optional<std::string> home;
  if (user.empty()) home = variable("HOME");
  if (!home) home = home_of(user);
  return home ? *home + text.substr(end) : text;
}

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// "$NAME" and "${NAME}", once: values are not looked at again.
std::string with_variables(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t dollar = std::min(text.find('$'), text.size());
    result.append(text.substr(0, dollar));
    text.remove_prefix(dollar);
    if (text.empty()) break;
    const bool braces = text.starts_with("${");
    std::size_t end = braces ? text.find('}') : 1;
    while (!braces && end < text.size() && is_of_name(text[end])) ++end;
    const bool is_name = end != text.npos && end > 1;
    const std::size_t length = !is_name ? 1 : braces ? end + 1 : end;
    const std::string_view name =
        !is_name ? "" : text.substr(braces ? 2 : 1, end - (braces ? 2 : 1));
    const char* value = is_name ? std::getenv(std::string(name).c_str()) : nullptr;
    result.append(value != nullptr ? std::string_view(value) : text.substr(0, length));
    text.remove_prefix(length);
  }
  return result;
}

}  // namespace

fs::path cache_directory() {
  const auto expanded = [](const std::string& text) { return with_variables(with_home(text)); };
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto path = variable(name)) return expanded(*path);
  }
  if (const auto home = variable("HF_HOME")) return expanded(*home) + "/hub";
  const auto caches = variable("XDG_CACHE_HOME");
  return expanded(caches.value_or("~/.cache") + "/huggingface/hub");
}

}  // namespace subbyte
