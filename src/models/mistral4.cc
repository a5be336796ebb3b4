// Mistral Small 4: transformers' Mistral4ForCausalLM. Latent attention whose queries grow with
// their positions; after it the first layers, usually none, have a dense block, the others a
// mixture whose router takes a softmax, beside an expert that every token goes to.

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "models/gguf_config.h"
#include "models/gguf_rope.h"
#include "models/latent_config.h"
#include "models/model_family.h"
#include "models/rope_config.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "mistral4",
                                      .architecture = "Mistral4ForCausalLM",
                                      .wrapper = "mistral3",
                                      .wrapper_ties = true,
                                      .defaults = {.intermediate_size = 12288,
                                                   .kv_heads = 32,
                                                   .head_dim = 64,
                                                   .head_dim_key = "qk_rope_head_dim",
                                                   .max_positions = 1048576,
                                                   .rope_section = R"({"rope_type": "yarn",
    "rope_theta": 10000.0, "factor": 128.0, "original_max_position_embeddings": 8192,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1})",
                                                   .eos = 2}}};

constexpr std::string_view kGgufBeta = "attention.temperature_scale";
constexpr std::string_view kGgufStep = "attention.temperature_length";
constexpr auto kGgufKeys = [] {
  std::array<GgufKeyRule, std::size(kLatentGgufKeys) + 2> all;
  all[0] = {kGgufBeta, "rope_parameters", "", kGgufByFamily};
  all[1] = {kGgufStep, "rope_parameters", "", kGgufByFamily};
  std::ranges::copy(kLatentGgufKeys, all.begin() + 2);
  return all;
}();

/// Queries grow after as many positions as YaRN counts.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  const GgufFile& file = model.keys();
  SUBBYTE_CHECK(add_latent_sizes(file, config));
  SUBBYTE_TRY(const auto beta, gguf_number(file, kGgufBeta));
  SUBBYTE_TRY(const auto step, gguf_integer(file, kGgufStep));
  SUBBYTE_TRY(const auto original, gguf_integer(file, "rope.scaling.original_context_length"));
  if (beta.value_or(0) == 0 || step == original) return add_growing_rope(file, config);
  return file.error("gguf.value", gguf_key_in(file, kGgufStep), "what YaRN counts from");
}

void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys) {
  const QueryScale& scale = model.own.as<LatentConfig>().query_scale;
  add_latent_gguf_keys(architecture, model, keys);
  keys.number(architecture.key(kGgufBeta), scale.beta);
  keys.whole(architecture.key(kGgufStep), static_cast<uint32_t>(scale.step));
}

constexpr GgufArchitecture kGguf[] = {{.name = "mistral4",
                                       .model_type = "mistral4",
                                       .keys = kGgufKeys,
                                       .tensors = kLatentGgufTensors,
                                       .complete = complete_gguf,
                                       .add_keys = add_gguf_keys,
                                       .yarn_log = kLatentYarnLog}};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "rope_parameters", kComputed, "",
                       "absent: YaRN of 8,192 positions times 128"),
    SUBBYTE_CONFIG_KEY("", "topk_method", kIgnored, "", "groups by their two best experts"),
    SUBBYTE_CONFIG_KEY("", "scoring_func", kRefused, "\"softmax\"", "other scores of experts"),
};

constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("mscale_all_dim", kComputed, "", "of YaRN; of the scale of scores, too"),
    SUBBYTE_ROPE_KEY("llama_4_scaling_beta", kComputed, "",
                     "queries are times 1 + beta ln(1 + floor(position / "
                     "original_max_position_embeddings))"),
    SUBBYTE_ROPE_KEY("max_position_embeddings", kIgnored, "", "that beside the section counts"),
    SUBBYTE_ROPE_KEY("partial_rotary_factor", kIgnored, "", "qk_rope_head_dim says it"),
};

Status read(const json::Object& config, ModelConfig& model) {
  LatentConfig latent = {.query_rank = 1024, .rank = 256, .nope = 64, .value = 128};
  latent.experts = {.count = 128, .per_token = 4, .inner = 2048, .shared_inner = 1};
  latent.experts.routing = {.added = 1e-20f, .groups_by_two = true};
  SUBBYTE_CHECK(read_latent(config, model, latent));
  SUBBYTE_TRY(latent.query_scale, read_query_scale(config, model));
  SUBBYTE_TRY(latent.experts.layers,
              read_layers_after(config, "first_k_dense_replace", 0, model.num_layers));
  model.own = FamilyConfig(std::move(latent));
  return {};
}

// Sources: the class in transformers, whose defaults are mistralai/Mistral-Small-4-119B-2603; tiny,
// and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"mistral4", "tiny", 256, 512, 2, 4, 4, 32, 0, 512, 480, 2048, false, 8, 2, 128},
    {"mistral4", "119b", 4096, 12288, 36, 32, 32, 64, 0, 131072, 131000, 1048576, false,
     128, 4, 2048},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    kLatentShape,
    {"", "", R"({"q_lora_rank": 1024, "kv_lora_rank": 256, "qk_nope_head_dim": 64,
                 "routed_scaling_factor": 1.0, "first_k_dense_replace": 0,
                 "rope_theta": "$none",
                 "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 128.0,
                                     "llama_4_scaling_beta": 0.1, "mscale": 1.0,
                                     "mscale_all_dim": 1.0, "rope_theta": 10000.0,
                                     "original_max_position_embeddings": 8192,
                                     "rope_type": "yarn"}})"},
    kTinyLatentShape,
};

}  // namespace

const ModelFamily mistral4_family = {.model_types = kModelTypes,
                                     .gguf = kGguf,
                                     .keys = kKeys,
                                     .shared_keys = {kRoutedExpertKeys, kLatentKeys},
                                     .rope_keys = kRopeKeys,
                                     .read = read,
                                     .record = record_latent_step,
                                     .shapes = kShapes,
                                     .shape_keys = kShapeKeys};

}  // namespace subbyte
