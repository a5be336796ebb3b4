#include "models/gguf_config.h"

#include <gtest/gtest.h>

#include <functional>

#include "models/gguf_tensors.h"
#include "support/gguf_bytes.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

constexpr uint32_t kF32 = 0;
constexpr uint32_t kBool = 7;
constexpr uint32_t kI64 = 11;

/// Of layers with two heads of 4.
GgufBytes model_of(const std::string& architecture, uint32_t layers = 1) {
  GgufBytes file;
  const auto number = [&](const char* name, uint32_t value) {
    file.u32(architecture + "." + name, value);
  };
  file.text("general.architecture", architecture);
  number("embedding_length", 8);
  number("block_count", layers);
  number("attention.head_count", 2);
  number("context_length", 64);
  number("feed_forward_length", 16);
  file.f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5F);
  file.tensor("token_embd.weight", {8, 4}, kF32, 128);
  file.tensor("blk.0.attn_q.weight", {8, 8}, kF32, 256);
  return file;
}

GgufModel opened(const TempDir& folder, const GgufBytes& file) {
  auto model = GgufModel::open(folder.write("m.gguf", file.bytes()));
  EXPECT_TRUE(model.ok()) << model.error().message;
  return *std::move(model);
}

Result<json::Value> config_of(const GgufBytes& file) {
  const TempDir folder;
  const GgufModel model = opened(folder, file);
  SUBBYTE_TRY(const GgufArchitecture* const architecture, gguf_architecture_of(model.keys()));
  return gguf_config(model, *architecture);
}

Status tensors_of(const GgufBytes& file) {
  const TempDir folder;
  const GgufModel model = opened(folder, file);
  SUBBYTE_TRY(const GgufArchitecture* const architecture, gguf_architecture_of(model.keys()));
  const auto tensors = gguf_tensors(model, *architecture);
  return tensors.ok() ? Status() : Status(tensors.error());
}

TEST(GgufConfig, a_factor_without_a_type_is_linear) {
  GgufBytes file = model_of("llama");
  file.f32("llama.rope.scaling.factor", 1);
  const auto usual = config_of(file);
  ASSERT_TRUE(usual.ok()) << usual.error().message;
  EXPECT_FALSE(usual->contains("rope_scaling"));
  file = model_of("llama");
  file.f32("llama.rope.scaling.factor", 2);
  const auto scaled = config_of(file);
  ASSERT_TRUE(scaled.ok()) << scaled.error().message;
  EXPECT_EQ(scaled->at("rope_scaling").at("rope_type"), "linear");
  EXPECT_EQ(scaled->at("rope_scaling").at("factor"), 2.0);
}

/// As OLMo 3 has it, which llama.cpp works out of the factor.
TEST(GgufConfig, yarn_has_a_factor_of_attention) {
  GgufBytes file = model_of("olmo2");
  file.text("olmo2.rope.scaling.type", "yarn");
  file.f32("olmo2.rope.scaling.factor", 8);
  file.u32("olmo2.rope.scaling.original_context_length", 32);
  file.f32("olmo2.rope.scaling.yarn_attn_factor", 1.25F);
  file.f32("olmo2.rope.scaling.yarn_ext_factor", 1);
  const auto scaled = config_of(file);
  ASSERT_TRUE(scaled.ok()) << scaled.error().message;
  EXPECT_EQ(scaled->at("rope_scaling").at("attention_factor"), 1.25);
}

/// The families of transformers have a half.
TEST(GgufConfig, all_of_a_head_turns_where_no_key_says_less) {
  for (const char* const name : {"glm4", "nemotron"}) {
    GgufBytes file = model_of(name);
    file.f32(std::string(name) + ".attention.layer_norm_epsilon", 1e-5F);
    auto config = config_of(file);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->at("partial_rotary_factor"), 1.0);
    file.u32(std::string(name) + ".rope.dimension_count", 2);
    config = config_of(file);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->at("partial_rotary_factor"), 0.5);
  }
}

/// As llama.cpp, which has no group then; transformers has eight.
TEST(GgufConfig, experts_are_in_one_group_where_no_key_says_more) {
  GgufBytes file = model_of("deepseek2");
  for (const auto& [name, number] : {std::pair("attention.kv_lora_rank", 4),
                                     {"attention.key_length_mla", 8},
                                     {"attention.value_length_mla", 4},
                                     {"rope.dimension_count", 4},
                                     {"expert_count", 8},
                                     {"expert_used_count", 2},
                                     {"expert_gating_func", 2}}) {
    file.u32(std::string("deepseek2.") + name, static_cast<uint32_t>(number));
  }
  const auto config = config_of(file);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->at("n_group"), 1);
  EXPECT_EQ(config->at("topk_group"), 1);
}

/// Where config.json's default may be another number than the file was made with.
TEST(GgufConfig, keys_without_a_number_of_llama_cpp_must_be_there) {
  const auto expect_missing = [](const GgufBytes& file, const std::string& name) {
    const auto config = config_of(file);
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_EQ(config.error().code, "gguf.value");
    EXPECT_NE(config.error().message.find(name), std::string::npos) << config.error().message;
  };
  GgufBytes experts = model_of("qwen3moe");
  experts.u32("qwen3moe.expert_count", 4);
  expect_missing(experts, "qwen3moe.expert_used_count");
  GgufBytes uncounted = model_of("qwen3moe");
  uncounted.tensor("blk.0.ffn_gate_inp.weight", {8, 128}, kF32, 4096);
  expect_missing(uncounted, "qwen3moe.expert_used_count");
  GgufBytes granite = model_of("granite");
  granite.f32("granite.logit_scale", 4);
  expect_missing(granite, "granite.attention.scale");
  expect_missing(model_of("cohere2"), "cohere2.attention.layer_norm_epsilon");
  expect_missing(model_of("gpt-oss"), "gpt-oss.attention.sliding_window");
}

/// Of a head of 4 two pairs turn, or one where a key says so.
TEST(GgufConfig, sections_have_all_pairs_that_turn) {
  struct Row {
    std::vector<int32_t> sections;
    uint32_t turning;
    bool is_read;
  };
  const Row kRows[] = {{{1, 1, 0, 0}, 4, true},  {{2, 2, 2, 0}, 4, true},  {{0, 0, 0, 0}, 4, true},
                       {{1, 0, 0, 0}, 2, true},  {{1, 0, 0, 0}, 4, false}, {{1, 0, 0, 1}, 4, false},
                       {{0, 0, 0, 2}, 2, false}, {{-1, 1, 0, 0}, 4, false}};
  for (const Row& row : kRows) {
    GgufBytes file = model_of("qwen3vl");
    file.u32("qwen3vl.rope.dimension_count", row.turning);
    file.numbers("qwen3vl.rope.dimension_sections", 5, row.sections);
    const auto config = config_of(file);
    EXPECT_EQ(config.ok(), row.is_read) << row.sections[0] << row.sections[1] << row.sections[3];
    if (config.ok()) continue;
    EXPECT_NE(config.error().message.find("qwen3vl.rope.dimension_sections"), std::string::npos)
        << config.error().message;
  }
}

/// llama.cpp takes 8192 whatever the number is, but for 0, which models without chunks have.
TEST(GgufConfig, chunks_of_llama_4_are_of_one_size) {
  const auto of_window = [](uint32_t window) {
    GgufBytes file = model_of("llama4");
    file.u32("llama4.expert_count", 4);
    file.u32("llama4.expert_used_count", 1);
    file.u32("llama4.interleave_moe_layer_step", 1);
    file.u32("llama4.attention.sliding_window", window);
    return config_of(file);
  };
  const auto usual = of_window(8192);
  ASSERT_TRUE(usual.ok()) << usual.error().message;
  EXPECT_EQ(usual->at("attention_chunk_size"), 8192);
  for (const uint32_t window : {0, 4096}) {
    const auto config = of_window(window);
    ASSERT_FALSE(config.ok()) << window;
    EXPECT_NE(config.error().message.find("llama4.attention.sliding_window"), std::string::npos);
  }
}

/// Llama 4 Scout, whose two limits are the same: frequencies with more than one turn stay.
TEST(GgufConfig, factors_of_frequencies_may_have_one_step) {
  GgufBytes file = model_of("llama");
  file.f32("llama.rope.freq_base", 500000);
  file.u32("llama.attention.key_length", 16);
  file.tensor("rope_freqs.weight", {8}, kF32, 32);
  constexpr float kFactors[] = {1, 1, 1, 1, 1, 16, 16, 16};
  std::memcpy(file.data.data() + file.data.size() - 32, kFactors, 32);
  auto config = config_of(file);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->at("rope_scaling").at("factor"), 16.0);
  EXPECT_EQ(config->at("rope_scaling").at("low_freq_factor"), 1.0);
  EXPECT_EQ(config->at("rope_scaling").at("high_freq_factor"), 1.0);
  const float odd = 16;
  std::memcpy(file.data.data() + file.data.size() - 32, &odd, 4);
  EXPECT_FALSE(config_of(file).ok());
}

TEST(GgufConfig, refuses_what_would_change_numbers) {
  struct Bad {
    std::string architecture;
    std::function<void(GgufBytes&)> add;
    std::string named;
  };
  const std::vector<Bad> all = {
      {"llama", [](GgufBytes& f) { f.f32("llama.rope.scale_linear", 4); }, "rope.scale_linear"},
      {"llama", [](GgufBytes& f) { f.f32("llama.rope.scaling.attn_factor", 2); }, "attn_factor"},
      {"llama", [](GgufBytes& f) { f.f32("llama.rope.scaling.yarn_ext_factor", 0.5F); },
       "yarn_ext_factor"},
      {"llama", [](GgufBytes& f) { f.key("llama.attention.causal", kBool, raw(uint8_t{0})); },
       "attention.causal"},
      {"llama", [](GgufBytes& f) { f.key("llama.use_parallel_residual", kBool, raw(uint8_t{1})); },
       "use_parallel_residual"},
      {"gemma2", [](GgufBytes& f) { f.u32("gemma2.attention.sliding_window_pattern", 2); },
       "sliding_window_pattern"},
      {"gpt-oss", [](GgufBytes& f) { f.f32("gpt-oss.rope.freq_base_swa", 100); }, "freq_base_swa"},
      {"llama",
       [](GgufBytes& f) {
         f.text("llama.rope.scaling.type", "linear");
         f.f32("llama.rope.scaling.factor", 2);
         f.tensor("rope_freqs.weight", {2}, kF32, 8);
       },
       "rope_freqs"},
      {"phi3", [](GgufBytes& f) { f.text("phi3.rope.scaling.type", "longrope"); },
       "rope_factors_long"},
      {"phi3", [](GgufBytes& f) { f.tensor("rope_factors_long.weight", {2}, kF32, 8); },
       "rope_factors_short"},
      {"llama", [](GgufBytes& f) { f.key("llama.vocab_size", kI64, raw(int64_t{1} << 62)); }, ""},
      {"llama", [](GgufBytes& f) { f.key("llama.attention.head_count_kv", kI64, raw(INT64_MAX)); },
       "attention.head_count_kv"}};
  for (const Bad& bad : all) {
    GgufBytes file = model_of(bad.architecture);
    bad.add(file);
    // Factors have to be above 0 to be looked at.
    for (std::size_t i = file.data.size() - 32; file.tensors.size() > 2 && i < file.data.size();
         i += 4) {
      const float one = 1;
      std::memcpy(&file.data[i], &one, 4);
    }
    const auto config = config_of(file);
    if (bad.named.empty()) {
      EXPECT_TRUE(config.ok()) << config.error().message;
      continue;
    }
    ASSERT_FALSE(config.ok()) << bad.named;
    EXPECT_NE(config.error().message.find(bad.named), std::string::npos) << config.error().message;
  }
}

/// As llama.cpp has it.
TEST(GgufConfig, lists_have_a_number_for_each_layer) {
  const auto code_with = [](std::initializer_list<uint32_t> numbers) {
    GgufBytes file = model_of("qwen3", 2);
    std::string list = raw(uint32_t{4}) + raw(uint64_t{numbers.size()});
    for (const uint32_t number : numbers) list += raw(number);
    file.key("qwen3.attention.head_count_kv", 9, list);
    const auto config = config_of(file);
    return config.ok() ? std::string() : std::string(config.error().code);
  };
  EXPECT_EQ(code_with({2, 2}), "");
  EXPECT_EQ(code_with({2}), "gguf.value");
  EXPECT_EQ(code_with({2, 2, 2}), "gguf.value");
}

TEST(GgufTensors, refuse_heads_that_the_rows_do_not_have) {
  for (const int64_t heads : {int64_t{0}, int64_t{3}, int64_t{8}, int64_t{1} << 30}) {
    GgufBytes file = model_of("llama");
    file.key("llama.attention.head_count_kv", kI64, raw(heads));
    file.tensor("blk.0.attn_k.weight", {8, 8}, kF32, 256);
    const Status status = tensors_of(file);
    ASSERT_FALSE(status.ok()) << heads;
    EXPECT_EQ(status.error().code, "gguf.tensor");
  }
  GgufBytes file = model_of("llama");
  file.key("llama.attention.head_count_kv", kI64, raw(INT64_MAX));
  EXPECT_EQ(tensors_of(file).error().code, "gguf.value");
}

TEST(GgufTensors, refuse_value_heads_that_the_rows_do_not_have) {
  GgufBytes file = model_of("qwen35");
  file.u32("qwen35.ssm.group_count", 1);
  file.u32("qwen35.ssm.state_size", 1);
  file.u32("qwen35.ssm.time_step_rank", 1 << 24);
  file.tensor("blk.0.attn_qkv.weight", {8, 16}, kF32, 512);
  EXPECT_EQ(tensors_of(file).error().code, "gguf.tensor");
}

TEST(GgufTensors, of_layers_beyond_the_blocks_are_refused_unless_they_draft) {
  GgufBytes file = model_of("qwen3");
  file.tensor("blk.1.attn_norm.weight", {8}, kF32, 32);
  const Status status = tensors_of(file);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "gguf.tensor");
  EXPECT_NE(status.error().message.find("expected a layer below 1 (block_count)"),
            std::string::npos)
      << status.error().message;
  GgufBytes drafting = model_of("glm4moe", 2);
  drafting.u32("glm4moe.nextn_predict_layers", 1);
  drafting.tensor("blk.1.nextn.eh_proj.weight", {8, 8}, kF32, 256);
  EXPECT_TRUE(tensors_of(drafting).ok()) << tensors_of(drafting).error().message;
}

/// ggml has four dimensions of each tensor, and writers differ in those of 1.
TEST(GgufTensors, have_no_last_dimensions_of_one) {
  GgufBytes file = model_of("qwen3");
  file.tensor("blk.0.ffn_up.weight", {8, 16, 1, 1}, kF32, 512);
  const TempDir folder;
  const GgufModel model = opened(folder, file);
  const auto tensors = gguf_tensors(model, **gguf_architecture_of(model.keys()));
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  const FileTensor* const found = tensors->find("model.layers.0.mlp.up_proj.weight");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(std::vector<uint64_t>(found->shape.begin(), found->shape.end()),
            (std::vector<uint64_t>{16, 8}));
  GgufBytes stack = model_of("qwen3");
  stack.tensor("blk.0.ffn_up.weight", {8, 8, 2}, kF32, 512);
  const Status status = tensors_of(stack);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("expected 2 dimensions, found 3"), std::string::npos)
      << status.error().message;
}

TEST(GgufTensors, have_the_factors_of_matrices_and_leave_those_of_activations) {
  GgufBytes file = model_of("llama");
  file.tensor("blk.0.attn_output.weight", {8, 8}, kF32, 256);
  file.tensor("blk.0.attn_output.scale", {1}, kF32, 4);
  file.tensor("blk.0.attn_output.input_scale", {1}, kF32, 4);
  const TempDir folder;
  const GgufModel model = opened(folder, file);
  const auto tensors = gguf_tensors(model, **gguf_architecture_of(model.keys()));
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  EXPECT_NE(tensors->find("model.layers.0.self_attn.o_proj.scale"), nullptr);
  EXPECT_EQ(tensors->find("model.layers.0.self_attn.o_proj.input_scale"), nullptr);
}

}  // namespace
}  // namespace subbyte
