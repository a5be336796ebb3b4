// The C interface with device pointers, on a stream of the caller's, captured in a graph: against
// the same calls on the host.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "device_bytes.h"
#include "support/c_group_problem.h"
#include "support/c_handles.h"
#include "support/random_matrix.h"

namespace subbyte::testing {
namespace {

const WeightFormat kInt4 = {Format::kU4, Format::kF16, Zero::kU8, 64};

class Stream {
 public:
  Stream() { expect_ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }

  cudaStream_t get() const { return stream_; }

  /// Captures calls, and runs them from the graph alone, twice.
  void run_captured(const std::function<void()>& calls) const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    expect_ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    calls();
    expect_ok(cudaStreamEndCapture(stream_, &graph));
    expect_ok(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 2; ++i) expect_ok(cudaGraphLaunch(executable, stream_));
    expect_ok(cudaStreamSynchronize(stream_));
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }

 private:
  cudaStream_t stream_ = nullptr;
};

std::vector<uint16_t> to_numbers(const std::vector<float>& values, int32_t number) {
  std::vector<uint16_t> numbers;
  for (const float value : values) {
    numbers.push_back(number == SUBBYTE_F16 ? to_float16(value).bits : to_bfloat16(value).bits);
  }
  return numbers;
}

double number_of(uint16_t bits, int32_t number) {
  return info(static_cast<Format>(number)).decode(bits);
}

std::span<const std::byte> bytes_of(const std::vector<uint16_t>& numbers) {
  return std::as_bytes(std::span(numbers));
}

/// Canonical bytes in device memory, with their description.
struct OnDevice {
  explicit OnDevice(const MatrixView& view)
      : codes(view.codes),
        scales(view.scales),
        zeros(view.zeros),
        order(std::as_bytes(view.input_order)),
        weights(c_weights(view)) {
    weights.codes = codes.data();
    weights.scales = scales.data();
    weights.zeros = view.zeros.empty() ? nullptr : zeros.data();
    weights.input_order =
        view.input_order.empty() ? nullptr : reinterpret_cast<const uint32_t*>(order.data());
  }
  DeviceBytes codes, scales, zeros, order;
  subbyte_weights weights;
};

struct Case {
  int32_t number = SUBBYTE_F16;
  int32_t activation = SUBBYTE_LINEAR;
  int32_t order = SUBBYTE_ROWS_NATURAL;
  int64_t m = 5;
  int64_t batch = 1;
  int64_t spread = 0;
};

/// The call on the host with results in double steps: f32 inputs that the number holds.
std::vector<float> on_host(const CMatrix& matrix, const std::vector<float>& x,
                           const std::vector<float>& bias, const std::vector<float>& residual,
                           const subbyte_product& product) {
  std::vector<float> y(residual.size());
  subbyte_product host = product;
  host.x = x.data();
  host.y = y.data();
  host.bias = bias.data();
  host.residual = residual.data();
  host.number = SUBBYTE_F32;
  host.stream = nullptr;
  EXPECT_EQ(subbyte_multiply(matrix.get(), &host), SUBBYTE_OK) << subbyte_last_error();
  return y;
}

void expect_product_of_host(const CContext& context, const MatrixView& view, const Case& c) {
  SCOPED_TRACE(to_string(view.format) + " number " + std::to_string(c.number) + " activation " +
               std::to_string(c.activation) + " order " + std::to_string(c.order) + " m " +
               std::to_string(c.m));
  const int64_t outputs = c.activation >= SUBBYTE_SILU_GATE ? view.rows / 2 : view.rows;
  const int64_t x_stride = view.cols + c.spread, y_stride = outputs + c.spread;
  const int64_t x_batch = c.m * x_stride + 8 * c.spread, y_batch = c.m * y_stride + 8 * c.spread;
  const std::vector<float> x = random_inputs(c.batch * x_batch, 1, Contents::kExact, 6);
  const std::vector<float> bias = random_inputs(1, view.rows, Contents::kExact, 7);
  const std::vector<float> residual = random_inputs(c.batch * y_batch, 1, Contents::kExact, 8);
  auto product = c_struct<subbyte_product>();
  product.m = c.m;
  product.batch = c.batch;
  product.number = c.number;
  product.activation = c.activation;
  product.x_stride = x_stride;
  product.y_stride = product.residual_stride = y_stride;
  product.x_batch_stride = x_batch;
  product.y_batch_stride = product.residual_batch_stride = y_batch;
  subbyte_weights host_weights = c_weights(view);
  host_weights.row_order = c.order;
  const std::vector<float> expected =
      on_host(c_matrix(context, host_weights), x, bias, residual, product);

  OnDevice device(view);
  device.weights.row_order = c.order;
  const CMatrix matrix = c_matrix(context, device.weights);
  ASSERT_NE(matrix, nullptr);
  const Stream stream;
  const DeviceBytes x_bytes(bytes_of(to_numbers(x, c.number)));
  const DeviceBytes bias_bytes(bytes_of(to_numbers(bias, c.number)));
  const DeviceBytes residual_bytes(bytes_of(to_numbers(residual, c.number)));
  const DeviceBytes y(residual.size() * 2, 0);
  product.x = x_bytes.data();
  product.y = y.data();
  product.bias = bias_bytes.data();
  product.residual = residual_bytes.data();
  product.stream = stream.get();
  ASSERT_EQ(subbyte_product_reserve(matrix.get(), &product), SUBBYTE_OK) << subbyte_last_error();
  stream.run_captured([&] {
    ASSERT_EQ(subbyte_multiply(matrix.get(), &product), SUBBYTE_OK) << subbyte_last_error();
  });
  EXPECT_TRUE(y.canaries_are_whole());
  const std::vector<std::byte> bytes = y.read();
  // Contents are exact; what is left is the activation in float32 and one rounding.
  const double unit = c.number == SUBBYTE_F16 ? 0x1p-11 : 0x1p-8;
  for (int64_t i = 0; i < c.batch * c.m * outputs; ++i) {
    const int64_t at = i / (c.m * outputs) * y_batch + i / outputs % c.m * y_stride + i % outputs;
    uint16_t bits = 0;
    std::memcpy(&bits, &bytes[2 * at], 2);
    const double magnitude = std::fabs(expected[at]);
    const double bound = unit * magnitude + 0x1p-16 * (magnitude + 1);
    ASSERT_NEAR(number_of(bits, c.number), expected[at], bound) << at;
  }
}

RandomMatrix small_weights(const WeightFormat& format, int64_t rows, int64_t cols) {
  RandomMatrix random = random_matrix(format, rows, cols, Contents::kExact, 5);
  random.view.tensor_scale = 0x1p-8;  // so that f16 holds all results
  return random;
}

TEST(CInterfaceGpu, products_have_every_epilogue) {
  const CContext context = c_context();
  const RandomMatrix random = small_weights(kInt4, 176, 256);
  for (const int32_t number : {SUBBYTE_F16, SUBBYTE_BF16}) {
    for (const int64_t m : {1, 5, 100}) {
      for (const int32_t activation : {SUBBYTE_LINEAR, SUBBYTE_RELU, SUBBYTE_GELU}) {
        expect_product_of_host(context, random.view, {number, activation, SUBBYTE_ROWS_NATURAL, m});
      }
      for (const int32_t activation :
           {SUBBYTE_SILU_GATE, SUBBYTE_GELU_GATE, SUBBYTE_CLAMPED_GATE}) {
        for (const int32_t order : {SUBBYTE_ROWS_GATE_ABOVE_UP, SUBBYTE_ROWS_GATE_UP_PAIRS}) {
          expect_product_of_host(context, random.view, {number, activation, order, m});
        }
      }
    }
  }
}

TEST(CInterfaceGpu, products_have_a_batch_strides_and_act_order) {
  const CContext context = c_context();
  RandomMatrix random = small_weights(kInt4, 48, 256);
  std::vector<uint32_t> order(256);
  for (uint32_t k = 0; k < 256; ++k) order[k] = 255 - k;
  for (const bool act_order : {false, true}) {
    if (act_order) random.view.input_order = order;
    for (const int64_t spread : {0, 1, 8}) {
      expect_product_of_host(context, random.view,
                             {SUBBYTE_BF16, SUBBYTE_LINEAR, SUBBYTE_ROWS_NATURAL, 3, 4, spread});
    }
  }
}

TEST(CInterfaceGpu, matrices_of_every_kind_come_from_device_memory) {
  const CContext context = c_context();
  for (const WeightFormat& format :
       {WeightFormat{Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
        WeightFormat{Format::kI4, Format::kBF16, Zero::kBF16, 32},
        WeightFormat{Format::kU5, Format::kF16, Zero::kU8, 32},
        WeightFormat{Format::kU8, Format::kF16, Zero::kU16, 64},
        WeightFormat{Format::kU4, Format::kF16, Zero::kU8, 24}, WeightFormat{Format::kBF16},
        WeightFormat{Format::kF32}, WeightFormat{Format::kF16}}) {
    const int64_t cols = format.group_size == 24 ? 240 : 256;
    RandomMatrix random = random_matrix(format, 40, cols, Contents::kExact, 5);
    random.view.tensor_scale = 0x1p-8;  // so that f16 holds all results
    for (const int64_t m : {1, 5, 100}) {
      expect_product_of_host(context, random.view,
                             {SUBBYTE_F16, SUBBYTE_LINEAR, SUBBYTE_ROWS_NATURAL, m});
      expect_product_of_host(context, random.view,
                             {SUBBYTE_BF16, SUBBYTE_GELU, SUBBYTE_ROWS_NATURAL, m});
      expect_product_of_host(context, random.view,
                             {SUBBYTE_F16, SUBBYTE_SILU_GATE, SUBBYTE_ROWS_GATE_UP_PAIRS, m});
    }
  }
}

TEST(CInterfaceGpu, matrices_of_the_host_go_there) {
  const CContext context = c_context();
  const RandomMatrix random = random_matrix(kInt4, 40, 256, Contents::kReal, 5);
  const CMatrix host = c_matrix(context, c_weights(random.view));
  subbyte_matrix* made = nullptr;
  ASSERT_EQ(subbyte_matrix_to_gpu(host.get(), 0, SUBBYTE_ROWS_NATURAL, nullptr, &made), SUBBYTE_OK)
      << subbyte_last_error();
  const CMatrix packed(made);
  auto described = c_struct<subbyte_weights>();
  ASSERT_EQ(subbyte_matrix_describe(made, &described), SUBBYTE_OK);
  EXPECT_EQ(described.device, 0);
  EXPECT_EQ(described.codes, nullptr);
  const Stream stream;
  for (const int32_t number : {SUBBYTE_F32, SUBBYTE_F16, SUBBYTE_BF16}) {
    const int64_t size = 40 * 256 * (number == SUBBYTE_F32 ? 4 : 2);
    std::vector<std::byte> expected(size);
    ASSERT_EQ(subbyte_matrix_dequantize(host.get(), number, expected.data(), nullptr), SUBBYTE_OK);
    const DeviceBytes out(size);
    stream.run_captured([&] {
      ASSERT_EQ(subbyte_matrix_dequantize(made, number, out.data(), stream.get()), SUBBYTE_OK)
          << subbyte_last_error();
    });
    EXPECT_EQ(out.read(), expected);
    const DeviceBytes again(size);
    const OnDevice canonical(random.view);
    ASSERT_EQ(
        subbyte_dequantize(context.get(), &canonical.weights, number, again.data(), stream.get()),
        SUBBYTE_OK)
        << subbyte_last_error();
    expect_ok(cudaStreamSynchronize(stream.get()));
    EXPECT_EQ(again.read(), expected);
  }
}

TEST(CInterfaceGpu, refuses_what_would_end_the_process) {
  const CContext context = c_context();
  const RandomMatrix random = random_matrix(kInt4, 40, 256, Contents::kReal, 5);
  const OnDevice device(random.view);
  const CMatrix matrix = c_matrix(context, device.weights);
  std::vector<uint16_t> numbers(256);
  const DeviceBytes memory(1024);
  auto product = c_struct<subbyte_product>();
  product.m = 1;
  product.number = SUBBYTE_F16;
  product.x = memory.data();
  product.y = numbers.data();
  EXPECT_EQ(code_of(subbyte_multiply(matrix.get(), &product)), "c.argument");
  product.y = memory.data() + 512;
  product.x = numbers.data();
  EXPECT_EQ(code_of(subbyte_multiply(matrix.get(), &product)), "c.argument");
  subbyte_weights mixed = device.weights;
  mixed.scales = random.view.scales.data();
  subbyte_matrix* made = nullptr;
  EXPECT_EQ(code_of(subbyte_matrix_create(context.get(), &mixed, nullptr, &made)), "c.argument");
  const CMatrix host = c_matrix(context, c_weights(random.view));
  EXPECT_EQ(code_of(subbyte_matrix_to_gpu(host.get(), 99, 0, nullptr, &made)), "cuda.device");
  EXPECT_EQ(code_of(subbyte_matrix_to_gpu(matrix.get(), 0, 0, nullptr, &made)), "c.argument");
}

TEST(CInterfaceGpu, a_workspace_is_made_before_the_capture) {
  const CContext context = c_context();
  // A dense matrix has sums there that something follows, whatever the GPU.
  const RandomMatrix random = random_matrix({Format::kBF16}, 40, 256, Contents::kReal, 5);
  const OnDevice device(random.view);
  const CMatrix matrix = c_matrix(context, device.weights);
  const DeviceBytes x(256 * 100 * 2), y(40 * 100 * 2);
  const Stream stream;
  auto product = c_struct<subbyte_product>();
  product.m = 100;
  product.number = SUBBYTE_F16;
  product.activation = SUBBYTE_RELU;
  product.x = x.data();
  product.y = y.data();
  product.stream = stream.get();
  cudaGraph_t graph = nullptr;
  expect_ok(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(code_of(subbyte_multiply(matrix.get(), &product)), "cuda.capture");
  expect_ok(cudaStreamEndCapture(stream.get(), &graph));
  cudaGraphDestroy(graph);
  ASSERT_EQ(subbyte_product_reserve(matrix.get(), &product), SUBBYTE_OK);
  stream.run_captured([&] {
    ASSERT_EQ(subbyte_multiply(matrix.get(), &product), SUBBYTE_OK) << subbyte_last_error();
  });
}

/// Other programs may take memory of the GPU meanwhile, once or twice; what calls keep is missing
/// after every round. The matrices of a round have 16 MiB.
TEST(CInterfaceGpu, ten_thousand_calls_keep_no_memory) {
  const CContext context = c_context();
  const RandomMatrix random = random_matrix(kInt4, 1024, 1024, Contents::kReal, 5);
  const OnDevice device(random.view);
  const CMatrix matrix = c_matrix(context, device.weights);
  const DeviceBytes x(1024 * 64 * 2, 0), y(1024 * 64 * 2);
  const Stream stream;
  auto product = c_struct<subbyte_product>();
  product.number = SUBBYTE_BF16;
  product.x = x.data();
  product.y = y.data();
  product.stream = stream.get();
  const auto free_after = [&](int calls) {
    for (int call = 0; call < calls; ++call) {
      product.m = 1 + call % 64;
      EXPECT_EQ(subbyte_multiply(matrix.get(), &product), SUBBYTE_OK) << subbyte_last_error();
      if (call % 50 == 0) c_matrix(context, device.weights);
    }
    std::size_t free = 0, total = 0;
    expect_ok(cudaStreamSynchronize(stream.get()));
    expect_ok(cudaMemGetInfo(&free, &total));
    return free;
  };
  std::size_t before = free_after(1000);
  bool grows = true;
  for (int round = 0; round < 6 && grows; ++round) {
    const std::size_t after = free_after(1500);
    grows = after + (4 << 20) < before;
    before = after;
  }
  EXPECT_FALSE(grows);
}

TEST(CInterfaceGpu, blocks_are_those_of_the_host) {
  const CContext context = c_context();
  for (const char* format : {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4"}) {
    auto blocks = c_struct<subbyte_blocks>();
    blocks.format = format;
    blocks.layout = "128x4";
    blocks.input = SUBBYTE_BF16;
    blocks.rows = 37;
    blocks.cols = 256;
    blocks.tensor_scale = 0.25f;
    auto sizes = c_struct<subbyte_blocks_sizes>();
    ASSERT_EQ(subbyte_blocks_measure(&blocks, &sizes), SUBBYTE_OK);
    const auto x = to_numbers(random_inputs(37, 256, Contents::kReal, 3), SUBBYTE_BF16);
    std::vector<std::byte> codes(sizes.code_bytes), scales(sizes.scale_rows * sizes.scale_cols);
    ASSERT_EQ(subbyte_blocks_quantize(context.get(), &blocks, x.data(), codes.data(), scales.data(),
                                      nullptr),
              SUBBYTE_OK);
    const Stream stream;
    const DeviceBytes x_there(bytes_of(x)), codes_there(codes.size()), scales_there(scales.size());
    stream.run_captured([&] {
      ASSERT_EQ(subbyte_blocks_quantize(context.get(), &blocks, x_there.data(), codes_there.data(),
                                        scales_there.data(), stream.get()),
                SUBBYTE_OK)
          << subbyte_last_error();
    });
    EXPECT_EQ(codes_there.read(), codes) << format;
    EXPECT_EQ(scales_there.read(), scales) << format;
  }
}

TEST(CInterfaceGpu, group_gemm_gives_what_the_host_gives) {
  const CContext context = c_context();
  // Powers of two and small integers: sums are exact.
  CGroupProblem problem({0, 60, 64}, 264, 256, {0x38, 1}, {126, 3});
  auto weights = problem.weights();
  auto call = problem.call();
  subbyte_group_gemm* gemm = nullptr;
  ASSERT_EQ(subbyte_group_gemm_create(context.get(), &weights, nullptr, &gemm), SUBBYTE_OK);
  ASSERT_EQ(subbyte_group_gemm_run(gemm, &call), SUBBYTE_OK) << subbyte_last_error();
  subbyte_group_gemm_destroy(gemm);

  const DeviceBytes a_there(problem.a), a_scale_there(problem.a_scale), b_there(problem.b),
      b_scale_there(problem.b_scale);
  const DeviceBytes indptr_there(std::as_bytes(std::span(problem.m_indptr))),
      out(problem.out.size());
  const Stream stream;
  weights.b = b_there.data();
  weights.b_scale = b_scale_there.data();
  ASSERT_EQ(subbyte_group_gemm_create(context.get(), &weights, stream.get(), &gemm), SUBBYTE_OK)
      << subbyte_last_error();
  call.a = a_there.data();
  call.a_scale = a_scale_there.data();
  call.m_indptr = reinterpret_cast<const int32_t*>(indptr_there.data());
  call.out = out.data();
  call.stream = stream.get();
  ASSERT_EQ(subbyte_group_gemm_reserve(gemm, 64, stream.get()), SUBBYTE_OK);
  stream.run_captured(
      [&] { ASSERT_EQ(subbyte_group_gemm_run(gemm, &call), SUBBYTE_OK) << subbyte_last_error(); });
  EXPECT_EQ(out.read(), problem.out);
  subbyte_group_gemm_destroy(gemm);
}

}  // namespace
}  // namespace subbyte::testing
