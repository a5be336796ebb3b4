#pragma once
// What the checks of a checkpoint share: what was read so far, and where findings go.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/importer.h"
#include "models/model_config.h"
#include "subbyte/verify.h"
#include "verify/findings.h"

namespace subbyte {

/// "eos_token_id" and the like.
struct SpecialToken {
  std::string_view file;
  std::string_view key;
  int64_t id;
};

struct VerifyContext {
  const ModelFiles& files;  // of a lone safetensors file nothing is read
  Executor& pool;
  TensorSource& tensors;  // of a broken container: what could be opened
  /// True where all files could be opened: else that a tensor is missing says nothing new.
  bool complete = true;
  Findings findings = {};

  // Filled by check_config.
  std::string architecture = {};
  std::optional<QuantizationConfig> quantization = {};  // nullopt: not understood
  std::optional<ModelConfig> model = {};                // nullopt: not one that this version runs
  std::optional<int64_t> vocab_size = {};
  std::vector<SpecialToken> special_tokens = {};

  Progress progress = nullptr;
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;

  void advance(uint64_t bytes) {
    done_bytes += bytes;
    if (progress) progress(done_bytes, total_bytes);
  }
};

/// Notes keys of a file that no table has, so that nobody knows whether they change an answer, or
/// that are `what` else.
void note_unknown_keys(VerifyContext& context, std::string_view file,
                       const std::vector<std::string>& keys,
                       std::string_view what = "keys that are not known");

// The checks, each in a file of its own. They report findings; an error that they return ends the
// verification (file.changed).
Status check_config(VerifyContext& context);     // config.cc: what the JSON files say
Status check_weights(VerifyContext& context);    // weights.cc: all tensors
Status check_tokenizer(VerifyContext& context);  // tokenizer.cc

}  // namespace subbyte
