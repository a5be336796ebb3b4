// One line for a layout, not one for each tensor.

#include <gtest/gtest.h>

#include "models/checkpoint.h"
#include "models/model.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "verify/sound_models.h"

namespace subbyte::conformance {
namespace {

using Lines = std::vector<std::string>;

/// A model whose tensors with `part` in their names have `other` there.
TinyModel renamed(TinyModel model, const std::string& part, const std::string& other) {
  for (TestTensor& tensor : model.tensors) {
    const auto at = tensor.name.find(part);
    if (at != std::string::npos) tensor.name.replace(at, part.size(), other);
  }
  return model;
}

TEST(Layouts, that_are_known_and_not_read_are_one_line) {
  const TinyModel dense = sound_dense();
  const std::pair<TinyModel, const char*> models[] = {
      {renamed(dense, "self_attn.q_proj.", "self_attn.q_proj.base_layer."), "adapter around them"},
      {renamed(dense, "mlp.", "block_sparse_moe.experts.0."), "of a block_sparse_moe"},
      {renamed(dense, "self_attn.q_proj.", "self_attn.W_pack."), "as Baichuan joins them"},
      {renamed(dense, "lm_head.", "embed_out."), "an lm_head as GPT-NeoX names it"},
      {renamed(dense, "mlp.up_proj.", "mlp.linear_fc1."), "as Megatron names them"}};
  const auto backend = testing::make_test_backend(1);
  for (const auto& [model, what] : models) {
    const TempDir dir;
    write_model(model, dir);
    const VerifyReport report = verify_path(dir.path());
    ASSERT_EQ(report.count(Severity::kError), 1) << what << " " << lines(report).back();
    EXPECT_EQ(report.findings[0].code, "model.layout");
    EXPECT_NE(report.findings[0].found.find(what), std::string::npos) << report.findings[0].found;
    const Status loaded = check_loading(dir.path(), *backend, Reads::kHeaders);
    EXPECT_EQ(loaded.error().code, "model.layout") << what;
    EXPECT_NE(loaded.error().message.find(what), std::string::npos) << loaded.error().message;
  }
}

TEST(Layouts, that_nobody_knows_are_one_line_for_a_kind) {
  TinyModel model = sound_delta_net();  // four layers
  model = renamed(model, "mlp.down_proj.", "mlp.out.");
  EXPECT_EQ(lines(verify_model(model)),
            (Lines{"error import.missing model.layers.0.mlp.down_proj",
                   "error model.surplus model.layers.0.mlp.out.weight"}));
}

}  // namespace
}  // namespace subbyte::conformance
