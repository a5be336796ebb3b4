#include "json/side_files.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/model_file.h"

namespace subbyte {
namespace {

/// Infinities, which Python writes as a word of its own, as transformers has them since version 5:
/// {"__float__": "Infinity"}.
std::string with_named_infinities(std::string_view text) {
  constexpr std::string_view kWord = "Infinity";
  std::string named;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!in_string && text.substr(i).starts_with(kWord)) {
      named += R"({"__float__": "Infinity"})";
      i += kWord.size() - 1;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    named += text[i];
    if (in_string && text[i] == '\\' && i + 1 < text.size()) named += text[++i];
  }
  return named;
}

/// Codes: those of json::parse_file.
Result<json::Value> parse_side_file(const std::string& path) {
  SUBBYTE_TRY(const MappedFile file, json::open_file(path, SideFiles::kMaxBytes));
  const std::string_view text = json::text_of(file);
  auto value = json::parse(text, path);
  if (value.ok() || value.error().code != "json.syntax") return value;
  auto named = json::parse(with_named_infinities(text), path);
  return named.ok() ? std::move(named) : std::move(value);
}

}  // namespace

struct SideFiles::State {
  std::filesystem::path directory;
  std::mutex mutex;
  std::map<std::string, Result<SideFile>, std::less<>> files;  // that were read, or put in
  std::map<std::string, MakeText, std::less<>> texts;
};

SideFiles::SideFiles() : state_(std::make_shared<State>()) {}

SideFiles::SideFiles(std::filesystem::path directory) : SideFiles() {
  state_->directory = directory.empty() ? "." : std::move(directory);
}

void SideFiles::put(std::string_view name, Result<SideFile> file) {
  const std::lock_guard lock(state_->mutex);
  state_->files.insert_or_assign(std::string(name), std::move(file));
}

void SideFiles::put_text(std::string_view name, MakeText make) {
  const std::lock_guard lock(state_->mutex);
  state_->texts.insert_or_assign(std::string(name), std::move(make));
}

Result<std::optional<std::string>> SideFiles::text(std::string_view name) const {
  MakeText make;
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->texts.find(name);
    if (found == state_->texts.end()) return std::optional<std::string>();
    make = found->second;
  }
  SUBBYTE_TRY(std::string text, make());
  return std::optional(std::move(text));
}

const std::filesystem::path& SideFiles::directory() const {
  return state_->directory;
}

bool SideFiles::has(std::string_view name) const {
  const std::lock_guard lock(state_->mutex);
  const bool is_known = state_->files.contains(name) || state_->texts.contains(name);
  return is_known || (!directory().empty() && is_there(directory() / name));
}

Result<SideFile> SideFiles::read(std::string_view name) const {
  const std::lock_guard lock(state_->mutex);
  if (const auto found = state_->files.find(name); found != state_->files.end()) {
    return found->second;
  }
  if (directory().empty()) return Error{"file.not_found", std::string(name) + ": not found"};
  const std::string path = (directory() / name).native();
  Result<json::Value> value = parse_side_file(path);
  Result<SideFile> file = value.ok() ? Result(SideFile{*std::move(value), path}) : value.error();
  if (!is_there(path)) return file;  // that something is known of it would say that it is there
  return state_->files.emplace(name, std::move(file)).first->second;
}

}  // namespace subbyte
