// Every address of the interfaces for C may be NULL by mistake: a line says so, and nothing is
// launched.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/blocks_c.h"
#include "kernels/cuda/cuda_c.h"
#include "kernels/cuda/group_gemm_c.h"
#include "kernels/dequantize_c.h"

namespace subbyte::testing {
namespace {

/// Says that the call failed because of the address of that name. `error` is read after the call,
/// which may be evaluated after the other arguments.
void expect_null(int result, const char* const& error, const std::string& name) {
  EXPECT_EQ(result, -1) << name;
  ASSERT_NE(error, nullptr) << name;
  EXPECT_EQ(std::string(error), name + ": expected an address, found NULL");
}

TEST(NullAddresses, of_matrices_are_refused) {
  const char* error = nullptr;
  std::vector<uint8_t> bytes(64 * 256);
  SubbyteCudaMatrixDescription d = {};
  d.element = "u4";
  d.scale = "f16";
  d.group_size = 128;
  d.rows = 64;
  d.cols = 256;
  d.tensor_scale = 1;
  EXPECT_EQ(subbyte_cuda_matrix_create(nullptr, &error), nullptr);
  expect_null(-1, error, "description");
  EXPECT_EQ(subbyte_cuda_matrix_create(&d, &error), nullptr);
  expect_null(-1, error, "codes");
  d.codes = bytes.data();
  EXPECT_EQ(subbyte_cuda_matrix_create(&d, &error), nullptr);
  expect_null(-1, error, "scales");
  d.scales = bytes.data();
  d.zero_bytes = 1;
  EXPECT_EQ(subbyte_cuda_matrix_create(&d, &error), nullptr);
  expect_null(-1, error, "zeros");
  EXPECT_EQ(subbyte_cuda_matrix_bytes(nullptr), -1);
  subbyte_cuda_matrix_destroy(nullptr);

  SubbyteCudaLinear call = {};
  int64_t size = 0;
  expect_null(subbyte_cuda_matrix_pack(nullptr, bytes.data(), nullptr, &error), error, "matrix");
  expect_null(subbyte_cuda_linear_workspace(nullptr, &call, &size, &error), error, "matrix");
  expect_null(subbyte_cuda_linear(nullptr, bytes.data(), &call, bytes.data(), nullptr, &error),
              error, "matrix");
  EXPECT_EQ(subbyte_cuda_linear(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), -1);

  d.zeros = bytes.data();
  SubbyteCudaMatrix* const matrix = subbyte_cuda_matrix_create(&d, &error);
  ASSERT_NE(matrix, nullptr) << error;
  call.m = 4;
  call.x_stride = 256;
  call.y_stride = 64;
  call.x = bytes.data();
  expect_null(subbyte_cuda_matrix_pack(matrix, nullptr, nullptr, &error), error, "packed");
  expect_null(subbyte_cuda_linear_workspace(matrix, nullptr, &size, &error), error, "call");
  expect_null(subbyte_cuda_linear_workspace(matrix, &call, nullptr, &error), error, "bytes");
  expect_null(subbyte_cuda_linear(matrix, nullptr, &call, bytes.data(), nullptr, &error), error,
              "packed");
  expect_null(subbyte_cuda_linear(matrix, bytes.data(), nullptr, bytes.data(), nullptr, &error),
              error, "call");
  expect_null(subbyte_cuda_linear(matrix, bytes.data(), &call, bytes.data(), nullptr, &error),
              error, "y");
  subbyte_cuda_matrix_destroy(matrix);
}

TEST(NullAddresses, of_blocks_are_refused) {
  const char* error = nullptr;
  const SubbyteBlocks blocks = {"mxfp4", "bf16", nullptr, nullptr, 1, 32, 32, 1};
  std::vector<uint8_t> bytes(256);
  uint8_t* const there = bytes.data();
  const auto quantize = [&](const SubbyteBlocks* what, const void* x, void* codes, void* scales) {
    return subbyte_cuda_quantize_blocks(what, x, codes, scales, nullptr, &error);
  };
  expect_null(quantize(nullptr, there, there, there), error, "blocks");
  expect_null(quantize(&blocks, nullptr, there, there), error, "x");
  expect_null(quantize(&blocks, there, nullptr, there), error, "codes");
  expect_null(quantize(&blocks, there, there, nullptr), error, "scales");
}

TEST(NullAddresses, of_weights_are_refused) {
  const char* error = nullptr;
  std::vector<uint8_t> bytes(256);
  const SubbyteWeights weights = {"u4",         "f16",        nullptr, 0,       1, 8,
                                  bytes.data(), bytes.data(), nullptr, nullptr, 1};
  expect_null(subbyte_cuda_dequantize(nullptr, "bf16", bytes.data(), nullptr, &error), error,
              "weights");
  expect_null(subbyte_cuda_dequantize(&weights, "bf16", nullptr, nullptr, &error), error, "out");
  EXPECT_EQ(subbyte_cuda_dequantize(&weights, nullptr, bytes.data(), nullptr, &error), -1);
}

TEST(NullAddresses, of_group_gemms_are_refused) {
  const char* error = nullptr;
  std::vector<uint8_t> bytes(256);
  uint8_t* const there = bytes.data();
  EXPECT_EQ(subbyte_cuda_group_gemm_weight_bytes(nullptr), -1);
  EXPECT_EQ(subbyte_cuda_group_gemm_prepare_bytes(nullptr), -1);
  EXPECT_EQ(subbyte_cuda_group_gemm_workspace_bytes(nullptr, 4), -1);
  subbyte_cuda_group_gemm_destroy(nullptr);
  SubbyteCudaGroupGemmCall call = {};
  call.m = 4;
  expect_null(subbyte_cuda_group_gemm_prepare(nullptr, there, there, there, there, nullptr, &error),
              error, "gemm");
  const auto run = [&](SubbyteCudaGroupGemm* gemm, const SubbyteCudaGroupGemmCall* what,
                       void* workspace) {
    return subbyte_cuda_group_gemm_mxfp8_mxfp4_nt_groupwise(gemm, what, workspace, nullptr, &error);
  };
  expect_null(run(nullptr, &call, there), error, "gemm");
  SubbyteCudaGroupGemm* const gemm = subbyte_cuda_group_gemm_create(2, 264, 256, 0, &error);
  ASSERT_NE(gemm, nullptr) << error;
  expect_null(run(gemm, nullptr, there), error, "call");
  expect_null(run(gemm, &call, nullptr), error, "workspace");
  EXPECT_EQ(run(gemm, &call, there), -1) << "addresses of the call";
  EXPECT_EQ(
      subbyte_cuda_group_gemm_prepare(gemm, nullptr, nullptr, nullptr, nullptr, nullptr, &error),
      -1);
  subbyte_cuda_group_gemm_destroy(gemm);
}

}  // namespace
}  // namespace subbyte::testing
