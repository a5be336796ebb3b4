#pragma once
// Whole model directories of a few kilobytes: one layer, 32 wide, 16 tokens. They load; the cases
// of metadata_set.h take one and break one thing.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json/strict_json.h"
#include "support/test_tensors.h"

namespace subbyte::conformance {

inline constexpr uint64_t kHidden = 32;
inline constexpr uint64_t kInner = 64;  // of the feed-forward block
inline constexpr uint64_t kHeads = 4;
inline constexpr uint64_t kKvHeads = 2;
inline constexpr uint64_t kHeadDim = 16;
inline constexpr uint64_t kVocabulary = 16;
inline constexpr uint64_t kExperts = 2;
inline constexpr uint64_t kGroup = 16;

/// The matrix that most cases damage: kHidden inputs, kInner outputs.
inline constexpr std::string_view kUp = "model.layers.0.mlp.up_proj";

struct TinyModel {
  json::Value config;
  std::vector<TestTensor> tensors;
  std::vector<std::pair<std::string, std::string>> other_files;  // name, content

  TestTensor& tensor(std::string_view name);
  TestTensor& up(std::string_view part) { return tensor(std::string(kUp) + std::string(part)); }
  void remove(std::string_view name);
  json::Value& quantization() { return config["quantization_config"]; }

  /// config.json, model.safetensors and the other files.
  std::vector<std::pair<std::string, std::string>> files() const;
};

struct GptqKind {
  int bits = 4;
  int64_t group_size = kGroup;  // -1: the whole row
  bool v1 = true;
  bool sym = false;
  bool with_g_idx = true;
  bool act_order = false;
};

TinyModel dense_model(DType dtype);
TinyModel awq_model(int64_t group_size = kGroup);
TinyModel gptq_model(const GptqKind& kind = {});
TinyModel mxfp4_model();
/// gpt-oss with experts of 16 bits.
TinyModel dequantized_gpt_oss();

}  // namespace subbyte::conformance
