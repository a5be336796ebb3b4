// Products that make the sum and the norm before them, against the three one after the other: the
// same bits of results, sum and norm.

#include "cpu_backend/made_norm.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cpu_backend/norm.h"
#include "kernels/cpu/linear_pass.h"
#include "support/float_bits.h"
#include "support/isa_test.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::bits_of;
using testing::Contents;
using testing::random_inputs;
using testing::random_matrix;
using testing::RandomMatrix;

constexpr int64_t kCols = 328;
constexpr float kEps = 1e-6f;

struct Results {
  std::vector<float> first, second, y, sum;

  void expect_bits_of(const Results& other) const {
    EXPECT_EQ(bits_of(first), bits_of(other.first));
    EXPECT_EQ(bits_of(second), bits_of(other.second));
    EXPECT_EQ(bits_of(y), bits_of(other.y));
    EXPECT_EQ(bits_of(sum), bits_of(other.sum));
  }
};

class MadeNorms : public testing::IsaTest {
 protected:
  MadeNorms()
      : matrices_{random_matrix({Format::kU4, Format::kF16, Zero::kU8, 32}, 77, kCols,
                                Contents::kReal, 1),
                  random_matrix({Format::kBF16, Format::kNone, Zero::kNone, 0}, 33, kCols,
                                Contents::kReal, 2)},
        weight_(random_inputs(1, kCols, Contents::kReal, 3)) {}

  std::vector<LinearProduct> products(Results& results, int64_t m) const {
    results.first.assign(m * 77, 0);
    results.second.assign(m * 33, 0);
    return {{results.first, results.y, m, &matrices_[0].view},
            {results.second, results.y, m, &matrices_[1].view}};
  }

  Results one_after_the_other(Execution& run, const std::vector<float>& x,
                              const std::vector<float>& delta, float factor, float scale) const {
    const int64_t m = std::ssize(x) / kCols;
    Results results;
    results.sum = x;
    results.y.assign(x.size(), 0);
    if (delta.empty()) {
      rms_norm(run, results.y, x, weight_, kEps);
    } else {
      add_rms_norm(run, results.y, results.sum, delta, weight_, kEps, factor, scale);
    }
    EXPECT_TRUE(linear_group(run, products(results, m)).ok());
    return results;
  }

  Results together(Execution& run, const std::vector<float>& x, const std::vector<float>& delta,
                   float factor, float scale) {
    const int64_t m = std::ssize(x) / kCols;
    Results results;
    results.sum = x;
    results.y.assign(x.size(), 0);
    MadeNorm norm;
    norm.y = results.y;
    norm.x = x;
    norm.delta = delta;
    if (!delta.empty()) norm.sum = results.sum;
    norm.weight = weight_;
    norm.eps = kEps;
    norm.factor = factor;
    norm.scale = scale;
    NormMaker maker(run, norm);
    const MakeRows make_rows = maker;
    const NextWeights next = {{&matrices_[1].view, &matrices_[0].view}, 1};
    EXPECT_TRUE(makes_rows(run, m, kCols));
    const LinearPass pass = {.make_rows = &make_rows, .next = &next, .kept = &kept_};
    EXPECT_TRUE(linear_pass(run, products(results, m), pass, kNothingAfter).ok());
    maker.finish();
    return results;
  }

 private:
  RandomMatrix matrices_[2];
  std::shared_ptr<ProductGroup> kept_;
  std::vector<float> weight_;
};

TEST_P(MadeNorms, have_the_bits_of_sum_norm_and_products) {
  for (const int64_t m : {1, 2, 7, 33}) {
    const std::vector<float> x = random_inputs(m, kCols, Contents::kReal, 4);
    const std::vector<float> delta = random_inputs(m, kCols, Contents::kReal, 5);
    for (const int threads : {2, 8}) {
      Execution& run = execution(threads);
      for (const float factor : {1.0f, 0.5f}) {
        together(run, x, delta, factor, 1)
            .expect_bits_of(one_after_the_other(execution(1), x, delta, factor, 1));
      }
      together(run, x, delta, 1, 0.25f)
          .expect_bits_of(one_after_the_other(execution(1), x, delta, 1, 0.25f));
      together(run, x, {}, 1, 1).expect_bits_of(one_after_the_other(execution(1), x, {}, 1, 1));
    }
  }
}

TEST_P(MadeNorms, are_made_where_there_are_few_numbers_and_several_threads) {
  EXPECT_FALSE(makes_rows(execution(1), 1, kCols));
  EXPECT_FALSE(makes_rows(execution(2), 512, kCols));
}

SUBBYTE_FOR_EVERY_ISA(MadeNorms);

}  // namespace
}  // namespace subbyte
