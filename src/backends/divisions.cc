#include "backends/divisions.h"

#include <string>

namespace subbyte {
namespace {

Error refuse(const std::string& message) {
  return {"device.stages", message};
}

}  // namespace

bool divides_layers(const DeviceOptions& options) {
  return options.gpu_layers > 0 || options.gpu_layers == kGpuLayersThatFit;
}

Status check_divisions(const DeviceOptions& options) {
  const int stages = options.pipeline_parallel_size;
  if (options.gpu_layers < kGpuLayersThatFit) {
    return refuse(
        "layers on a GPU (--gpu-layers): expected a number of them, -1 (all) or -2 (what fits), "
        "found " +
        std::to_string(options.gpu_layers));
  }
  const bool divides_gpu = divides_layers(options);
  if ((stages > 1 || divides_gpu) && options.tensor_parallel_size > 1) {
    return refuse(
        "a model is divided among ranks (--tensor-parallel) or among stages (--pipeline-parallel, "
        "--gpu-layers), not both");
  }
  if (divides_gpu && stages > 1) {
    return refuse(
        "--gpu-layers makes two stages, the CPU and a GPU; leave --pipeline-parallel out");
  }
  return {};
}

}  // namespace subbyte
