// config.json and generation_config.json by themselves.

#include <fmt/format.h>

#include "base/model_file.h"
#include "checkpoints/config/config_file.h"
#include "engine/sampler.h"
#include "json/strict_json.h"
#include "verify/context.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kGeneration = "generation_config.json";
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
    context.findings.add(code, file, fmt::format("{}: a token id{}", key, limit), id.dump());
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
    context.findings.add(model.error(), kConfig);
  }
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
    context.findings.add("verify.remote_code", kConfig, {},
                         "auto_map names code of the checkpoint; it is never run");
  }
  check_model(context, value, config.where());
  auto quantization = read_quantization_config(config, context.path);
  if (quantization.ok()) {
    context.quantization = std::move(quantization).value();
  } else {
    context.findings.add(quantization.error(), kConfig);
  }
  check_special_tokens(context, config, kConfig);
}

/// Calls check(object, value) with what `file` holds.
template <typename F>
void with_json(VerifyContext& context, std::string_view file, const Result<ConfigFile>& config,
               F&& check) {
  if (!config.ok()) return context.findings.add(config.error(), file);
  const auto object = config->object();
  if (!object.ok()) return context.findings.add(object.error(), file);
  check(*object, config->value);
}

Result<ConfigFile> read_generation_config(const fs::path& directory) {
  const std::string path = (directory / kGeneration).string();
  SUBBYTE_TRY(json::Value value, json::parse_file(path, kMaxConfigBytes));
  return ConfigFile{std::move(value), path};
}

}  // namespace

Status check_config(VerifyContext& context) {
  with_json(context, kConfig, read_config_file(context.path),
            [&](const json::Object& config, const json::Value& value) {
              check_config_object(context, config, value);
            });
  if (!is_there(context.directory / kGeneration)) return {};
  with_json(context, kGeneration, read_generation_config(context.directory),
            [&](const json::Object& config, const json::Value&) {
              check_special_tokens(context, config, kGeneration);
              const auto sampling = read_sampling_defaults(context.directory, {});
              if (!sampling.ok()) context.findings.add(sampling.error(), kGeneration);
            });
  return {};
}

}  // namespace subbyte
