// Contexts beyond the positions that a model was first trained with have other frequencies, where
// config.json says so: the golden's prompt is longer than that.

#include <gtest/gtest.h>

#include <cstring>

#include "checkpoints/containers/tensor_source.h"
#include "models/model.h"
#include "support/golden_bound.h"
#include "support/goldens.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

constexpr const char* kGolden = "phi3-longrope-bf16";

template <typename T>
std::vector<T> read(const TensorSource& source, const std::string& name) {
  const FileTensor& tensor = *source.find(name);
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

/// The largest difference of the logits of the last tokens from those of the reference, by the
/// bound: of a model that was loaded for contexts of so many positions.
double worst(int64_t context) {
  const auto directory = testing::golden_folder(kGolden);
  const auto source = TensorSource::open(directory / "reference.safetensors");
  const auto ids = read<int32_t>(*source, "long.ids");
  const auto expected = read<float>(*source, "long.logits");
  const auto backend = testing::make_test_backend(2);
  const auto model = load_model(directory, *backend, {.context = context});
  EXPECT_TRUE(model.ok()) << model.error().message;
  const auto all = testing::logits_of(**model, *backend, ids);
  const auto found = std::span(all).last(expected.size());
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(double{found[i]} - expected[i]));
  }
  const auto rounding = testing::rounding_of(testing::isa_of(*backend), Activations::kF32, true);
  return largest /
         testing::golden_tolerance((*model)->config(), expected, rounding, std::ssize(ids));
}

TEST(LongRope, is_that_of_the_context_that_a_model_is_loaded_for) {
  const int64_t after = read_model_config(testing::golden_folder(kGolden))->long_rope.after;
  EXPECT_EQ(after, 64);
  EXPECT_LE(worst(after + 1), 1);
  EXPECT_LE(worst(512), 1);
  EXPECT_GT(worst(after), 100);  // those of short contexts
}

}  // namespace
}  // namespace subbyte
