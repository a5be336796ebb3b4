#include "kernels/cpu/execution.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cpu/linear.h"
#include "support/float_bits.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::Contents;
using testing::random_inputs;
using testing::random_matrix;

/// Runs all tasks on the calling thread, the last first: a host that lends no thread at all.
class Backwards : public Executor {
 public:
  explicit Backwards(int size) : size_(size) {}
  int size() const override { return size_; }
  void run(int num_tasks, Task task) override {
    ++runs;
    for (int i = num_tasks - 1; i >= 0; --i) task(i);
  }
  int runs = 0;

 private:
  int size_;
};

std::vector<uint32_t> product_bits(Execution& execution, const MatrixView& weights, int64_t m) {
  const std::vector<float> x = random_inputs(m, weights.cols, Contents::kReal, 2);
  std::vector<float> y(m * weights.rows);
  EXPECT_TRUE(linear(execution, y, x, m, weights).ok());
  return testing::bits_of(y);
}

TEST(Execution, the_threads_of_the_calling_program_give_the_same_results) {
  const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, 32};
  const auto matrix = random_matrix(format, 333, 1160, Contents::kReal, 1);
  const auto alone = Execution::create({.num_threads = 1});
  ASSERT_TRUE(alone.ok());
  for (const int size : {1, 2, 5}) {
    Backwards host(size);
    const auto lent = Execution::create({.executor = &host});
    ASSERT_TRUE(lent.ok());
    EXPECT_EQ(&(*lent)->pool(), &host);
    for (const int64_t m : {1, 17}) {
      EXPECT_EQ(product_bits(**lent, matrix.view, m), product_bits(**alone, matrix.view, m));
    }
    EXPECT_EQ(host.runs > 0, size > 1);
  }
}

TEST(Execution, refuses_to_count_or_pin_threads_that_it_does_not_own) {
  Backwards host(2);
  for (const ExecutionOptions& options :
       {ExecutionOptions{.num_threads = 2, .executor = &host},
        ExecutionOptions{.pin_threads = true, .executor = &host}}) {
    const auto execution = Execution::create(options);
    ASSERT_FALSE(execution.ok());
    EXPECT_EQ(execution.error().code, "execution.options");
  }
}

TEST(Execution, has_as_many_threads_as_asked_for) {
  for (const bool pin : {false, true}) {
    const auto execution = Execution::create({.num_threads = 3, .pin_threads = pin});
    ASSERT_TRUE(execution.ok());
    EXPECT_EQ((*execution)->pool().size(), 3);
  }
}

TEST(Execution, gives_back_large_buffers_that_nobody_needs_any_more) {
  const auto execution = Execution::create({.num_threads = 1});
  ASSERT_TRUE(execution.ok());
  const auto use = [&](int64_t bytes) {
    (*execution)->buffer(Execution::Slot::kScratch, bytes);
    return (*execution)->buffer_bytes(Execution::Slot::kScratch);
  };
  EXPECT_EQ(use(4000), 4000);
  for (int i = 0; i < 4096; ++i) ASSERT_EQ(use(i == 7 ? 999 : 10), 4000);
  EXPECT_EQ(use(1000), 4000) << "a quarter is not small";
  for (int i = 0; i < 4096; ++i) ASSERT_EQ(use(i == 7 ? 999 : 10), 4000);
  EXPECT_EQ(use(10), 999) << "as much as the last ones needed";
  EXPECT_EQ(use(1000), 1000);
}

}  // namespace
}  // namespace subbyte
