// What the backend refuses to take, so that a step never meets it; experts beside a shared one.
#include "cpu_backend/cpu_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "support/random_matrix.h"
#include "support/shared_experts.h"

namespace subbyte {
namespace {

class Uploads : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = make_cpu_backend({.num_threads = 1});
    ASSERT_TRUE(backend.ok());
    backend_ = std::move(backend).value();
  }

  Matrix matrix(int64_t rows, int64_t cols) {
    auto random = std::make_shared<testing::RandomMatrix>(
        testing::random_matrix({Format::kF32}, rows, cols, testing::Contents::kReal, 3));
    Matrix matrix = {random->view, {random}};
    return matrix;
  }
  std::vector<Matrix> matrices(std::initializer_list<std::pair<int64_t, int64_t>> shapes) {
    std::vector<Matrix> list;
    for (const auto& [rows, cols] : shapes) list.push_back(matrix(rows, cols));
    return list;
  }
  ExpertMatrices experts() {
    ExpertMatrices experts;
    experts.gate_up = matrices({{16, 24}, {16, 24}});
    experts.down = matrices({{24, 8}, {24, 8}});
    experts.gate_up_bias.resize(2 * 16);
    experts.down_bias.resize(2 * 24);
    experts.top_k = 2;
    return experts;
  }
  template <class T>
  static std::string code(const Result<T>& result) {
    return result.ok() ? "" : std::string(result.error().code);
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(Uploads, joined_matrices_have_equal_columns_and_a_bias_for_each_row) {
  EXPECT_EQ(code(backend_->upload_joined(matrices({{8, 16}, {4, 16}}), std::vector<float>(12))),
            "");
  EXPECT_EQ(code(backend_->upload_joined({})), "linear.unsupported");
  EXPECT_EQ(code(backend_->upload_joined(matrices({{8, 16}, {4, 24}}))), "linear.unsupported");
  EXPECT_EQ(code(backend_->upload_joined(matrices({{8, 16}, {4, 16}}), std::vector<float>(11))),
            "linear.unsupported");
  EXPECT_EQ(code(backend_->upload(matrix(8, 16), std::vector<float>(16))), "linear.unsupported");
}

TEST_F(Uploads, experts_fit_each_other) {
  EXPECT_EQ(code(backend_->upload(experts())), "");
  ExpertMatrices wrong = experts();
  wrong.gate_up.pop_back();
  EXPECT_EQ(code(backend_->upload(std::move(wrong))), "linear.unsupported");
  wrong = experts();
  wrong.down[1] = matrix(24, 16);
  EXPECT_EQ(code(backend_->upload(std::move(wrong))), "linear.unsupported");
  wrong = experts();
  wrong.gate_up[0] = matrix(14, 24);
  EXPECT_EQ(code(backend_->upload(std::move(wrong))), "linear.unsupported");
  for (const int64_t top_k : {0, 3}) {
    wrong = experts();
    wrong.top_k = top_k;
    EXPECT_EQ(code(backend_->upload(std::move(wrong))), "linear.unsupported");
  }
  wrong = experts();
  wrong.down_bias.pop_back();
  EXPECT_EQ(code(backend_->upload(std::move(wrong))), "linear.unsupported");
  ExpertMatrices without_bias = experts();
  without_bias.gate_up_bias.clear();
  EXPECT_EQ(code(backend_->upload(without_bias)), "");
  without_bias.down_bias.clear();
  EXPECT_EQ(code(backend_->upload(std::move(without_bias))), "");
}

TEST(SharedExperts, add_up_with_those_of_the_routes) {
  const std::vector<float> without = testing::SharedExperts().expected();
  for (const testing::ExpertAttributes& attributes : testing::expert_attributes()) {
    const testing::SharedExperts block(attributes);
    const std::vector<float> expected = block.expected();
    EXPECT_EQ(expected == without, attributes.name == "none" || attributes.name == "one_sum");
    for (const int threads : {1, 2}) {
      const auto backend = make_cpu_backend({.num_threads = threads});
      ASSERT_TRUE(backend.ok());
      const std::vector<float> found = block.run(**backend);
      ASSERT_EQ(found.size(), expected.size());
      // Numbers of about 1; float32 through five products of at most 160 terms.
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], 1e-4) << attributes.name << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace subbyte
