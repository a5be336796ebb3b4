#include "checkpoints/config/model_files.h"

#include "base/model_file.h"
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

}  // namespace subbyte
