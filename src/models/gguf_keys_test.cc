#include "models/gguf_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "models/model_family.h"
#include "support/gguf_bytes.h"

namespace subbyte {
namespace {

using json::KeyUse;

constexpr uint32_t kBool = 7;

const GgufArchitecture& architecture(std::string_view name) {
  for (const ModelFamily* const family : all_families()) {
    const auto found = std::ranges::find(family->gguf, name, &GgufArchitecture::name);
    if (found != family->gguf.end()) return *found;
  }
  ADD_FAILURE() << name;
  std::abort();
}

GgufFile opened(const GgufBytes& made) {
  const std::string bytes = made.bytes();
  auto file = GgufFile::of(MappedFile::of(std::as_bytes(std::span(bytes)), "a.gguf"));
  EXPECT_TRUE(file.ok()) << file.error().message;
  return *std::move(file);
}

TEST(GgufKeys, have_the_verdict_of_their_architecture) {
  struct Row {
    std::string_view architecture, key;
    std::optional<KeyUse> use;
  };
  constexpr Row kRows[] = {
      {"llama", "llama.block_count", KeyUse::kComputed},
      {"llama", "general.alignment", KeyUse::kComputed},
      {"qwen3", "qwen3.expert_count", KeyUse::kRefused},
      {"qwen3moe", "qwen3moe.expert_count", KeyUse::kComputed},
      {"qwen3moe", "llama.expert_count", std::nullopt},
      {"llama", "llama.ssm.conv_kernel", KeyUse::kRefused},
      {"qwen35", "qwen35.ssm.conv_kernel", KeyUse::kComputed},
      {"qwen35", "qwen35.ssm.inner_size", KeyUse::kComputed},
      {"llama", "llama.vocab_size", KeyUse::kIgnored},
      {"llama", "general.base_model.0.name", KeyUse::kIgnored},
      {"llama", "tokenizer.chat_template.tool_use", KeyUse::kComputed},
      {"llama", "general.alignments", std::nullopt},
      {"llama", "llama", std::nullopt},
      {"llama", "llama.", std::nullopt},
      {"llama", "llama.hyper_connection.count", std::nullopt},
  };
  for (const Row& row : kRows) {
    const auto rule = find_gguf_key(architecture(row.architecture), row.key);
    EXPECT_EQ(rule.has_value(), row.use.has_value()) << row.architecture << " " << row.key;
    if (!rule || !row.use) continue;
    EXPECT_EQ(rule->use, *row.use) << row.architecture << " " << row.key;
  }
}

TEST(GgufKeys, that_are_not_computed_may_ask_for_nothing) {
  GgufBytes made;
  made.text("general.architecture", "llama");
  made.f32("llama.attention.scale", 0);
  made.u32("llama.expert_group_count", 1);
  made.f32("general.sampling.xtc_probability", 0);
  made.numbers("tokenizer.ggml.suppress_tokens", 5, std::vector<int32_t>());
  made.key("llama.attention.causal", kBool, raw(uint8_t{1}));
  made.u32("llama.expert_shared_count", 2);
  made.f32("general.sampling.mirostat", 1);
  made.u32("llama.ssm.conv_kernel", 4);
  made.texts("llama.logit_scale", {"a"});
  made.text("llama.of_tomorrow", "a");
  made.tensor("a", {1}, 0, 4);
  std::vector<std::string> refused;
  const GgufFile file = opened(made);
  const Status status = check_gguf_keys(file, architecture("llama"), [&](Status problem) -> Status {
    EXPECT_EQ(problem.error().code, "gguf.value");
    refused.push_back(problem.error().message);
    return {};
  });
  EXPECT_TRUE(status.ok());
  ASSERT_EQ(refused.size(), 4U);
  EXPECT_NE(refused[0].find("llama.expert_shared_count"), std::string::npos);
  EXPECT_NE(refused[1].find("general.sampling.mirostat"), std::string::npos);
  EXPECT_NE(refused[2].find("llama.ssm.conv_kernel"), std::string::npos);
  EXPECT_NE(refused[3].find("llama.logit_scale"), std::string::npos);
  EXPECT_EQ(unknown_gguf_keys(file), std::vector<std::string>{"llama.of_tomorrow"});
}

}  // namespace
}  // namespace subbyte
