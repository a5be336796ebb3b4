#include "checkpoints/config/config_file.h"

#include "base/mapped_file.h"
#include "checkpoints/containers/orin_model.h"

namespace subbyte {

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
  }
  return config;
}

std::filesystem::path model_directory(const std::filesystem::path& model) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(model, ignored)) return model;
  const std::filesystem::path parent = model.parent_path();
  return parent.empty() ? "." : parent;
}

}  // namespace subbyte
