#include "models/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "models/gguf_config.h"
#include "models/gguf_tensors.h"
#include "models/model_family.h"

namespace subbyte {

Result<const GgufArchitecture*> gguf_architecture_of(const GgufFile& file) {
  const GgufValue* const value = file.find("general.architecture");
  const auto name = value == nullptr ? std::nullopt : value->string();
  if (!name) return file.error("gguf.value", "general.architecture", "a text");
  for (const ModelFamily* const family : all_families()) {
    const auto has = [&](std::string_view key) {
      const GgufValue* const number = file.find(fmt::format("{}.{}", *name, key));
      return number != nullptr && number->number(0).value_or(0) > 0;
    };
    const auto is_it = [&](const GgufArchitecture& row) {
      return row.name == *name && !row.is_written_only && (row.with.empty() || has(row.with));
    };
    const auto found = std::ranges::find_if(family->gguf, is_it);
    if (found != family->gguf.end()) return &*found;
  }
  return Error{"gguf.architecture",
               fmt::format("{}: the architecture {} is not read; those that are: {}",
                           file.path().native(), quote(*name), gguf_architecture_names())};
}

std::string gguf_architecture_names() {
  std::string names;
  for (const ModelFamily* const family : all_families()) {
    for (const GgufArchitecture& architecture : family->gguf) {
      if (architecture.is_written_only || !architecture.with.empty()) continue;
      names += (names.empty() ? "" : ", ") + std::string(architecture.name);
    }
  }
  return names;
}

void fill_config(const ModelFiles& files, std::vector<Error>* problems) {
  const Result<SideFile> config = files.config();
  if (config.ok() || config.error().code != ModelFiles::kUnreadConfig) return;
  const auto read = [&]() -> Result<SideFile> {
    SUBBYTE_TRY(const GgufModel model, GgufModel::open(files.path()));
    SUBBYTE_TRY(const GgufArchitecture* const architecture, gguf_architecture_of(model.keys()));
    SUBBYTE_TRY(json::Value value, gguf_config(model, *architecture, problems));
    return SideFile{std::move(value), files.path().native() + " (in the words of config.json)"};
  };
  ModelFiles shared = files;
  shared.put(kConfigFile, read());
}

Result<TensorSource> open_tensors(const ModelFiles& files, std::vector<Error>* problems) {
  if (!is_gguf(files.path())) return TensorSource::open(files.path(), problems);
  fill_config(files, problems);
  SUBBYTE_TRY(const GgufModel gguf, GgufModel::open(files.path(), problems));
  const auto architecture = gguf_architecture_of(gguf.keys());
  if (!architecture.ok()) return TensorSource::open_gguf(gguf);
  return gguf_tensors(gguf, **architecture, problems);
}

}  // namespace subbyte
