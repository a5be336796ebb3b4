#include <gtest/gtest.h>

#include "support/import_fixture.h"

namespace subbyte {
namespace {

class Dense : public ImportFixture {};

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TEST_F(Dense, uses_all_types_where_they_lie) {
  for (const DType dtype : kTypes) {
    Random random(1);
    const TestTensor weight = random_floats("m.weight", dtype, {5, 7}, random);
    open({weight});
    expect_weights(5, 7, [&](int64_t n, int64_t k) { return float_at(weight, n * 7 + k); });
    EXPECT_EQ(matrix_.view.codes.data(), source_->find("m.weight")->bytes.data());
    EXPECT_TRUE(is_dense(matrix_.view.format));
  }
}

TEST_F(Dense, copies_what_is_not_aligned) {
  for (const DType dtype : kTypes) {
    for (const std::size_t remainder : {1, 2, 3, 4}) {
      Random random(2);
      const TestTensor weight = random_floats("m.weight", dtype, {6, 40}, random);
      open_misaligned({weight}, remainder);
      expect_weights(6, 40, [&](int64_t n, int64_t k) { return float_at(weight, n * 40 + k); });
      const auto address = reinterpret_cast<uintptr_t>(matrix_.view.codes.data());
      EXPECT_EQ(address * 8 % static_cast<uintptr_t>(bits(dtype)), 0u);
    }
  }
}

TEST_F(Dense, transposes_experts) {
  // [experts][inputs][outputs], with sides below, at and above the tile of 32.
  for (const auto& [experts, cols, rows] :
       {std::tuple(1, 1, 1), {3, 32, 64}, {2, 33, 31}, {2, 70, 5}, {1, 5, 100}}) {
    for (const DType dtype : kTypes) {
      Random random(3);
      const Shape shape = {static_cast<uint64_t>(experts), static_cast<uint64_t>(cols),
                           static_cast<uint64_t>(rows)};
      const TestTensor weight = random_floats("m", dtype, shape, random);
      for (const std::size_t remainder : {0, 1}) {
        open_misaligned({weight}, remainder);
        const auto matrices = import_experts(context(), "m");
        ASSERT_TRUE(matrices.ok()) << matrices.error().message;
        ASSERT_EQ(matrices->size(), shape[0]);
        for (int64_t e = 0; e < experts; ++e) {
          expect_equal((*matrices)[e].view, rows, cols,
                       [&, n_count = rows, first = e * cols](int64_t n, int64_t k) {
                         return float_at(weight, (first + k) * n_count + n);
                       });
        }
      }
    }
  }
}

TEST_F(Dense, keeps_nan_and_infinity) {
  TestTensor weight = filled<uint16_t>("m.weight", DType::kBF16, {1, 8}, 0x7FC0);
  weight.set<uint16_t>(3, 0xFF80);
  open({weight});
  const auto matrix = import_matrix(context(), "m");
  ASSERT_TRUE(matrix.ok());
  EXPECT_TRUE(std::isnan(weight_at(matrix->view, 0, 0)));
  EXPECT_EQ(weight_at(matrix->view, 0, 3), -INFINITY);
}

TEST_F(Dense, stands_beside_any_method) {
  Random random(4);
  open({random_floats("m.weight", DType::kF16, {4, 8}, random)});
  for (const char* const method : {"awq", "gptq", "mxfp4"}) {
    say({{"quant_method", method}, {"bits", 4}, {"group_size", 32}});
    EXPECT_EQ(code(), "");
  }
}

TEST_F(Dense, refuses_other_types_and_ranks) {
  Random random(5);
  const auto with = [&](std::string name, DType dtype, Shape shape) {
    return code_of({random_bits(std::move(name), dtype, std::move(shape), random)});
  };
  EXPECT_EQ(with("m.weight", DType::kF64, {2, 2}), "dense.dtype");
  EXPECT_EQ(with("m.weight", DType::kI8, {2, 2}), "dense.dtype");
  EXPECT_EQ(with("m.weight", DType::kF8E4M3, {2, 2}), "dense.dtype");
  EXPECT_EQ(with("m.weight", DType::kF32, {4}), "import.shape");
  EXPECT_EQ(with("m.weight", DType::kF32, {2, 2, 2}), "");  // a stack of experts
  EXPECT_EQ(with("m.weight", DType::kF32, {2, 2, 2, 2}), "import.shape");
  EXPECT_EQ(with("m.weight", DType::kF32, {0, 2}), "import.shape");
  EXPECT_EQ(with("m", DType::kF32, {2, 2}), "import.shape");
  EXPECT_EQ(with("m", DType::kF32, {2, 0, 2}), "import.shape");
}

}  // namespace
}  // namespace subbyte
