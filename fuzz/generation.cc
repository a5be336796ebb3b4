// generation_config.json beside a config.json that is right. The input is the file.

#include "engine/generation_config.h"
#include "fuzz/fuzz.h"
#include "models/model_config.h"

using namespace subbyte;

namespace {

constexpr std::string_view kConfig = R"({"model_type": "qwen3", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512,
    "num_key_value_heads": 2, "head_dim": 16, "eos_token_id": 7})";

const fuzz::Scratch& directory() {
  static const fuzz::Scratch scratch;
  static const auto written = scratch.write("config.json", kConfig);
  return scratch;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const fuzz::Exact file(data, size);
  directory().write("generation_config.json", file.text());
  const auto sampling = read_generation_config(directory().path());
  if (sampling.ok()) {
    const SamplingOptions options = resolve(*sampling, neutral_sampling());
    fuzz::require(check_sampling(options).ok(), "sampling in its ranges");
  } else {
    fuzz::require_line(sampling.error(), "generation_config.json");
  }
  const auto config = read_model_config(directory().path());
  if (!config.ok()) {
    fuzz::require_line(config.error(), "generation_config.json");
    return 0;
  }
  for (const int32_t id : config->eos_tokens) {
    fuzz::require(id >= 0 && id < config->vocab_size, "tokens of end");
  }
  return 0;
}
