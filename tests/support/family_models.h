#pragma once
// A tiny model of each type of each family, also inside of its wrapper, for tests that say
// something of all of them: a family that comes later has them without a line here.

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/model_family.h"
#include "support/safetensors_file.h"
#include "support/temp_dir.h"
#include "synth/synth_shapes.h"
#include "synth/synth_tensors.h"
#include "synth/synth_tokenizer.h"

namespace subbyte::testing {

struct FamilyModel {
  std::string name;         // its model_type, in a wrapper after that of the wrapper
  const ModelShape* shape;  // whose config it has, with another type where that has no shape
  json::Value config;
};

inline std::ostream& operator<<(std::ostream& out, const FamilyModel& model) {
  return out << model.name;
}

inline Result<ModelConfig> parsed_config(const json::Value& config) {
  SUBBYTE_TRY(const json::Object object, json::Object::of(config, "config.json"));
  return parse_model_config(object);
}

/// The tiny config of a type: that of its shape, or of one that fits it.
inline FamilyModel tiny_model_of(const ModelFamily& family, const ModelType& type) {
  FamilyModel fitting = {std::string(type.name), nullptr, {}};
  for (const ModelShape& shape : family.shapes) {
    if (shape.name != "tiny") continue;
    json::Value config = shape_config(family, shape, shape.layers);
    const bool is_own = config["model_type"] == type.name;
    config["model_type"] = std::string(type.name);
    config["architectures"] = json::Value::array({std::string(type.architecture)});
    config["torch_dtype"] = "bfloat16";
    auto parsed = json::parse(json::to_text(config), "config.json");
    if (!parsed.ok() || !parsed_config(*parsed).ok()) continue;
    if (is_own || fitting.shape == nullptr) {
      fitting.shape = &shape;
      fitting.config = *std::move(parsed);
    }
    if (is_own) break;
  }
  return fitting;
}

inline std::vector<FamilyModel> family_models() {
  std::vector<FamilyModel> models;
  for (const ModelFamily* const family : all_families()) {
    for (const ModelType& type : family->model_types) {
      models.push_back(tiny_model_of(*family, type));
      if (type.wrapper.empty()) continue;
      json::Value outer = json::Value::object();
      outer["model_type"] = std::string(type.wrapper);
      outer["tie_word_embeddings"] = models.back().config["tie_word_embeddings"];
      outer["text_config"] = models.back().config;
      outer["vision_config"] = {{"hidden_size", 8}, {"num_hidden_layers", 1}};
      models.push_back({std::string(type.wrapper) + "_" + models.back().name, models.back().shape,
                        std::move(outer)});
    }
  }
  return models;
}

/// Writes it with these tensors, of which those that `weights` does not have are zeros.
inline void write_family_model(const FamilyModel& model, const std::vector<SynthTensor>& weights,
                               const std::vector<TensorDeclaration>& tensors, const TempDir& dir) {
  dir.write("config.json", json::to_text(model.config, 2));
  dir.write("tokenizer.json", synthetic_tokenizer(*model.shape));
  std::vector<std::byte> bytes;
  const Status written = write_safetensors(
      dir / "model.safetensors", tensors, [&](const TensorEntry& entry) -> std::span<std::byte> {
        const auto tensor = std::ranges::find_if(
            weights, [&](const SynthTensor& one) { return one.declaration.name == entry.name; });
        bytes.assign(entry.end - entry.begin, std::byte{0});
        if (tensor != weights.end()) tensor->fill(bytes, 0, 1);
        return bytes;
      });
  ASSERT_TRUE(written.ok()) << written.error().message;
}

inline std::vector<SynthTensor> weights_of(const FamilyModel& model) {
  const auto config = parsed_config(model.config);
  return synthetic_tensors(config.value(), {.format = "bf16"}).value();
}

inline std::vector<TensorDeclaration> declarations(const std::vector<SynthTensor>& weights) {
  std::vector<TensorDeclaration> tensors;
  for (const SynthTensor& weight : weights) tensors.push_back(weight.declaration);
  return tensors;
}

}  // namespace subbyte::testing
