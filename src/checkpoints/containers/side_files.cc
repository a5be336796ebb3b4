#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/file_error.h"
#include "base/model_file.h"
#include "base/quote.h"
#include "base/small_letters.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/containers/gguf_parts.h"
#include "checkpoints/containers/gguf_tokenizer.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxSideFileBytes = uint64_t{256} << 20;      // what a tokenizer.json may have
constexpr const char* kTemplates = "additional_chat_templates";  // a folder
constexpr std::array kSideFiles = {"tokenizer.json",
                                   "tokenizer_config.json",
                                   "tokenizer.model",
                                   "tiktoken.model",
                                   "tekken.json",
                                   "vocab.json",
                                   "merges.txt",
                                   "added_tokens.json",
                                   "special_tokens_map.json",
                                   "generation_config.json",
                                   "chat_template.json",
                                   "chat_template.jinja",
                                   "preprocessor_config.json",  // of a wrapper's other inputs
                                   "processor_config.json",
                                   "video_preprocessor_config.json",
                                   "README.md",
                                   "LICENSE",
                                   "LICENSE.txt",
                                   "LICENSE.md"};
/// What the names of other texts about a model, which go with it, begin with, in small letters.
constexpr std::array<std::string_view, 7> kTexts = {
    "readme", "license", "licence", "copying", "notice", "use_policy", "usage_policy"};
/// Weights, which are written anew, as kConfigFiles are.
constexpr std::array<std::string_view, 10> kWeightEndings = {
    ".safetensors", ".safetensors.index.json",
    ".bin",         ".bin.index.json",
    ".pt",          ".pth",
    ".gguf",        ".ak42",
    ".ak47",        ".ak48"};

Result<std::vector<std::string>> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code failure;
  fs::directory_iterator at(directory.empty() ? "." : directory, failure);
  for (; !failure && at != fs::directory_iterator(); at.increment(failure)) {
    names.push_back(at->path().filename().native());
  }
  if (failure) return file_error(failure.value(), directory, "read the directory");
  std::ranges::sort(names);
  return names;
}

bool is_text(const fs::path& path) {
  const std::string name = small_letters(path.filename().native());
  const auto begins = [&](std::string_view word) { return name.starts_with(word); };
  const auto is_directory = is_folder(path);
  return std::ranges::any_of(kTexts, begins) && !(is_directory.ok() && *is_directory);
}

/// Whether somebody may miss a file that is not copied.
bool belongs_to_model(std::string_view name) {
  const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
  return !name.starts_with('.') && name != kTemplates &&
         std::ranges::none_of(kWeightEndings, ends) &&
         std::ranges::find(kConfigFiles, name) == std::end(kConfigFiles);
}

std::string describe_left(const fs::path& from, const std::vector<std::string>& left) {
  constexpr std::size_t kMost = 8;
  std::string text = fmt::format("{}: not copied: ", from.string());
  for (std::size_t i = 0; i < std::min(left.size(), kMost); ++i) {
    text += (i > 0 ? ", " : "") + quote_name(left[i]);
  }
  if (left.size() > kMost) text += fmt::format(" and {} more", left.size() - kMost);
  return text;
}

Status copy_side_file(const fs::path& from, const fs::path& to) {
  SUBBYTE_TRY(const MappedFile file, open_model_file(from, kMaxSideFileBytes));
  const auto bytes = file.bytes();
  const Status written =
      write_text(to, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  SUBBYTE_CHECK(file.verify_unchanged());  // a write from what was cut off fails, too
  return written;
}

/// What the metadata of a GGUF file say, as files.
Status write_gguf_files(const fs::path& from, const fs::path& to) {
  SUBBYTE_TRY(const GgufModel model, GgufModel::open(from));
  SUBBYTE_TRY(const std::string generation, gguf_generation_config(model.keys()));
  SUBBYTE_CHECK(write_text(to / "generation_config.json", generation));
  if (!has_gguf_tokenizer(model.keys())) return {};
  SUBBYTE_TRY(const std::string tokenizer, gguf_tokenizer_json(model.keys()));
  SUBBYTE_CHECK(write_text(to / "tokenizer.json", tokenizer));
  SUBBYTE_TRY(const std::string config, gguf_tokenizer_config(model.keys()));
  return write_text(to / "tokenizer_config.json", config);
}

}  // namespace

Status copy_side_files(const fs::path& from, const fs::path& to, const Notice& notice) {
  if (notice && is_there(from / kTemplates)) {
    notice((from / kTemplates).string() +
           ": its chat templates are not copied; copy the folder for them");
  }
  if (is_gguf(from)) return write_gguf_files(from, to);
  SUBBYTE_TRY(const std::vector<std::string> names, names_in(from));
  std::vector<std::string> left;
  for (const std::string& name : names) {
    const bool is_known = std::ranges::find(kSideFiles, name) != kSideFiles.end();
    const bool is_other = is_text(from / name);
    // What no one computes with stops nothing: a text that cannot be read is named.
    if (is_known || (is_other && open_model_file(from / name, kMaxSideFileBytes).ok())) {
      SUBBYTE_CHECK(copy_side_file(from / name, to / name));
    } else if (is_other || belongs_to_model(name)) {
      left.push_back(name);
    }
  }
  // Beside a model file lies whatever its user has there.
  const bool is_model = std::ranges::find(names, "config.json") != names.end();
  if (notice && is_model && !left.empty()) notice(describe_left(from, left));
  return {};
}

}  // namespace subbyte
