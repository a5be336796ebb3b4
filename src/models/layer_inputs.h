#pragma once
// Inputs of layers: of each token a layer reads, beside the residual stream, a row of its own. All
// rows are those of a second table beside a product of the embedding.

#include <cstdint>

#include "base/status.h"
#include "models/model_config.h"
#include "models/step_recorder.h"

namespace subbyte {

/// Checks vocab_size_per_layer_input of a model whose layers have inputs. Codes: json.*,
/// config.vocab_size_per_layer_input.
Status check_layer_inputs(const json::Object& config, const ModelConfig& model);

/// Records those of all layers, [num_layers * size]: the mean of a row of the second table and a
/// product of the embedding x that has norms by layer, times the root of 2.
ValueId record_layer_inputs(const ModelConfig& config, StepRecorder& step, ValueId x, int64_t size);

/// Records the third block of a layer: x becomes x + delta, whose gate its columns of `inputs` are
/// multiplied by. Returns what is added after it.
ValueId record_layer_input(const ModelConfig& config, StepRecorder& step, ValueId& x, ValueId delta,
                           ValueId inputs, int64_t size, int64_t layer);

}  // namespace subbyte
