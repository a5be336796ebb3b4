#include "checkpoints/gguf_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "base/model_file.h"
#include "base/quote.h"
#include "base/small_letters.h"
#include "checkpoints/containers/gguf_parts.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".gguf";
constexpr int kMaxDepth = 1;  // folders of a quantization each

/// Says whether it is a part, but for the first, of "NAME-00002-of-00003.gguf".
bool is_later_part(std::string_view name) {
  const std::size_t of = name.rfind("-of-");
  if (of == name.npos || of < 5) return false;
  const std::string_view digits = name.substr(of - 5, 5);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::ranges::all_of(digits, is_digit) && digits != "00001";
}

bool is_wanted(const std::string& name, std::string_view wanted) {
  const std::string text = small_letters(name);
  const std::string part = small_letters(wanted);
  if (part.empty() || text == part || text == part + std::string(kEnding)) return true;
  const auto is_end = [](char c) { return c == '-' || c == '.' || c == '_' || c == '/'; };
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    const bool ends = end == text.size() || is_end(text[end]);
    if (ends && (at == 0 || is_end(text[at - 1]))) return true;
  }
  return false;
}

std::vector<std::string> wanted_of(const std::vector<std::string>& names, std::string_view wanted) {
  std::vector<std::string> chosen;
  std::ranges::copy_if(names, std::back_inserter(chosen),
                       [&](const std::string& name) { return is_wanted(name, wanted); });
  return chosen;
}

}  // namespace

Result<std::optional<fs::path>> gguf_in(const fs::path& directory, std::string_view wanted) {
  std::vector<std::string> found;
  std::vector<std::string> others;  // later parts, and files that are no GGUF
  bool has_any = false;
  std::error_code failure;
  for (fs::recursive_directory_iterator at(directory, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (at.depth() >= kMaxDepth) at.disable_recursion_pending();
    const fs::path& path = at->path();
    if (small_letters(path.extension().string()) != kEnding) continue;
    has_any = true;
    if (!other_kind_of_gguf(path).empty()) continue;
    const bool is_other = is_later_part(path.filename().string()) || !begins_as_gguf(path);
    (is_other ? others : found).push_back(path.lexically_relative(directory).string());
  }
  if (!has_any) return std::optional<fs::path>();
  std::ranges::sort(found);
  // Opening one says what is wrong with it.
  if (found.empty() && !others.empty()) found.push_back(*std::ranges::min_element(others));
  std::vector<std::string> chosen = wanted_of(found, wanted);
  // A later part that was named opens all of them.
  if (chosen.empty()) chosen = wanted_of(others, wanted);
  if (chosen.size() != 1) {
    const auto& list = chosen.empty() ? found : chosen;
    std::string names;
    for (const std::string& name : list) names += (names.empty() ? "" : ", ") + quote_name(name);
    return Error{"model.not_found",
                 fmt::format("{}: expected one GGUF file{}, found {}", directory.string(),
                             wanted.empty() ? std::string() : " of " + quote(wanted),
                             list.empty() ? std::string("none of a model") : names)};
  }
  const fs::path path = directory / chosen.front();
  // Its name was not given by the user, so it is opened as other files of a directory are.
  SUBBYTE_TRY([[maybe_unused]] const MappedFile file, open_model_file(path, kAnyFileSize));
  return std::optional(path);
}

}  // namespace subbyte
