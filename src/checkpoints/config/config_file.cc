#include "checkpoints/config/config_file.h"

#include "base/mapped_file.h"
#include "base/model_file.h"
#include "checkpoints/config/openai_config.h"
#include "checkpoints/containers/orin_model.h"

namespace subbyte {
namespace {

constexpr const char* kTokenizer = "tokenizer.json";

/// The directory that has `path`, which may be ".", or end in a slash.
std::filesystem::path parent_of(const std::filesystem::path& path) {
  const std::string last = path.filename().string();
  if (last == "." || last == "..") return path / "..";
  const std::filesystem::path named = last.empty() ? path.parent_path() : path;
  const std::filesystem::path parent = named.parent_path();
  return parent.empty() ? "." : parent;
}

}  // namespace

Result<ConfigFile> read_config_file(const std::filesystem::path& model) {
  ConfigFile config;
  if (is_orin_model(model)) {
    SUBBYTE_TRY(const MappedFile file, MappedFile::open(model));
    SUBBYTE_TRY(const OrinModel header,
                read_orin_model(file.bytes(), file.bytes().size(), model.native()));
    config = {orin_config(header.header), model.native()};
  } else {
    config.where = (model / "config.json").native();
    SUBBYTE_TRY(config.value, json::parse_file(config.where, kMaxConfigBytes));
    if (is_openai_config(config.value)) {
      config.value = openai_config(config.value);
      config.where += " (of OpenAI, in the words of transformers)";
    }
  }
  return config;
}

bool is_openai_directory(const std::filesystem::path& directory) {
  const auto config = json::parse_file((directory / "config.json").native(), kMaxConfigBytes);
  return config.ok() && is_openai_config(*config);
}

std::filesystem::path model_directory(const std::filesystem::path& model) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path parent = parent_of(model);
  if (fs::is_regular_file(model, ignored)) return parent;
  const bool is_above =
      !is_there(model / kTokenizer) && is_there(parent / kTokenizer) && is_openai_directory(model);
  return is_above ? parent : model;
}

}  // namespace subbyte
