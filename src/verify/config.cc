// config.json and generation_config.json by themselves.

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/config/side_file_keys.h"
#include "checkpoints/containers/gguf_parts.h"
#include "engine/generation_config.h"
#include "json/strict_json.h"
#include "models/config_keys.h"
#include "models/gguf_keys.h"
#include "verify/context.h"

namespace subbyte {
namespace {

constexpr std::string_view kEos = "eos_token_id";
constexpr int64_t kMaxVocabulary = int64_t{1} << 31;

/// One of the ids under `key`, which is a number or a list of numbers.
void check_special_token(VerifyContext& context, std::string_view file, std::string_view key,
                         const json::Value& id) {
  const std::string_view code = key == kEos ? "config.eos_token_id" : "verify.special_token";
  const bool valid = id.is_number_unsigned() && id.get<uint64_t>() < kMaxVocabulary;
  const int64_t value = valid ? id.get<int64_t>() : -1;
  if (value < 0 || value >= context.vocab_size.value_or(kMaxVocabulary)) {
    const std::string limit =
        context.vocab_size ? fmt::format(" below vocab_size ({})", *context.vocab_size) : "";
    const std::string found = id.is_string() ? id.get<std::string>() : json::to_text(id);
    context.findings.add(code, file, fmt::format("{}: a token id{}", key, limit),
                         id.is_string() || id.is_array() || id.is_object() ? quote(found) : found);
    return;
  }
  context.special_tokens.push_back({file, key, value});
}

void check_special_tokens(VerifyContext& context, const json::Object& config,
                          std::string_view file) {
  for (const std::string_view key :
       {std::string_view("bos_token_id"), kEos, std::string_view("pad_token_id")}) {
    const json::Value* value = config.find(key);
    if (value == nullptr || value->is_null()) continue;
    if (!value->is_array()) {
      check_special_token(context, file, key, *value);
      continue;
    }
    for (const json::Value& id : *value) check_special_token(context, file, key, id);
  }
}

/// The architecture without its tokens, which are looked at one by one.
void check_model(VerifyContext& context, json::Value config, const std::string& path) {
  config.erase(std::string(kEos));
  const auto object = json::Object::of(config, path);
  auto model = parse_model_config(*object);
  if (model.ok()) {
    context.architecture = model->model_type;  // a container has none
    context.model = std::move(model).value();
  } else {
    context.findings.add(model.error(), kConfigFile);
  }
}

/// Scales for keys and values in FP8, which are kept as the command says instead.
void note_cache_scales(VerifyContext& context) {
  int64_t count = 0;
  std::string first;
  for (const auto& [name, tensor] : context.tensors.tensors()) {
    if (!name.ends_with(".k_scale") && !name.ends_with(".v_scale")) continue;
    if (count++ == 0) first = name;
  }
  if (count == 0) return;
  context.findings.add("verify.cache_scales", first, {},
                       fmt::format("{} scales of a key-value cache in FP8, which are not used: "
                                   "--kv-cache-type says how keys and values are kept",
                                   count));
}

void check_config_object(VerifyContext& context, const json::Object& config,
                         const json::Value& value) {
  if (const auto type = config.string("model_type"); type.ok()) {
    context.architecture = type->value_or("");
  }
  if (const auto size = config.integer("vocab_size", 1, kMaxVocabulary); size.ok()) {
    context.vocab_size = *size;
  }
  if (config.has("auto_map")) {
    context.findings.add("verify.remote_code", kConfigFile, {},
                         "auto_map names code of the checkpoint; it is never run");
  }
  check_model(context, value, config.where());
  if (context.model && !context.vocab_size) context.vocab_size = context.model->vocab_size;
  auto quantization = read_quantization_config(config, context.files.beside_weights());
  if (quantization.ok()) {
    for (const Disagreement& other : quantization->differs) {
      context.findings.add("verify.config_differs", other.file, other.expected, other.found);
    }
    context.quantization = std::move(quantization).value();
  } else {
    context.findings.add(quantization.error(), kConfigFile);
  }
  check_special_tokens(context, config, kConfigFile);
  if (!context.model) return;
  std::vector<std::string> unknown = unknown_config_keys(config, context.architecture);
  for (const auto& more : {unknown_quantization_keys(config),
                           unknown_side_file_keys(config, context.files.beside_weights())}) {
    unknown.insert(unknown.end(), more.begin(), more.end());
  }
  if (!context.files.has(kGenerationFile)) {
    std::erase_if(unknown, [](const std::string& key) {
      return json::find_rule(generation_config_rules(), key) != nullptr;
    });
  }
  note_unknown_keys(context, kConfigFile, unknown);
  note_unknown_keys(context, kConfigFile, keys_beside_text_part(config),
                    "keys beside text_config, where they are not read");
}

/// Calls check(object, value) with what `file` holds.
template <typename F>
void with_json(VerifyContext& context, std::string_view file, F&& check) {
  const Result<SideFile> config = context.files.read(file);
  if (!config.ok()) return context.findings.add(config.error(), file);
  const auto object = config->object();
  if (!object.ok()) return context.findings.add(object.error(), file);
  check(*object, config->value);
}

}  // namespace

void note_unknown_keys(VerifyContext& context, std::string_view file,
                       const std::vector<std::string>& keys, std::string_view what) {
  if (keys.empty()) return;
  constexpr std::size_t kMaxNames = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(keys.size(), kMaxNames); ++i) {
    names += (i > 0 ? ", " : "") + quote(keys[i], 60);
  }
  if (keys.size() > kMaxNames) names += fmt::format(" and {} more", keys.size() - kMaxNames);
  context.findings.add("verify.unknown_keys", file, {}, fmt::format("{}: {}", what, names));
}

Status check_config(VerifyContext& context) {
  note_cache_scales(context);
  if (const Status files = check_model_files(context.files.path()); !files.ok()) {
    context.findings.add(files.error(), "adapter_config.json");
  }
  if (is_gguf(context.files.path())) {
    const auto model = GgufModel::open(context.files.path());  // check_weights() says what is wrong
    if (model.ok()) {
      note_unknown_keys(context, context.files.path().filename().native(),
                        unknown_gguf_keys(model->keys()));
    }
  }
  const auto check_sampling = [&](std::string_view file) {
    const auto sampling = read_generation_config(context.files);
    if (!sampling.ok()) context.findings.add(sampling.error(), file);
  };
  const bool has_generation = context.files.has(kGenerationFile);
  with_json(context, kConfigFile, [&](const json::Object& config, const json::Value& value) {
    check_config_object(context, config, value);
    if (!has_generation) check_sampling(kConfigFile);
  });
  if (!has_generation) return {};
  with_json(context, kGenerationFile, [&](const json::Object& config, const json::Value&) {
    check_special_tokens(context, config, kGenerationFile);
    note_unknown_keys(context, kGenerationFile,
                      json::unknown_keys(config, generation_config_rules()));
    check_sampling(kGenerationFile);
  });
  return {};
}

}  // namespace subbyte
