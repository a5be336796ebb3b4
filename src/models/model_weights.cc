#include "models/model_weights.h"

#include <algorithm>

namespace subbyte {

ModelWeights::ModelWeights(const ModelConfig& config, std::span<const TensorSpec> tensors) {
  for (const TensorSpec& spec : tensors) {
    if (spec.is_vector()) {
      vectors_[spec.name] = {spec.rows * std::max<int64_t>(1, spec.cols), nullptr};
    } else if (spec.role == TensorRole::kExpertsDown) {
      experts_[std::string(spec.parent())] = {spec.experts, config.experts_per_token, spec.rows,
                                              spec.cols, nullptr};
    } else {
      matrices_[spec.name] = {spec.rows, spec.cols, 0, nullptr};
    }
  }
}

}  // namespace subbyte
