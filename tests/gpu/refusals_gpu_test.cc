// Calls that are refused before anything is launched. These tests run without a GPU, too.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cuda/linear.h"
#include "support/random_matrix.h"

namespace subbyte::testing {
namespace {

class GpuRefusals : public ::testing::Test {
 protected:
  GpuRefusals()
      : matrix_(random_matrix({Format::kU4, Format::kF16, Zero::kU8, 128}, 64, 256,
                              Contents::kExact, 1)),
        format_(value_of(cuda::packed_format(matrix_.view))),
        plan_(value_of(cuda::plan_linear({format_, cuda::Number::kF16, 4}, cuda::Device{}))) {
    call_.weights = cuda::weight_arguments(nullptr, format_, 1, cuda::Number::kF16);
    call_.format = &format_;
    call_.x = &there_;
    call_.y = &there_;
    call_.x_stride = 256;
    call_.y_stride = 64;
    call_.m = 4;
  }

  void expect_refused(const std::string& part) {
    const Status status = cuda::run_linear(plan_, call_, cuda::Number::kF16, nullptr, nullptr);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, "cuda.shape");
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  }

  RandomMatrix matrix_;
  cuda::PackedFormat format_;
  cuda::Plan plan_;
  cuda::LinearCall call_;
  char there_ = 0;
};

TEST_F(GpuRefusals, a_plan_for_another_number_of_tokens) {
  call_.m = 5;
  expect_refused("expected the 4 tokens of the plan, found 5");
}

TEST_F(GpuRefusals, strides_that_are_too_short) {
  call_.x_stride = 255;
  expect_refused("found 255, 64 and 0");
  call_.x_stride = 256;
  call_.y_stride = 63;
  expect_refused("found 256, 63 and 0");
  call_.y_stride = 64;
  call_.residual = &there_;
  call_.residual_stride = 1;
  expect_refused("found 256, 64 and 1");
}

TEST_F(GpuRefusals, null_pointers) {
  call_.y = nullptr;
  expect_refused("null pointer");
  call_.y = &there_;
  plan_.workspace_bytes = 8;
  expect_refused("8 bytes of workspace");
}

TEST_F(GpuRefusals, an_activation_without_gate_and_up) {
  call_.activation = cuda::Activation::kSwiGLU;
  expect_refused("side by side");
}

}  // namespace
}  // namespace subbyte::testing
