// A comparison that cannot fail proves nothing. Each test here damages the weights of a golden in
// one of the ways in which an importer can be wrong, and the logits must leave the tolerance of
// golden_models_test.cc; the same copy without damage must stay inside.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

#include "checkpoints/containers/tensor_source.h"
#include "models/model.h"
#include "models/model_config.h"
#include "support/golden_bound.h"
#include "support/goldens.h"
#include "support/temp_dir.h"
#include "support/tensors_of_file.h"
#include "support/test_context.h"
#include "support/test_tensors.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

using testing::golden_folder;

/// Changes one tensor in place.
using Damage = std::function<void(TestTensor& tensor)>;

class SeededFaults : public ::testing::Test {
 protected:
  /// Copies a golden into dir_ with every tensor damaged whose name ends with `suffix`. At least
  /// one byte must change when there is damage.
  void copy(const char* golden, std::string_view suffix, const Damage& damage) {
    const fs::path from = golden_folder(golden);
    fs::copy_file(from / "config.json", dir_ / "config.json", fs::copy_options::overwrite_existing);
    std::vector<TestTensor> tensors = read_tensors(from / "model.safetensors");
    bool changed = !damage;
    for (TestTensor& tensor : tensors) {
      if (!damage || !tensor.name.ends_with(suffix)) continue;
      const std::string before = tensor.bytes;
      damage(tensor);
      changed = changed || tensor.bytes != before;
    }
    EXPECT_TRUE(changed) << golden << " has nothing to damage at " << suffix;
    dir_.write("model.safetensors", tensor_file(tensors));
  }

  /// The logits of the copy beside those of the golden.
  struct Difference {
    double worst = NAN;
    double tolerance = 0;  // of golden_models_test.cc
    bool is_seen() const { return !(worst <= tolerance); }
  };
  Difference difference(const char* golden, std::string_view suffix, const Damage& damage) {
    copy(golden, suffix, damage);
    return difference_from(golden);
  }

  Difference difference_from(const char* golden) {
    auto model = load_model(dir_.path(), *backend_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (!model.ok()) return {};
    const std::vector<TestTensor> expected =
        read_tensors(golden_folder(golden) / "reference.safetensors");
    const auto find = [&](std::string_view name) -> const TestTensor& {
      return *std::ranges::find(expected, name, &TestTensor::name);
    };
    const TestTensor& ids = find("prompt1.ids");
    const TestTensor& logits = find("prompt1.logits");
    std::vector<int32_t> tokens;
    for (std::size_t i = 0; i < ids.bytes.size() / 4; ++i) tokens.push_back(ids.at<int32_t>(i));
    const std::vector<float> found = testing::logits_of(**model, *backend_, tokens);
    std::vector<float> reference(logits.bytes.size() / 4);
    for (std::size_t i = 0; i < reference.size(); ++i) reference[i] = logits.at<float>(i);
    EXPECT_EQ(found.size(), reference.size());
    Difference result = {0, testing::golden_tolerance((*model)->config(), reference, rounding())};
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double one = std::abs(double{found[i]} - reference[i]);
      result.worst = one <= result.worst ? result.worst : one;  // NaN becomes the worst
    }
    return result;
  }

  testing::Rounding rounding() const {
    return testing::rounding_of(testing::isa_of(*backend_), Activations::kF32, true);
  }

  /// The difference that was seen.
  double expect_seen(const char* golden, std::string_view suffix, const Damage& damage) {
    const Difference found = difference(golden, suffix, damage);
    EXPECT_TRUE(found.is_seen()) << golden << " " << suffix << ": " << found.worst << " of "
                                 << found.tolerance;
    RecordProperty(std::string(golden) + std::string(suffix), std::to_string(found.worst));
    return found.worst;
  }

  TempDir dir_;
  std::unique_ptr<Backend> backend_ = testing::make_test_backend(1);
};

constexpr const char* kGptq[] = {"qwen3-gptq-v1", "qwen3-gptq-v2", "qwen3-gptq-act-order"};

void swap_nibbles(TestTensor& tensor) {
  for (char& byte : tensor.bytes) {
    const auto code = static_cast<uint8_t>(byte);
    byte = static_cast<char>(code << 4 | code >> 4);
  }
}

/// Every 4-bit zero point one higher, 15 becoming 0 as a careless reader would have it.
void raise_zeros(TestTensor& tensor) {
  for (std::size_t i = 0; i < tensor.bytes.size() / 4; ++i) {
    uint32_t raised = 0;
    for (int shift = 0; shift < 32; shift += 4) {
      raised |= (((tensor.at<uint32_t>(i) >> shift) + 1) & 0xFu) << shift;
    }
    tensor.set(i, raised);
  }
}

/// Along the last dimension, each element takes the place of its neighbour.
void rotate_rows(TestTensor& tensor) {
  const std::size_t row = tensor.shape.back() * static_cast<std::size_t>(bits(tensor.dtype)) / 8;
  const std::size_t width = static_cast<std::size_t>(bits(tensor.dtype)) / 8;
  for (std::size_t at = 0; at < tensor.bytes.size(); at += row) {
    const auto begin = tensor.bytes.begin() + static_cast<std::ptrdiff_t>(at);
    std::rotate(begin, begin + static_cast<std::ptrdiff_t>(width),
                begin + static_cast<std::ptrdiff_t>(row));
  }
}

/// The last `count` of the slices along the first dimension become zero.
void drop_last(TestTensor& tensor, std::size_t count) {
  const std::size_t slice = tensor.bytes.size() / tensor.shape.front();
  std::fill_n(tensor.bytes.end() - static_cast<std::ptrdiff_t>(count * slice), count * slice, '\0');
}

/// The last 32 inputs of every row of every expert become zero.
void drop_last_block(TestTensor& blocks) {
  const std::size_t groups = blocks.shape[2];
  for (std::size_t row = 0; row < blocks.shape[0] * blocks.shape[1]; ++row) {
    std::fill_n(blocks.bytes.begin() + static_cast<std::ptrdiff_t>(((row + 1) * groups - 1) * 16),
                16, '\0');
  }
}

TEST_F(SeededFaults, an_undamaged_copy_stays_inside) {
  for (const char* golden : testing::goldens(testing::kEveryWay)) {
    EXPECT_FALSE(difference(golden, "", nullptr).is_seen()) << golden;
  }
}

/// In models and tokens of any golden, on any instruction set.
TEST_F(SeededFaults, the_bound_is_below_an_error_of_1e_3) {
  for (const testing::Golden& golden : testing::kGoldenModels) {
    const fs::path folder = golden_folder(golden.name);
    if (!fs::exists(folder / "reference.safetensors")) continue;
    const auto config = read_model_config(folder);
    ASSERT_TRUE(config.ok()) << config.error().message;
    for (const TestTensor& tensor : read_tensors(folder / "reference.safetensors")) {
      if (!tensor.name.ends_with(".logits")) continue;
      std::vector<float> logits(tensor.bytes.size() / 4);
      std::memcpy(logits.data(), tensor.bytes.data(), tensor.bytes.size());
      for (const char* isa : {"scalar", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx"}) {
        const testing::Rounding rounds = testing::rounding_of(isa, Activations::kF32, true);
        const double tolerance = testing::golden_tolerance(*config, logits, rounds);
        EXPECT_LT(tolerance, std::string_view(isa) == "amx" ? 4e-4 : 5e-5) << golden.name << isa;
      }
    }
  }
}

/// The last bit of an eighth of the scales of one matrix: the logits are off by some 1e-3.
TEST_F(SeededFaults, a_small_fault_is_seen) {
  const auto flip = [](TestTensor& tensor) {
    for (std::size_t i = 0; i < tensor.bytes.size() / 16; ++i) {
      tensor.set(i, static_cast<uint16_t>(tensor.at<uint16_t>(i) ^ 1));
    }
  };
  for (const char* golden : {"qwen3-awq", "qwen3-gptq-v1", "qwen3-gptq-act-order"}) {
    EXPECT_LT(expect_seen(golden, "layers.0.self_attn.o_proj.scales", flip), 2e-3) << golden;
  }
}

TEST_F(SeededFaults, swapped_nibbles_are_seen) {
  expect_seen("qwen3-awq", "down_proj.qweight", swap_nibbles);
  for (const char* golden : kGptq) expect_seen(golden, "down_proj.qweight", swap_nibbles);
  expect_seen("gpt-oss-mxfp4", "layers.2.mlp.experts.down_proj_blocks", swap_nibbles);
}

TEST_F(SeededFaults, zero_points_off_by_one_are_seen) {
  expect_seen("qwen3-awq", "v_proj.qzeros", raise_zeros);
  expect_seen("qwen3-gptq-v1", "v_proj.qzeros", raise_zeros);
  expect_seen("qwen3-gptq-v2", "v_proj.qzeros", raise_zeros);
}

TEST_F(SeededFaults, zero_points_off_by_one_in_a_symmetric_file_are_refused) {
  // Its zero points are all the same, and one more is what the other version would store.
  copy("qwen3-gptq-act-order", "v_proj.qzeros", raise_zeros);
  const auto model = load_model(dir_.path(), *backend_);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, "gptq.version");
  // With one of them elsewhere nothing can be told from the words, and the logits tell.
  expect_seen("qwen3-gptq-act-order", "v_proj.qzeros", [](TestTensor& tensor) {
    raise_zeros(tensor);
    tensor.bytes[0] = '\x77';
  });
}

TEST_F(SeededFaults, the_neighbours_scale_is_seen) {
  expect_seen("qwen3-awq", "o_proj.scales", rotate_rows);
  for (const char* golden : kGptq) expect_seen(golden, "o_proj.scales", rotate_rows);
  expect_seen("gpt-oss-mxfp4", "layers.2.mlp.experts.gate_up_proj_scales", rotate_rows);
}

TEST_F(SeededFaults, a_dropped_tail_is_seen) {
  // AWQ has a row of words for each input, GPTQ one for eight: the last group of 128, or of 32.
  expect_seen("qwen3-awq", "layers.1.mlp.down_proj.qweight",
              [](TestTensor& tensor) { drop_last(tensor, 128); });
  expect_seen("qwen3-gptq-v1", "layers.1.mlp.down_proj.qweight",
              [](TestTensor& tensor) { drop_last(tensor, 16); });
  expect_seen("qwen3-gptq-v2", "layers.1.mlp.down_proj.qweight",
              [](TestTensor& tensor) { drop_last(tensor, 4); });
  expect_seen("qwen3-gptq-act-order", "layers.1.mlp.down_proj.qweight",
              [](TestTensor& tensor) { drop_last(tensor, 16); });
  expect_seen("gpt-oss-mxfp4", "layers.2.mlp.experts.down_proj_blocks", drop_last_block);
}

TEST_F(SeededFaults, a_g_idx_that_is_not_used_is_seen) {
  expect_seen("qwen3-gptq-act-order", "up_proj.g_idx", [](TestTensor& tensor) {
    for (std::size_t k = 0; k < tensor.shape[0]; ++k) {
      tensor.set(k, static_cast<int32_t>(k / 128));
    }
  });
}

TEST_F(SeededFaults, a_config_read_by_the_rule_of_others_is_seen) {
  // GPTQModel let zero points of 0 borrow; transformers before 4.53 let all layers slide.
  for (const auto& [golden, hidden] : {std::pair("gptqmodel-2-bits", "\"meta\""),
                                       {"gptqmodel-3-bits", "\"meta\""},
                                       {"gptqmodel-4-bits", "\"meta\""},
                                       {"qwen3-sliding-4-51", "\"transformers_version\""}}) {
    EXPECT_FALSE(difference(golden, "", nullptr).is_seen()) << golden;
    std::string config = dir_.read("config.json");
    const std::size_t at = config.find(hidden);
    ASSERT_NE(at, std::string::npos) << golden;
    dir_.write("config.json", config.replace(at, 2, "\"_"));
    EXPECT_TRUE(difference_from(golden).is_seen()) << golden;
  }
}

TEST_F(SeededFaults, gate_and_up_exchanged_are_seen) {
  expect_seen("gpt-oss-mxfp4", "layers.1.mlp.experts.gate_up_proj_bias", rotate_rows);
}

TEST_F(SeededFaults, a_scale_one_step_off_is_seen) {
  expect_seen("gpt-oss-mxfp4", "layers.3.mlp.experts.down_proj_scales", [](TestTensor& tensor) {
    for (char& byte : tensor.bytes) ++byte;
  });
}

}  // namespace
}  // namespace subbyte
