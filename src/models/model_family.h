#pragma once
// A family of models: all that this library knows of it. A new one is a file with one ModelFamily
// and one line in models.def; its name stands nowhere else (tools/check_layers.py).

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "json/key_rules.h"
#include "json/strict_json.h"
#include "models/config_defaults.h"
#include "models/config_keys.h"
#include "models/gguf_architecture.h"
#include "models/model.h"
#include "models/model_shape.h"
#include "models/ropes/rope_kind.h"
#include "models/tensor_spec.h"
#include "text/chat.h"

namespace subbyte {

class StepRecorder;

struct ModelType {
  std::string_view name;          // model_type of config.json
  std::string_view architecture;  // what config.json calls the class
  /// model_type of a config.json that has the config of such a model inside, as text_config, beside
  /// those of parts that see and draft.
  std::string_view wrapper = {};
  /// Older ones have no text_config, but its keys beside those of the other parts.
  bool may_be_flat = false;
  bool wrapper_ties = false;  // tie_word_embeddings of the wrapper where it is absent
  ConfigDefaults defaults = {};
};

struct ModelFamily {
  std::span<const ModelType> model_types;
  /// Other names of the first type: of containers that do not say what they hold (ModelFiles), or
  /// of models that are of that type.
  std::span<const std::string_view> containers = {};
  /// Architectures of GGUF files that hold its models.
  std::span<const GgufArchitecture> gguf = {};
  /// Rules of config.json beside those that all have, or instead of them; of a wrapper, too.
  std::span<const ConfigKey> keys = {};
  /// Lists that other families have, too ; `keys` count before them.
  std::array<std::span<const ConfigKey>, 3> shared_keys = {};
  std::span<const json::KeyRule> rope_keys = {};  // the same of its rope section
  std::span<const RopeKind> rope_kinds = {};      // beside those that all have
  /// Reads what config.json says of this family alone; nullptr: what `keys` say of ModelConfig.
  Status (*read)(const json::Object& config, ModelConfig& model) = nullptr;
  ExpertLayout experts = ExpertLayout::kModules;
  /// In front of the names of all tensors but the head in published checkpoints
  /// (checkpoint_names.h).
  std::string_view prefix = "model.";
  /// Writes the operations of a step, which names all weights: the list of tensors, too.
  void (*record)(const ModelConfig& config, StepRecorder& step) = nullptr;
  /// Those that its models were trained with, the usual one first; which one it is, is seen by the
  /// tokenizer. Where there are none, chats of its models need a template.
  std::span<const ChatFormat> chat = {};

  // For synth.
  std::span<const ModelShape> shapes;
  std::span<const ShapeKeys> shape_keys = {};
};

#define SUBBYTE_MODEL(name) extern const ModelFamily name##_family;
#include "models/models.def"
#undef SUBBYTE_MODEL

/// ModelFamily::read of a family whose own config is an `Own`: what its keys say, then what
/// `read_what_remains` reads and checks, a function of config, model and own; nullptr: nothing.
template <class Own, const auto& kKeys, auto read_what_remains = nullptr>
Status read_own(const json::Object& config, ModelConfig& model) {
  Own own;
  SUBBYTE_CHECK(read_keys(config, kKeys, &own, model));
  if constexpr (!std::is_null_pointer_v<decltype(read_what_remains)>) {
    SUBBYTE_CHECK(read_what_remains(config, model, own));
  }
  model.own = FamilyConfig(std::move(own));
  return {};
}

std::span<const ModelFamily* const> all_families();

/// `model_type` as config.json has it, a wrapper or a container. nullptr when this version does not
/// know it.
const ModelFamily* find_family(std::string_view model_type);
/// The family of a model whose config was read, and its type there.
const ModelFamily& family_of(const ModelConfig& config);
const ModelType& type_of(const ModelConfig& config);

}  // namespace subbyte
