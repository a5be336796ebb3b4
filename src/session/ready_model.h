#pragma once
// A model that can run: where its files are, the machine, the weights. Two steps, since the sizes
// of cache and steps, which loading counts, may depend on texts, and those on the model's files:
//
//   ReadyModel::open   finds the files, reads config.json, makes the machine: at once
//   ReadyModel::load   loads the weights: up to minutes

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "backends/auto_device.h"
#include "models/model.h"

namespace subbyte {

struct ReadyModel {
  ModelFiles files;
  ModelConfig config = {};
  int64_t context = 0;   // positions that a request may have, where that is said
  DeviceOptions device;  // the names in it stay until the model is loaded
  AutoDevice auto_device;
  std::unique_ptr<Backend> backend = nullptr;
  std::unique_ptr<Model> model = nullptr;  // once it is loaded
  double load_seconds = 0;                 // that opening and loading have taken

  /// Finds the model `name` (checkpoints/model_path.h) and chooses the machine: what can be refused
  /// before the sizes of cache and steps are known. Codes: those of find_model, choose_machine and
  /// read_model_config.
  static Result<ReadyModel> open(const std::string& name, const DeviceOptions& device = {},
                                 AutoDevice auto_device = {});

  /// Loads the weights and then calls `then`, which makes what else belongs to the machine. With
  /// device "auto" what the GPU does not take goes to the CPU. Codes: those of load_model and of
  /// `then`; memory where the machine has too little.
  Status load(const LoadOptions& options,
              const std::function<Status(const Model& loaded)>& then = nullptr);

  /// Says whether this process has heard that one of the others with parts of the model is lost,
  /// for who has no step to wait for. Code exchange.lost.
  Status verify_whole() const;
};

/// Refuses a context that is longer than the model was made for. Code usage.context.
Status check_context(const ModelConfig& config, int64_t positions);

}  // namespace subbyte
