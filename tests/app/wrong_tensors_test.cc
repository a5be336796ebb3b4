// A tiny model of each family whose tensors are not those that its config.json describes: verify
// ends with 3 and names the tensor, and run with 1 and one line that names it.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/process.h"
#include "support/family_models.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

using testing::FamilyModel;
using Tensors = std::vector<TensorDeclaration>;

class WrongTensors : public ::testing::TestWithParam<FamilyModel> {
 protected:
  void SetUp() override {
    ASSERT_NE(GetParam().shape, nullptr) << "no tiny shape fits this type";
    weights_ = testing::weights_of(GetParam());
    tensors_ = testing::declarations(weights_);
  }

  ProcessResult run_on(const std::vector<std::string>& arguments) {
    testing::write_family_model(GetParam(), weights_, tensors_, dir_);
    return run_program(arguments);
  }
  ProcessResult verify() { return run_on({"verify", dir_.path().string()}); }

  void expect_named(const std::string& name) {
    const ProcessResult verified = verify();
    EXPECT_EQ(verified.exit_code, 3) << verified.out << verified.err;
    EXPECT_NE(verified.out.find(name), std::string::npos) << name << "\n" << verified.out;
  }

  /// A matrix of a layer, the first one that is not square.
  Tensors::iterator matrix() {
    return std::ranges::find_if(tensors_, [](const TensorDeclaration& tensor) {
      return tensor.name.find("layers.") != std::string::npos && tensor.shape.size() == 2 &&
             tensor.shape[0] != tensor.shape[1];
    });
  }

  TempDir dir_;
  std::vector<SynthTensor> weights_;
  Tensors tensors_;
};

TEST_P(WrongTensors, none_are_found_in_a_sound_model) {
  const ProcessResult verified = verify();
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
}

TEST_P(WrongTensors, missing_are_named) {
  const auto missing = matrix();
  ASSERT_NE(missing, tensors_.end());
  const std::string module = missing->name.substr(0, missing->name.rfind(".weight"));
  tensors_.erase(missing);
  expect_named(module);
  const ProcessResult run = run_on({"run", dir_.path().string(), "-p", "a", "-n", "1"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
  EXPECT_NE(run.err.find(module), std::string::npos) << module << "\n" << run.err;
}

TEST_P(WrongTensors, surplus_are_named) {
  const std::string beside = matrix()->name;
  const std::string layer = beside.substr(0, beside.find('.', beside.find("layers.") + 7) + 1);
  tensors_.push_back({layer + "surplus.weight", DType::kBF16, {32}});
  expect_named(layer + "surplus");
}

TEST_P(WrongTensors, transposed_are_named) {
  const auto transposed = matrix();
  std::swap(transposed->shape[0], transposed->shape[1]);
  expect_named(transposed->name.substr(0, transposed->name.rfind(".weight")));
}

/// Read as a stack of one expert, whose inputs come first, it would be transposed: of a square one
/// no other size says so.
TEST_P(WrongTensors, with_a_dimension_more_are_named) {
  const auto wrong = std::ranges::find_if(tensors_, [](const TensorDeclaration& tensor) {
    return tensor.name.ends_with("o_proj.weight") && tensor.shape.size() == 2;
  });
  const auto chosen = wrong == tensors_.end() ? matrix() : wrong;
  chosen->shape.insert(chosen->shape.begin(), 1);
  const std::string module = chosen->name.substr(0, chosen->name.rfind(".weight"));
  expect_named(module);
  const ProcessResult run = run_on({"run", dir_.path().string(), "-p", "a", "-n", "1"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_NE(run.err.find(module), std::string::npos) << module << "\n" << run.err;
}

/// Those that have the config of a text model inside.
std::vector<FamilyModel> wrapped_models() {
  std::vector<FamilyModel> models = testing::family_models();
  std::erase_if(models,
                [](const FamilyModel& model) { return !model.config.contains("text_config"); });
  return models;
}

class Towers : public WrongTensors {};

/// With the names that transformers and vendors give them.
TEST_P(Towers, are_noted_and_left) {
  const std::vector<std::string> run = {"run", dir_.path().string(), "-p", "a", "-n", "4", "--temp",
                                        "0"};
  const ProcessResult text_alone = run_on(run);
  ASSERT_EQ(text_alone.exit_code, 0) << text_alone.err;
  for (const std::string prefix : {"", "model."}) {
    for (const std::string part :
         {"visual.blocks.0.attn.proj", "vision_tower.encoder.layers.0.mlp.fc1",
          "vision_model.model.layers.0.mlp.fc1", "multi_modal_projector.linear_1",
          "mm_projector.proj.0", "embed_vision.embedding_projection"}) {
      tensors_.push_back({prefix + part + ".weight", DType::kBF16, {8, 8}});
    }
  }
  const ProcessResult verified = verify();
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  EXPECT_NE(verified.out.find("verify.unread"), std::string::npos) << verified.out;
  EXPECT_EQ(run_on(run).out, text_alone.out);
}

INSTANTIATE_TEST_SUITE_P(Wrappers, Towers, ::testing::ValuesIn(wrapped_models()), NamedByValue());

INSTANTIATE_TEST_SUITE_P(Families, WrongTensors, ::testing::ValuesIn(testing::family_models()),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
