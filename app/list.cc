// subbyte list: the models of the Hugging Face cache.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "app/command.h"
#include "app/output.h"
#include "app/terminal.h"
#include "base/cache_directory.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/config/quantization_config.h"
#include "checkpoints/model_cache.h"
#include "checkpoints/model_path.h"
#include "models/gguf_model.h"
#include "models/model_config.h"
#include "subbyte/json.h"

namespace subbyte::app {
namespace {

/// What its config says of a model, without a look at its weights.
struct ListedModel {
  CachedModel cached;
  std::string architecture;
  std::string quantization;
  std::string problem;  // why it does not run; empty: nothing is known that keeps it from it
};

/// What `run` is to be given: "org/name", and the revision where it is not main.
std::string name_of(const CachedModel& model) {
  return model.revision == "main" ? model.name : model.name + "@" + model.revision;
}

Status read_config(ListedModel& model) {
  // Of a repository of GGUF files its only one.
  const auto found = find_checkpoint(model.cached.snapshot.string());
  std::error_code ignored;
  const bool has_config = std::filesystem::exists(model.cached.snapshot / "config.json", ignored);
  if (!found.ok() && !has_config) return found.error();
  const ModelFiles files(found.ok() ? *found : model.cached.snapshot);
  fill_config(files);
  SUBBYTE_TRY(const SideFile file, files.config());
  SUBBYTE_TRY(const json::Object config, file.object());
  SUBBYTE_TRY(const auto type, config.string("model_type"));
  model.architecture = type.value_or("");
  SUBBYTE_TRY(const auto quantization, read_quantization_config(config, files.beside_weights()));
  model.quantization = quantization.method_name();
  SUBBYTE_TRY([[maybe_unused]] const ModelConfig known, read_model_config(files));
  return {};
}

ListedModel describe(CachedModel cached) {
  ListedModel model;
  model.cached = std::move(cached);
  const Status read = read_config(model);
  if (!model.cached.unfinished.empty()) {
    model.problem = "the download is not complete: " + model.cached.unfinished;
  } else if (!read.ok()) {
    model.problem = read.error().message;
  }
  return model;
}

std::string as_json(const std::vector<ListedModel>& models) {
  Json root = {{"cache", cache_directory().string()}, {"models", Json::array()}};
  for (const ListedModel& model : models) {
    root["models"].push_back({{"name", name_of(model.cached)},
                              {"path", model.cached.snapshot.string()},
                              {"bytes", model.cached.bytes},
                              {"architecture", model.architecture},
                              {"quantization", model.quantization},
                              {"problem", model.problem}});
  }
  return json_text(root);
}

/// A line for each model, and one below it where something keeps it from running.
std::string as_text(const std::vector<ListedModel>& models) {
  std::size_t width = 0;
  for (const ListedModel& model : models) width = std::max(width, name_of(model.cached).size());
  width = std::min(width, static_cast<std::size_t>(columns_of(stdout)) / 2);
  std::string text;
  for (const ListedModel& model : models) {
    const std::string row =
        line("{:<{}}  {:>9.1f} MB  {} {}", name_of(model.cached), width,
             static_cast<double>(model.cached.bytes) / 1e6, model.architecture, model.quantization);
    text += fitted(row, stdout, 4);
    if (!model.problem.empty()) text += fitted(line("    {}", model.problem), stdout, 4);
  }
  return text;
}

Result<ExitCode> run(bool json) {
  std::vector<ListedModel> models;
  for (CachedModel& cached : list_cache()) models.push_back(describe(std::move(cached)));
  print(stdout, json ? as_json(models) : as_text(models));
  if (models.empty()) note(line("{}: no models here", cache_directory().string()));
  return kOk;
}

}  // namespace

void add_list(Program& program, Invocation&) {
  Command command = program.add_command(
      "list", "List the models of the Hugging Face cache, which commands take by name",
      "  subbyte list\n"
      "  subbyte list --json");
  auto json = std::make_shared<bool>(false);
  command.flag("--json", *json, "print one JSON object");
  command.run([json] { return run(*json); });
}

}  // namespace subbyte::app
