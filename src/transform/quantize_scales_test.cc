#include "transform/quantize_scales.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/thread_pool.h"
#include "support/temp_dir.h"
#include "support/test_tensors.h"

namespace subbyte {
namespace {

/// A plan of units of one matrix each, 64 x 256 numbers.
class ChooseScales : public ::testing::Test {
 protected:
  void add(const std::string& name, float one_weight) {
    Random random(tensors_.size() + 1);
    TestTensor tensor = random_floats(name, DType::kF32, {64, 256}, random);
    std::memcpy(tensor.bytes.data() + 4 * 300, &one_weight, 4);
    tensors_.push_back(tensor);
  }

  QuantizePlan choose(std::string_view format) {
    EXPECT_TRUE(write_tensors(folder_ / "model.safetensors", tensors_).ok());
    auto source = TensorSource::open(folder_ / "model.safetensors");
    EXPECT_TRUE(source.ok());
    source_ = std::move(source).value();
    QuantizePlan plan;
    for (const TestTensor& tensor : tensors_) {
      const MatrixRows rows = {source_->find(tensor.name), 64, 256, 0, 256, 1};
      plan.units.push_back({tensor.name, {{tensor.name, {rows}, plan.sets.size()}}, {}});
      plan.sets.push_back({rows});
    }
    ThreadPool pool(2);
    const Status chosen = choose_scales(*find_quantize_format(format), plan, pool);
    EXPECT_TRUE(chosen.ok());
    return plan;
  }

  TempDir folder_;
  std::vector<TestTensor> tensors_;
  std::optional<TensorSource> source_;
};

TEST_F(ChooseScales, takes_f16_where_a_weight_is_2_to_the_14_times_the_others) {
  add("usual", 1);
  add("huge", 0x1p20f);
  const QuantizePlan plan = choose("kbit2");
  EXPECT_EQ(plan.units[0].form.scale, Format::kNone);
  EXPECT_EQ(plan.units[1].form.scale, Format::kF16);
  EXPECT_EQ(plan.largest[1], 0x1p20);
}

/// Rotated, the weight is in all of its run of 256 and a 16th of that; the other runs stay small.
TEST_F(ChooseScales, looks_at_what_is_quantized) {
  add("huge", 0x1p20f);
  const QuantizePlan plan = choose("vq2");
  EXPECT_EQ(plan.units[0].form.scale, Format::kF16);
  EXPECT_NEAR(plan.largest[0], 0x1p16, 0x1p8);
}

TEST_F(ChooseScales, leaves_other_formats_alone) {
  add("huge", 0x1p20f);
  const QuantizePlan plan = choose("nf4");
  EXPECT_EQ(plan.units[0].form.scale, Format::kNone);
  EXPECT_TRUE(plan.largest.empty());
}

}  // namespace
}  // namespace subbyte
