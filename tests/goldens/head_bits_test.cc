// Embedding and head quantized while a model is loaded, against a copy of the model whose files
// hold what the quantized numbers stand for: computed here from the formulas of
// quantize/round_to_nearest.h.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/float16.h"
#include "checkpoints/containers/tensor_source.h"
#include "models/model.h"
#include "support/goldens.h"
#include "support/temp_dir.h"
#include "support/tensors_of_file.h"
#include "support/test_context.h"
#include "support/test_names.h"
#include "support/test_tensors.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

enum class Head : uint8_t { kOwn, kTied, kTiedAndStored };

std::ostream& operator<<(std::ostream& out, Head head) {
  return out << (head == Head::kOwn ? "own" : head == Head::kTied ? "tied" : "tied and stored");
}

TestTensor& find(std::vector<TestTensor>& tensors, std::string_view name) {
  return *std::ranges::find(tensors, name, &TestTensor::name);
}

/// (code - zero) * scale for every weight of a table, as F32.
TestTensor dequantized(const TestTensor& table, int bits) {
  const auto cols = static_cast<std::size_t>(table.shape[1]);
  std::size_t group = bits == 4 ? 32 : 128;
  while (cols % group != 0) group /= 2;
  const double q_max = (1 << bits) - 1;
  TestTensor result = filled(table.name, DType::kF32, table.shape, 0.0f);
  for (std::size_t begin = 0; begin < table.shape[0] * cols; begin += group) {
    double low = 0;
    double high = 0;
    for (std::size_t i = begin; i < begin + group; ++i) {
      low = std::min(low, float_at(table, i));
      high = std::max(high, float_at(table, i));
    }
    const double scale = to_float(to_float16(static_cast<float>((high - low) / q_max)));
    const double zero = std::clamp(std::nearbyint(-low / scale), 0.0, q_max);
    for (std::size_t i = begin; i < begin + group; ++i) {
      const double code = std::nearbyint(float_at(table, i) / scale) + zero;
      result.set(i, static_cast<float>((std::clamp(code, 0.0, q_max) - zero) * scale));
    }
  }
  return result;
}

double largest(const TestTensor& tensor) {
  double most = 0;
  for (std::size_t i = 0; i < tensor.bytes.size() * 8 / bits(tensor.dtype); ++i) {
    most = std::max(most, std::fabs(float_at(tensor, i)));
  }
  return most;
}

struct Loaded {
  std::unique_ptr<Model> model;
  std::vector<float> logits;
};

class HeadBits : public ::testing::TestWithParam<std::tuple<const char*, Head, int>> {
 protected:
  /// The golden as it is, or with its head tied.
  std::vector<TestTensor> copy_golden(const std::string& name, Head head) {
    const fs::path from = fs::path(SUBBYTE_TEST_DATA) / "goldens" / name;
    fs::copy_file(from / "config.json", dir_ / "config.json");
    std::vector<TestTensor> tensors = read_tensors(from / "model.safetensors");
    if (head == Head::kOwn) return tensors;
    auto config = nlohmann::json::parse(dir_.read("config.json"));
    config["tie_word_embeddings"] = true;
    dir_.write("config.json", config.dump());
    std::erase_if(tensors, [](const TestTensor& t) { return t.name == "lm_head.weight"; });
    if (head == Head::kTiedAndStored) {
      tensors.push_back(find(tensors, "model.embed_tokens.weight"));
      tensors.back().name = "lm_head.weight";
    }
    return tensors;
  }

  Loaded load(const std::vector<TestTensor>& tensors, int bits) {
    dir_.write("model.safetensors", tensor_file(tensors));
    auto model = load_model(dir_.path(), *backend_, {.head_bits = bits});
    EXPECT_TRUE(model.ok()) << model.error().message;
    Loaded loaded = {std::move(model).value(), {}};
    const std::vector<int32_t> tokens = {1, 17, 300, 511, 17};
    loaded.logits = testing::logits_of(*loaded.model, *backend_, tokens);
    return loaded;
  }

  TempDir dir_;
  std::unique_ptr<Backend> backend_ = testing::make_test_backend(2);
};

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double one = std::fabs(double{a[i]} - b[i]);
    worst = one <= worst ? worst : one;  // NaN becomes the worst
  }
  return worst;
}

TEST_P(HeadBits, give_the_logits_of_what_the_numbers_stand_for) {
  const auto& [golden, head, bits] = GetParam();
  std::vector<TestTensor> tensors = copy_golden(golden, head);
  const Loaded plain = load(tensors, 16);
  const Loaded quantized = load(tensors, bits);
  const TestTensor norm = find(tensors, "model.norm.weight");
  double weight = 0;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    const auto table = std::ranges::find(tensors, name, &TestTensor::name);
    if (table == tensors.end()) continue;
    *table = dequantized(*table, bits);
    weight = largest(*table);
  }
  const Loaded expected = load(tensors, 16);

  // Embedded rows are equal bit by bit, so hidden states are. In the head each of two sums of K
  // products is off by (K + 8) half units of their absolute sum (8 for scales, zero points and
  // lanes), and after the norm that sum is at most K * max|weight of the norm| * max|w|.
  const auto k = static_cast<double>(norm.shape[0]);
  const double bound = 2 * (k + 8) * 0x1p-24 * k * largest(norm) * weight;
  EXPECT_LE(difference(quantized.logits, expected.logits), bound);
  EXPECT_GT(difference(quantized.logits, plain.logits), bits == 4 ? 10 * bound : 0.0);
}

TEST_P(HeadBits, count_as_what_a_token_reads) {
  const auto& [golden, head, bits] = GetParam();
  std::vector<TestTensor> tensors = copy_golden(golden, head);
  const Loaded plain = load(tensors, 16);
  const Loaded quantized = load(tensors, bits);
  const TestTensor& table = find(tensors, "model.embed_tokens.weight");
  const auto rows = static_cast<int64_t>(table.shape[0]);
  const auto cols = static_cast<int64_t>(table.shape[1]);
  const auto before = static_cast<int64_t>(table.bytes.size());
  // Codes, then 2 bytes of scale and 1 or 2 of zero point for each group.
  const int64_t after =
      bits == 4 ? rows * (cols / 2 + cols / 32 * 3) : rows * (cols + cols / 128 * 4);
  EXPECT_EQ(quantized.model->bytes_per_token(), plain.model->bytes_per_token() - before + after);
  const int tables = head == Head::kOwn ? 2 : 1;
  EXPECT_EQ(quantized.model->weight_bytes(),
            plain.model->weight_bytes() - tables * (before - after));
}

INSTANTIATE_TEST_SUITE_P(Goldens, HeadBits,
                         ::testing::Combine(::testing::ValuesIn(testing::goldens(testing::kHead)),
                                            ::testing::Values(Head::kOwn, Head::kTied,
                                                              Head::kTiedAndStored),
                                            ::testing::Values(4, 8)),
                         NamedByValue());

TEST(HeadBitsErrors, refuses_other_numbers) {
  const auto backend = testing::make_test_backend(1);
  for (const int bits : {0, 2, 5, 32}) {
    const auto model = load_model(fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-awq", *backend,
                                  {.head_bits = bits});
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.error().code, "model.head_bits");
  }
}

TEST(HeadBitsErrors, names_the_tensor_whose_weights_are_not_finite) {
  const TempDir dir;
  const fs::path from = fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-bf16";
  fs::copy_file(from / "config.json", dir / "config.json");
  std::vector<TestTensor> tensors = read_tensors(from / "model.safetensors");
  find(tensors, "lm_head.weight").set<uint16_t>(77, 0x7FC0);
  dir.write("model.safetensors", tensor_file(tensors));
  const auto backend = testing::make_test_backend(1);
  const auto model = load_model(dir.path(), *backend, {.head_bits = 8});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, "quantize.not_finite");
  EXPECT_NE(model.error().message.find("\"lm_head.weight\""), std::string::npos);
}

}  // namespace
}  // namespace subbyte
