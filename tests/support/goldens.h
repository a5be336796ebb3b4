#pragma once
// The golden models by what they are for: tests take their names from tests/goldens/goldens.def.

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "support/paths.h"

namespace subbyte::testing {

enum GoldenUse : uint32_t {
  /// Models of one shape, or gpt-oss, whose logits are computed in every way; verify finds nothing
  /// in them but that they have no tokenizer.
  kEveryWay = 1,
  kTool = 2,            // what other software wrote: one way shows how it is read
  kReferenceInF16 = 4,  // that software's own weights are rounded to f16, and so the reference
  kRefused = 8,         // no model takes it
  kKind = 16,           // one of each kind of weights, for tests that take longer
  kFew = 32,            // two, for tests that take very long
  kBatches = 64,        // several sequences in a step
  kHead = 128,          // quantizing the head
  kGpu = 256,           // tests/gpu
  kStates = 512,        // layers that keep a state: computed in every way, with a long prompt, too
  kEveryBorder = 1024,  // of kStates: cut between any two tokens, the others at some places
};

struct Golden {
  const char* name;
  const char* model_type;
  const char* importer;  // of the quantized matrices; "dense": there are none
  uint32_t uses;
};

inline constexpr Golden kGoldenModels[] = {
#define SUBBYTE_GOLDEN(name, model_type, importer, uses) {name, model_type, importer, uses},
#include "goldens/goldens.def"
#undef SUBBYTE_GOLDEN
};

/// Those with this use, of this model_type where it is not empty.
inline std::vector<const char*> goldens(GoldenUse use, std::string_view model_type = {}) {
  std::vector<const char*> names;
  for (const Golden& golden : kGoldenModels) {
    if ((golden.uses & use) == 0) continue;
    if (model_type.empty() || golden.model_type == model_type) names.push_back(golden.name);
  }
  return names;
}

inline bool has_use(std::string_view name, GoldenUse use) {
  for (const Golden& golden : kGoldenModels) {
    if (golden.name == name) return (golden.uses & use) != 0;
  }
  return false;
}

/// The models of tests/data/gguf, one of each architecture.
inline constexpr const char* kGgufGoldens[] = {
    "llama",          "llama-biases",  "qwen2",         "qwen3",         "qwen3vl",
    "qwen3moe",       "gpt-oss",       "gemma2",        "gemma3",        "olmo2",
    "olmo3",          "phi3",          "granite",       "qwen35",        "qwen35moe",
    "qwen3next",      "lfm2",          "glm4",          "smollm3",       "seed_oss",
    "ernie4_5",       "hunyuan-dense", "qwen2moe",      "mixtral",       "glm4moe",
    "minimax-m2",     "lfm2moe",       "granitemoe",    "granitehybrid", "nemotron_h",
    "nemotron_h_moe", "gemma4",        "gemma4-inputs", "deepseek2",     "deepseek2-softmax",
    "mistral3",       "exaone4",       "nemotron",      "cohere2",       "ernie4_5-moe",
    "hunyuan-moe",    "llama4",        "mistral4"};

inline std::filesystem::path golden_folder(std::string_view name) {
  return std::filesystem::path(kTestData) / "goldens" / name;
}

}  // namespace subbyte::testing
