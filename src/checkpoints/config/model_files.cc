#include "checkpoints/config/model_files.h"

#include <fmt/format.h>

#include "base/model_file.h"
#include "checkpoints/config/config_file.h"
#include "json/key_rules.h"

namespace subbyte {
namespace {

using json::KeyUse;

struct ModelFile {
  std::string_view name;
  KeyUse use;
};

constexpr ModelFile kFiles[] = {
#define SUBBYTE_MODEL_FILE(name, use, note) {name, KeyUse::use},
#include "checkpoints/config/model_files.def"
#undef SUBBYTE_MODEL_FILE
};

/// Folders have names that end in "/".
bool is_in(const std::filesystem::path& directory, std::string_view name) {
  if (name.ends_with('/')) name.remove_suffix(1);
  return is_there(directory / name);
}

/// The first file of a tokenizer in another form; empty without one.
std::string_view other_tokenizer(const std::filesystem::path& directory) {
  for (const char* const name :
       {"tokenizer.model", "tekken.json", "tiktoken.model", "vocab.json", "spiece.model"}) {
    if (is_there(directory / name)) return name;
  }
  return {};
}

}  // namespace

Status check_model_files(const std::filesystem::path& directory) {
  for (const ModelFile& file : kFiles) {
    if (file.use != KeyUse::kRefused || !is_in(directory, file.name)) continue;
    if (!std::string_view(file.name).ends_with('/')) {  // else the system may not have said
      SUBBYTE_TRY([[maybe_unused]] const MappedFile beside,
                  open_model_file(directory / file.name, kAnyFileSize));
    }
    return Error{"model.adapter", (directory / file.name).native() +
                                      ": expected the weights of a whole model, found an adapter "
                                      "beside them; merge it into them, or move it away"};
  }
  return {};
}

Status check_tokenizer_file(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "tokenizer.json";
  if (is_there(path)) return {};
  const std::string_view other = other_tokenizer(directory);
  std::string help = "copy it from the model that this one was made from";
  if (is_openai_directory(directory)) {
    help =
        "OpenAI's own files have no tokenizer: copy that of Hugging Face's directory here or "
        "one directory up";
  } else if (!other.empty()) {
    help = fmt::format(
        "found {}, which is not read: {}, or write it with transformers "
        "(AutoTokenizer.from_pretrained and save_pretrained)",
        other, help);
  }
  return Error{"tokenizer.missing", fmt::format("{}: not found; {}", path.string(), help)};
}

}  // namespace subbyte
