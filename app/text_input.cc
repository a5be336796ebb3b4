#include "app/text_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>

#include "app/output.h"
#include "app/terminal.h"
#include "base/descriptor.h"
#include "base/file_error.h"
#include "base/quote.h"
#include "json/strict_json.h"

namespace subbyte::app {
namespace {

constexpr std::string_view kEscapes = "\\n, \\t, \\r, \\\\, \\\", \\' and \\xHH";
constexpr const char* kInputName = "standard input";
constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;

Result<std::string> read_to_end(int file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = ::read(file, buffer, sizeof buffer);
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error(errno, name, "read");
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kMaxTextBytes) {
      return Error{"usage.text_too_long",
                   fmt::format("{}: longer than {} bytes", name, kMaxTextBytes)};
    }
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Error wrong_escape(std::string_view found) {
  return {"usage.escape",
          fmt::format("--escape: expected one of {}, found {}", kEscapes, quote(found))};
}

Error wrong_ids(std::string_view found) {
  return {"usage.ids",
          fmt::format("expected token ids, such as 1,2,3 or [1, 2, 3], found {}", quote(found))};
}

/// A list, or an object of `tokenize --json` that has one.
Result<std::vector<TokenId>> ids_of_json(const std::string& text) {
  const auto root = json::parse(text, "token ids", {}, json::kTextMemoryFactor);
  if (!root.ok()) return wrong_ids(text);
  const json::Value* list = &*root;
  for (const char* key : {"ids", "tokens"}) {
    if (root->is_object() && root->contains(key)) list = &root->at(key);
  }
  if (!list->is_array()) return wrong_ids(text);
  std::vector<TokenId> ids;
  for (const json::Value& id : *list) {
    const bool is_id = id.is_number_unsigned() &&
                       id.get<uint64_t>() <= uint64_t{std::numeric_limits<TokenId>::max()};
    if (!is_id) return wrong_ids(text);
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

}  // namespace

Result<std::string> read_text(const std::string& path_or_dash) {
  if (path_or_dash == "-") {
    if (is_terminal(stdin)) {
      print_notice("reading the text from the terminal; Ctrl-D in an empty line ends it");
    }
    return read_to_end(STDIN_FILENO, kInputName);
  }
  const Descriptor file(::open(path_or_dash.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return file_error(errno, path_or_dash, "open");
  return read_to_end(file.number(), path_or_dash);
}

Result<std::string> read_prompt(const std::string& path_or_dash) {
  SUBBYTE_TRY(std::string text, read_text(path_or_dash));
  if (!text.ends_with('\n')) return text;
  text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

Status keep_standard_input() {
  if (is_terminal(stdin)) {
    print_notice("reading requests from the terminal; Ctrl-D in an empty line ends them");
  }
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> copy(std::tmpfile(), &std::fclose);
  if (copy == nullptr) return file_error(errno, "a temporary file", "create");
  const int file = ::fileno(copy.get());
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count == 0) break;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error(errno, kInputName, "read");
    for (ssize_t done = 0; done < count;) {
      const ssize_t written = ::write(file, buffer + done, static_cast<std::size_t>(count - done));
      if (written < 0 && errno != EINTR) return file_error(errno, "a temporary file", "write");
      done += std::max<ssize_t>(written, 0);
    }
  }
  if (::dup2(file, STDIN_FILENO) < 0) return file_error(errno, kInputName, "keep");
  return {};
}

Result<std::string> unescaped(const std::string& text) {
  constexpr std::string_view kNames = "ntr\\\"'";
  constexpr std::string_view kMeant = "\n\t\r\\\"'";
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      plain += text[i];
      continue;
    }
    const std::string_view rest = std::string_view(text).substr(i + 1);
    const std::size_t known = rest.empty() ? kNames.npos : kNames.find(rest[0]);
    const bool is_hex =
        rest.size() >= 3 && rest[0] == 'x' && hex_digit(rest[1]) >= 0 && hex_digit(rest[2]) >= 0;
    if (known == kNames.npos && !is_hex) return wrong_escape(text.substr(i, 2));
    plain +=
        is_hex ? static_cast<char>(hex_digit(rest[1]) * 16 + hex_digit(rest[2])) : kMeant[known];
    i += is_hex ? 3 : 1;
  }
  return plain;
}

Result<std::vector<TokenId>> parse_ids(const std::string& text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first != text.npos && (text[first] == '[' || text[first] == '{')) return ids_of_json(text);
  std::vector<TokenId> ids;
  bool wants_id = false;  // after a comma
  std::size_t at = std::min(first, text.size());
  while (at < text.size()) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    if (error != std::errc() || id < 0) return wrong_ids(text);
    ids.push_back(id);
    const auto after = static_cast<std::size_t>(end - text.data());
    at = std::min(text.find_first_not_of(kBlanks, after), text.size());
    wants_id = at < text.size() && text[at] == ',';
    if (at < text.size() && !wants_id && at == after) return wrong_ids(text);
    if (wants_id) at = std::min(text.find_first_not_of(kBlanks, at + 1), text.size());
  }
  if (wants_id) return wrong_ids(text);
  return ids;
}

}  // namespace subbyte::app
