#include "models/memory_need.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/thread_pool.h"
#include "models/model_family.h"
#include "support/goldens.h"

namespace subbyte {
namespace {

const std::filesystem::path kGoldens = std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens";

/// A machine that takes one byte for each element, so that what is counted are parameters.
class CountingMemory : public MachineMemory {
 public:
  std::string name() const override { return "counter"; }
  Result<int64_t> free_bytes() const override { return int64_t{0}; }
  Result<int64_t> matrix_bytes(const MatrixShape& shape) const override {
    quantized_ += is_dense(shape.format) ? 0 : 1;
    act_order_ += shape.act_order ? 1 : 0;
    return shape.experts * shape.rows * shape.cols;
  }
  int64_t vector_bytes(int64_t size) const override { return size; }
  int64_t workspace_bytes(const StepPlan&, const StepSize& size) const override {
    return size.tokens;
  }
  Status reserve(const MemoryNeed&, const StepPlan&, const StepSize&) override { return {}; }
  Status finish_loading() override { return {}; }
  MemoryNeed held() const override { return {}; }

  mutable int64_t quantized_ = 0;
  mutable int64_t act_order_ = 0;
};

struct Counted {
  ModelConfig config;
  MemoryNeed need;
  CountingMemory memory;
};

Counted count(const std::string& golden, const LoadOptions& options) {
  Counted counted;
  const auto directory = kGoldens / golden;
  counted.config = *read_model_config(directory);
  const SideFile file = *ModelFiles(directory).config();
  const QuantizationConfig quantization = *read_quantization_config(*file.object(), directory);
  const TensorSource tensors = *TensorSource::open(directory);
  ThreadPool pool(1);
  const ImportContext context = {tensors, quantization, pool};
  const ModelFamily& family = *find_family(counted.config.model_type);
  const CheckpointNames names = *CheckpointNames::find(tensors, family.experts);
  const auto found = find_tensors(context, names, counted.config);
  EXPECT_TRUE(found.ok()) << found.error().message;
  const auto weights = weight_need(*found, options.head_bits, form_of(counted.memory));
  EXPECT_TRUE(weights.ok()) << weights.error().message;
  counted.need = memory_need(*found, *weights, *plan_of(counted.config), options, counted.memory);
  return counted;
}

/// The parameters of a Qwen3 model by its dimensions.
int64_t parameters(const ModelConfig& c) {
  const int64_t q = c.num_heads * c.head_dim;
  const int64_t kv = c.num_kv_heads * c.head_dim;
  const int64_t attention = c.hidden_size * (q + 2 * kv) + q * c.hidden_size + 2 * c.head_dim;
  const int64_t mlp = 3 * c.hidden_size * c.intermediate_size;
  const int64_t tables = (c.tie_word_embeddings ? 1 : 2) * c.vocab_size * c.hidden_size;
  return c.num_layers * (attention + mlp + 2 * c.hidden_size) + tables + c.hidden_size;
}

TEST(MemoryNeed, counts_every_parameter_once) {
  for (const char* golden : testing::goldens(testing::kEveryWay, "qwen3")) {
    const Counted counted = count(golden, {});
    // Of act-order, g_idx belongs to its matrix.
    EXPECT_EQ(counted.need.weights, parameters(counted.config)) << golden;
    const bool quantized = std::string_view(golden) != "qwen3-bf16";
    EXPECT_EQ(counted.memory.quantized_, quantized ? 7 * counted.config.num_layers : 0) << golden;
    const bool ordered = std::string_view(golden) == "qwen3-gptq-act-order";
    EXPECT_EQ(counted.memory.act_order_ > 0, ordered) << golden;
  }
}

TEST(MemoryNeed, counts_pages_of_the_cache_and_the_step) {
  LoadOptions options;
  options.cache_positions = 129;  // two pages of 128
  options.step_tokens = 77;
  struct Case {
    Element type;
    int64_t element_bytes, scale_bytes;
  };
  for (const auto& [type, element_bytes, scale_bytes] :
       {Case{Element::kF16, 2, 0}, Case{Element::kF32, 4, 0}, Case{Element::kE4M3, 1, 1}}) {
    options.cache_type = type;
    const Counted counted = count("qwen3-awq", options);
    const ModelConfig& c = counted.config;
    const int64_t runs = 2 * c.num_layers * c.num_kv_heads * 256;  // keys and values of a head
    EXPECT_EQ(counted.need.cache, runs * (c.head_dim * element_bytes + scale_bytes));
    EXPECT_EQ(counted.need.workspace, 77);
    EXPECT_EQ(counted.need.sum(), counted.need.weights + counted.need.cache + 77);
  }
}

TEST(MemoryNeed, finds_the_largest_cache_within_so_many_bytes) {
  for (const char* golden : {"qwen3-awq", "gpt-oss-mxfp4", "qwen3-next-bf16"}) {
    const ModelConfig config = *read_model_config(kGoldens / golden);
    const CacheLayout layout = plan_of(config)->cache;
    LoadOptions options;
    options.step_sequences = 3;
    options.step_tokens = 64;
    options.keeps_prefixes = true;
    const auto takes = [&](int64_t positions) {
      options.cache_positions = positions;
      return cache_bytes(layout, options.cache_type, cache_size(options, layout));
    };
    for (const int64_t bytes : {int64_t{1} << 20, int64_t{1} << 24, int64_t{12345678}}) {
      const int64_t most = positions_within(options, layout, bytes);
      EXPECT_EQ(most % kPagePositions, 0);
      if (most > 0) {
        EXPECT_LE(takes(most), bytes) << golden;
      }
      EXPECT_GT(takes(most + kPagePositions), bytes) << golden;
    }
    EXPECT_EQ(positions_within(options, layout, 0), 0);
  }
}

TEST(MemoryNeed, takes_embedding_and_head_in_the_bits_that_they_will_have) {
  LoadOptions options;
  options.head_bits = 4;
  const Counted as_is = count("qwen3-bf16", {});
  const Counted quantized = count("qwen3-bf16", options);
  const int64_t tables = as_is.config.tie_word_embeddings ? 1 : 2;
  EXPECT_EQ(quantized.memory.quantized_ - as_is.memory.quantized_, tables);
}

TEST(MemoryNeed, what_becomes_floats_when_it_is_read_is_staged) {
  FileTensor codes, scales;
  FoundTensor tensor;
  tensor.file.matrices.resize(1);
  ModuleInfo info = {.format = {Format::kF32, Format::kNone, Zero::kNone, 0},
                     .rows = 6,
                     .cols = 64,
                     .tensors = {&codes}};
  const auto staging = [&] {
    tensor.infos = {info};
    const CountingMemory memory;
    return weight_need({&tensor, 1}, 16, form_of(memory))->staging;
  };
  EXPECT_EQ(staging(), 0);  // used where it lies
  info.scales = &scales;    // with factors of inputs
  EXPECT_EQ(staging(), 3 * 6 * 64);
}

TEST(MemoryNeed, the_peak_has_staging_or_the_cache) {
  MemoryNeed need = {.weights = 100, .cache = 10, .workspace = 5, .staging = 30};
  EXPECT_EQ(need.peak(), 135);
  need.cache = 50;
  EXPECT_EQ(need.peak(), 155);
}

}  // namespace
}  // namespace subbyte
