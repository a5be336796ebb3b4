#include "session/ready_model.h"

#include <fmt/format.h>

#include <chrono>
#include <new>
#include <utility>

#include "backends/processes.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/config/quantization_config.h"
#include "checkpoints/model_path.h"
#include "exchange/message.h"
#include "models/gguf_model.h"
#include "models/model_family.h"
#include "session/follower.h"
#include "session/not_enough_memory.h"

namespace subbyte {
namespace {

constexpr int64_t kFp8Group = 128;  // inputs that share a factor

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<std::unique_ptr<Model>> try_to_load(const ReadyModel& ready, const LoadOptions& options) {
  try {
    return load_model(ready.files, *ready.backend, options);
  } catch (const std::bad_alloc&) {
    return not_enough_memory(ready.files, ready.config, options);
  }
}

/// The same on ranks in other processes, too; all have loaded it, or none.
Result<std::unique_ptr<Model>> try_to_load_everywhere(const ReadyModel& ready,
                                                      const LoadOptions& options) {
  Exchange* const others = exchange_of(*ready.backend);
  if (others == nullptr) return try_to_load(ready, options);
  SUBBYTE_CHECK(load_elsewhere(*others, options));
  auto loaded = try_to_load(ready, options);
  SUBBYTE_CHECK(agree(*others, loaded.ok() ? Status() : Status(loaded.error())));
  return loaded;
}

/// FP8 is for models that were made for it: others would lose accuracy for nothing.
Status check_activations(const ModelFiles& files, Activations activations) {
  if (activations != Activations::kFp8) return {};
  fill_config(files);
  SUBBYTE_TRY(const SideFile file, files.config());
  SUBBYTE_TRY(const json::Object object, file.object());
  SUBBYTE_TRY(const QuantizationConfig config,
              read_quantization_config(object, files.beside_weights()));
  if (config.rounded_inputs == kFp8Group) return {};
  return Error{"usage.activations",
               fmt::format("{}: activations in fp8 are for models in FP8 with weight_block_size "
                           "[128, 128] and activation_scheme dynamic; expected these in its "
                           "quantization_config, found {}",
                           files.path().string(), config.method_name())};
}

}  // namespace

Result<ReadyModel> ReadyModel::open(const std::string& name, const DeviceOptions& device,
                                    AutoDevice auto_device) {
  const double start = now();
  if (is_follower(device)) {
    SUBBYTE_CHECK(follow_first_rank(device));
    return Error{"exchange.ended", "this rank has computed what rank 0 has, until that ended"};
  }
  SUBBYTE_TRY(const std::filesystem::path path, find_model(name));
  ReadyModel ready = {.files = path, .device = device, .auto_device = std::move(auto_device)};
  SUBBYTE_CHECK(check_activations(ready.files, device.activations));
  SUBBYTE_TRY(ready.config, read_model_config(ready.files));
  SUBBYTE_CHECK(fit_to_layers(ready.device, ready.config.num_layers));
  const bool squares = type_of(ready.config).defaults.gate == Gate::kSquaredRelu;
  if (squares) ready.auto_device = with_wide_activations(std::move(ready.auto_device));
  SUBBYTE_TRY(ready.backend, choose_machine(ready.device, ready.auto_device));
  if (Exchange* const others = exchange_of(*ready.backend)) {
    SUBBYTE_CHECK(open_elsewhere(*others, device, name, ready.files));
  }
  ready.load_seconds = now() - start;
  return ready;
}

Status ReadyModel::load(const LoadOptions& options,
                        const std::function<Status(const Model& loaded)>& then) {
  const double start = now();
  const auto load_all = [&]() -> Status {
    SUBBYTE_TRY(std::unique_ptr<Model> loaded, try_to_load_everywhere(*this, options));
    if (then) SUBBYTE_CHECK(then(*loaded));
    model = std::move(loaded);
    return {};
  };
  SUBBYTE_CHECK(load_on_machine(device, auto_device, backend, load_all));
  load_seconds += now() - start;
  return {};
}

Status ReadyModel::verify_whole() const {
  Exchange* const others = exchange_of(*backend);
  return others == nullptr ? Status() : others->verify_whole();
}

Status check_context(const ModelConfig& config, int64_t positions) {
  if (positions <= config.max_positions) return {};
  return Error{"usage.context",
               fmt::format("a context of {} positions is longer than the model was made for ({})",
                           positions, config.max_positions)};
}

}  // namespace subbyte
