// Matrices of checkpoints.

#include <atomic>

#include "base/quote.h"
#include "c_interface/context.h"
#include "c_interface/errors.h"
#include "checkpoints/model_path.h"
#include "json/strict_json.h"
#include "models/checkpoint.h"

struct subbyte_checkpoint {
  std::shared_ptr<subbyte::c::Context> context;
  subbyte::CheckpointParts files;

  /// The thread has a turn on the context.
  subbyte::ImportContext imports() const { return files.context(context->execution->pool()); }
};

using namespace subbyte;

namespace {

Status open(const subbyte_context* context, const char* path, subbyte_checkpoint** to) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}, {"path", path}, {"checkpoint", to}}));
  SUBBYTE_TRY(const auto model, find_model(path));
  SUBBYTE_TRY(CheckpointParts files, open_weights(model));
  *to = new subbyte_checkpoint{context->shared, std::move(files)};
  return {};
}

Status list(const subbyte_checkpoint* checkpoint, char** json) {
  SUBBYTE_CHECK(c::check_addresses({{"checkpoint", checkpoint}, {"json", json}}));
  json::Value root = json::Value::array();
  SUBBYTE_TRY(const auto turn, c::Turn::take(checkpoint->context));
  for (const FoundModule& module : find_modules(checkpoint->imports())) {
    json::Value entry = {{"name", module.name}};
    if (module.info.ok()) {
      const ModuleInfo& info = *module.info;
      entry["kind"] = info.importer;
      entry["format"] = to_string(info.format);
      entry["experts"] = info.experts;
      entry["rows"] = info.rows;
      entry["cols"] = info.cols;
      entry["act_order"] = info.act_order;
    } else {
      entry["error"] = module.info.error().message;
    }
    root.push_back(std::move(entry));
  }
  return c::hand_out(json::to_text(root), json);
}

Status import(const subbyte_checkpoint* checkpoint, const char* module, int64_t expert,
              subbyte_matrix** to) {
  SUBBYTE_CHECK(
      c::check_addresses({{"checkpoint", checkpoint}, {"module", module}, {"matrix", to}}));
  return c::make_matrix(checkpoint->context, to, [&](subbyte_matrix& made, Executor&) -> Status {
    SUBBYTE_TRY(std::vector<Matrix> experts, import_experts(checkpoint->imports(), module));
    if (expert < 0 || expert >= std::ssize(experts)) {
      return c::refuse("expert", "0 to " + std::to_string(std::ssize(experts) - 1), expert);
    }
    made.matrix = std::move(experts[expert]);
    return {};
  });
}

}  // namespace

int subbyte_checkpoint_open(subbyte_context* context, const char* path,
                            subbyte_checkpoint** checkpoint) {
  return c::run([&] { return open(context, path, checkpoint); });
}

void subbyte_checkpoint_destroy(subbyte_checkpoint* checkpoint) {
  delete checkpoint;
}

int subbyte_checkpoint_modules(const subbyte_checkpoint* checkpoint, char** json) {
  return c::run([&] { return list(checkpoint, json); });
}

int subbyte_checkpoint_matrix(const subbyte_checkpoint* checkpoint, const char* module,
                              int64_t expert, subbyte_matrix** matrix) {
  return c::run([&] { return import(checkpoint, module, expert, matrix); });
}
