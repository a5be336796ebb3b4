#include "checkpoints/config/model_files.h"

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "base/model_file.h"
#include "checkpoints/config/openai_config.h"
#include "checkpoints/containers/gguf_parts.h"
#include "checkpoints/containers/gguf_tokenizer.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/containers/tekken_file.h"
#include "checkpoints/containers/tiktoken_file.h"
#include "json/key_rules.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using json::KeyUse;

constexpr const char* kTokenizer = "tokenizer.json";

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
  for (const char* const name : {"tokenizer.model", "vocab.json", "spiece.model"}) {
    if (is_there(directory / name)) return name;
  }
  return {};
}

/// The directory that has `path`, which may be ".", or end in a slash.
fs::path parent_of(const fs::path& path) {
  const std::string last = path.filename().string();
  if (last == "." || last == "..") return path / "..";
  const fs::path named = last.empty() ? path.parent_path() : path;
  const fs::path parent = named.parent_path();
  return parent.empty() ? "." : parent;
}

/// Whether the directory above one, which may be OpenAI's own, has the tokenizer.
bool is_tokenizer_above(const fs::path& model) {
  return !is_there(model / kTokenizer) && is_there(parent_of(model) / kTokenizer);
}

Result<SideFile> config_of_orin_model(const fs::path& model) {
  SUBBYTE_TRY(const MappedFile file, MappedFile::open(model));
  SUBBYTE_TRY(const OrinModel header,
              read_orin_model(file.bytes(), file.bytes().size(), model.native()));
  return SideFile{orin_config(header.header), model.native()};
}

Error lone_file(const fs::path& path) {
  return {"model.not_found",
          fmt::format("{}: one file of a model; its directory is the model", path.string())};
}

}  // namespace

ModelFiles::ModelFiles(const fs::path& model) : SideFiles(model), path_(model) {
  std::error_code ignored;
  if (is_gguf(model)) {
    put_gguf_files();
    return;
  }
  if (fs::is_regular_file(model, ignored)) {
    SideFiles::operator=(SideFiles(parent_of(model)));
    put(kConfigFile,
        is_orin_model(model) ? config_of_orin_model(model) : Result<SideFile>(lone_file(model)));
    return;
  }
  const Result<bool> is_folder = subbyte::is_folder(model);
  if (!is_folder.ok()) put(kConfigFile, is_folder.error());
  if (is_folder.ok() && !*is_folder && is_there(model)) put(kConfigFile, lone_file(model));
  if (!has(kTokenizer) && has(kTiktokenFile)) {
    put_text(kTokenizer, [files = SideFiles(model)] { return tiktoken_tokenizer_json(files); });
  } else if (!has(kTokenizer) && has(kTekkenFile)) {
    put_text(kTokenizer, [files = SideFiles(model)] { return tekken_tokenizer_json(files); });
  }
  beside_weights_ = *this;
  if (!is_openai_directory(*this)) return;
  const Result<SideFile> own = config();
  if (is_tokenizer_above(model)) SideFiles::operator=(SideFiles(parent_of(model)));
  put(kConfigFile, SideFile{openai_config(own->value),
                            own->where + " (of OpenAI, in the words of transformers)"});
}

/// What the metadata say. Only families know what they mean for config.json.
void ModelFiles::put_gguf_files() {
  const Result<GgufModel> model = GgufModel::open(path_);
  if (!model.ok()) {
    put_text(kTokenizer, [error = model.error()]() -> Result<std::string> { return error; });
    return put(kConfigFile, model.error());
  }
  put(kConfigFile, Error{kUnreadConfig, path_.native() + ": its metadata were not read"});
  const auto put_json = [&](std::string_view name, const Result<std::string>& text) {
    if (!text.ok()) return put(name, text.error());
    Result<json::Value> value = json::parse(*text, path_.native());
    put(name, value.ok() ? Result(SideFile{*std::move(value), path_.native()}) : value.error());
  };
  put_json(kGenerationFile, gguf_generation_config(model->keys()));
  if (!has_gguf_tokenizer(model->keys())) return;
  put_text(kTokenizer, [model = *model] { return gguf_tokenizer_json(model); });
  put_json("tokenizer_config.json", gguf_tokenizer_config(model->keys()));
}

bool is_model_file(const fs::path& path) {
  return is_orin_model(path) || is_gguf(path);
}

fs::path model_directory(const fs::path& model) {
  if (is_gguf(model)) return model;
  std::error_code ignored;
  const bool is_above = fs::is_regular_file(model, ignored) ||
                        (is_tokenizer_above(model) && is_openai_directory(model));
  return is_above ? parent_of(model) : model;
}

bool is_openai_directory(const SideFiles& directory) {
  const Result<SideFile> config = directory.read(kConfigFile);
  return config.ok() && is_openai_config(config->value);
}

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

Status check_tokenizer_file(const SideFiles& files) {
  if (files.has(kTokenizer)) return {};
  const fs::path& directory = files.directory();
  const std::string_view other = other_tokenizer(directory);
  std::string help = "copy it from the model that this one was made from";
  const Result<SideFile> config = files.read(kConfigFile);
  const bool is_openai = config.ok() && (is_openai_config(config->value) ||
                                         config->value.at("model_type") == kOpenAiContainer);
  if (is_openai) {
    help =
        "OpenAI's own files have no tokenizer: copy that of Hugging Face's directory here or "
        "one directory up";
  } else if (!other.empty()) {
    help = fmt::format(
        "found {}, which is not read: {}, or write it with transformers "
        "(AutoTokenizer.from_pretrained and save_pretrained)",
        other, help);
  }
  return Error{"tokenizer.missing",
               fmt::format("{}: not found; {}", (directory / kTokenizer).string(), help)};
}

}  // namespace subbyte
