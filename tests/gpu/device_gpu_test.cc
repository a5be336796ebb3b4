// The device library under its interfaces: C and the engine multiply to the same bits, a captured
// call allocates nothing, and x in f32 is multiplied as such.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "cuda_backend/linear.h"
#include "cuda_backend/weight_arena.h"
#include "device/packed_matrix.h"
#include "device_bytes.h"
#include "matrix/float_rows.h"
#include "support/c_handles.h"
#include "support/products_of_interfaces.h"
#include "support/random_matrix.h"

namespace subbyte::testing {
namespace {

/// Those of kProductFormats, and dense ones.
std::vector<WeightFormat> formats() {
  std::vector<WeightFormat> all(std::begin(kProductFormats), std::end(kProductFormats));
  for (const Format dense : {Format::kF32, Format::kF16, Format::kBF16}) all.push_back({dense});
  return all;
}

std::vector<uint16_t> random_numbers(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<uint16_t> numbers(static_cast<std::size_t>(count));
  for (uint16_t& number : numbers) number = to_float16(static_cast<float>(random.normal())).bits;
  return numbers;
}

/// Counts what it is asked for.
class CountingMemory : public device::Memory {
 public:
  Result<device::Buffer> allocate(int64_t bytes, device::Stream stream) override {
    if (bytes > 0) ++calls;
    return device::driver_memory().allocate(bytes, stream);
  }
  int calls = 0;
};

/// A weight as the engine holds it, and its products.
class Engine {
 public:
  std::vector<std::byte> multiply(const MatrixView& view, const DeviceBytes& x, int64_t m) {
    std::vector<Matrix> matrices;
    matrices.push_back(Matrix{view, {}});
    const WeightTarget target = {device::Gpu::current(0, nullptr, arena_), uploader_,
                                 cuda::Number::kF16};
    auto weight = upload_weight(std::move(matrices), {}, target);
    EXPECT_TRUE(weight.ok());
    if (!weight.ok()) return {};
    const DeviceBytes y(static_cast<std::size_t>(2 * m * view.rows));
    CudaProducts products(cuda::Number::kF16, {}, nullptr);
    const Status status =
        products.multiply({y.data(), m, view.rows}, {x.data(), m, view.cols}, *weight);
    EXPECT_TRUE(status.ok());
    expect_ok(cudaDeviceSynchronize());
    return y.read();
  }

 private:
  ThreadPool host_{ThreadPoolOptions{2}};
  WeightArena arena_;
  device::Uploader uploader_{host_};
};

std::vector<std::byte> multiply_in_c(const CContext& context, const MatrixView& view,
                                     const DeviceBytes& x, int64_t m) {
  const CMatrix host = c_matrix(context, c_weights(view));
  subbyte_matrix* packed = nullptr;
  EXPECT_EQ(subbyte_matrix_to_gpu(host.get(), 0, 0, nullptr, &packed), SUBBYTE_OK)
      << subbyte_last_error();
  const CMatrix matrix(packed);
  const DeviceBytes y(static_cast<std::size_t>(2 * m * view.rows));
  auto product = c_struct<subbyte_product>();
  product.x = x.data();
  product.y = y.data();
  product.m = m;
  product.number = SUBBYTE_F16;
  EXPECT_EQ(subbyte_multiply(matrix.get(), &product), SUBBYTE_OK) << subbyte_last_error();
  expect_ok(cudaDeviceSynchronize());
  return y.read();
}

TEST(Device, c_and_the_engine_multiply_to_the_same_bits) {
  const CContext context = c_context();
  Engine engine;
  for (const WeightFormat& format : formats()) {
    for (const ProductShape& shape : product_shapes()) {
      const RandomMatrix weights =
          random_matrix(format, shape.rows, shape.cols, Contents::kReal, 11);
      for (const int64_t m : kProductM) {
        SCOPED_TRACE(to_string(format) + " " + std::to_string(shape.rows) + " x " +
                     std::to_string(shape.cols) + " m " + std::to_string(m));
        const std::vector<uint16_t> numbers = random_numbers(m * shape.cols, 12);
        const DeviceBytes x(std::as_bytes(std::span(numbers)));
        ASSERT_EQ(multiply_in_c(context, weights.view, x, m), engine.multiply(weights.view, x, m));
      }
    }
  }
}

TEST(Device, a_captured_product_allocates_nothing_and_does_not_wait) {
  const RandomMatrix weights = random_matrix(kProductFormats[0], 520, 1024, Contents::kReal, 3);
  ThreadPool host{ThreadPoolOptions{2}};
  cudaStream_t stream = nullptr;
  expect_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto plain = device::Gpu::use(0, stream);
  ASSERT_TRUE(plain.ok());
  const auto packed =
      device::PackedMatrix::upload(Matrix{weights.view, {}}, gpu::RowOrder::kNatural, *plain, host);
  ASSERT_TRUE(packed.ok());
  const DeviceBytes x(2 * 300 * 1024), y(2 * 300 * 520);
  device::Workspaces workspaces;
  const auto gpu = device::Gpu::use(0, stream, workspaces);
  ASSERT_TRUE(gpu.ok());
  for (const int64_t m : {1, 7, 64, 300}) {
    device::Product product;
    product.m = m;
    product.x = x.data();
    product.y = y.data();
    product.x_stride = 1024;
    product.y_stride = 520;
    ASSERT_TRUE((*packed)->reserve(product, *gpu).ok());
    cudaGraph_t graph = nullptr;
    // Any allocation or wait in this thread ends a capture of this mode with an error.
    expect_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    EXPECT_TRUE((*packed)->multiply(product, *gpu).ok());
    expect_ok(cudaStreamEndCapture(stream, &graph));
    cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(stream);
}

TEST(Device, each_product_asks_its_memory_once) {
  const RandomMatrix weights = random_matrix({Format::kBF16}, 40, 256, Contents::kReal, 3);
  ThreadPool host{ThreadPoolOptions{2}};
  CountingMemory memory;
  const auto gpu = device::Gpu::use(0, nullptr, memory);
  ASSERT_TRUE(gpu.ok());
  const auto packed =
      device::PackedMatrix::upload(Matrix{weights.view, {}}, gpu::RowOrder::kNatural, *gpu, host);
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(memory.calls, 1);
  const DeviceBytes x(2 * 4 * 256), y(2 * 4 * 40);
  device::Product product;
  product.m = 4;
  product.x = x.data();
  product.y = y.data();
  product.x_stride = 256;
  product.y_stride = 40;
  EXPECT_TRUE((*packed)->multiply(product, *gpu).ok());
  EXPECT_EQ(memory.calls, 1) << "sums that nothing follows are y";
  product.activation = device::Activation::kRelu;
  EXPECT_TRUE((*packed)->multiply(product, *gpu).ok());
  EXPECT_EQ(memory.calls, 2);
  expect_ok(cudaDeviceSynchronize());
}

TEST(Device, floats_are_multiplied_as_floats) {
  ThreadPool host{ThreadPoolOptions{2}};
  const auto gpu = device::Gpu::use(0, nullptr);
  ASSERT_TRUE(gpu.ok());
  for (const WeightFormat& format : formats()) {
    constexpr int64_t kRows = 72, kCols = 384;
    const RandomMatrix weights = random_matrix(format, kRows, kCols, Contents::kReal, 5);
    const auto packed =
        device::PackedMatrix::upload(Matrix{weights.view, {}}, gpu::RowOrder::kNatural, *gpu, host);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    const FloatRows rows(weights.view);
    for (const int64_t m : {1, 3, 7, 64, 300}) {
      SCOPED_TRACE(to_string(format) + " m " + std::to_string(m));
      Random random(6);
      std::vector<float> x(static_cast<std::size_t>(m * kCols));
      for (float& number : x) number = static_cast<float>(random.normal());
      const DeviceBytes there(std::as_bytes(std::span(x)));
      const DeviceBytes y(static_cast<std::size_t>(4 * m * kRows));
      device::Product product;
      product.number = Format::kF32;
      product.m = m;
      product.x = there.data();
      product.y = y.data();
      product.x_stride = kCols;
      product.y_stride = kRows;
      ASSERT_TRUE((*packed)->multiply(product, *gpu).ok());
      expect_ok(cudaDeviceSynchronize());
      const std::vector<std::byte> bytes = y.read();
      EXPECT_TRUE(y.canaries_are_whole());
      std::vector<float> row(kCols);
      for (int64_t n = 0; n < kRows; ++n) {
        rows.row(n, row.data());
        for (int64_t i = 0; i < m; ++i) {
          double sum = 0, magnitude = 0;
          for (int64_t k = 0; k < kCols; ++k) {
            const double term = double{row[k]} * x[i * kCols + k];
            sum += term;
            magnitude += std::abs(term);
          }
          float found = 0;
          std::memcpy(&found, bytes.data() + 4 * (i * kRows + n), 4);
          // Each weight and each of K sums rounds once, and the factor twice more.
          ASSERT_NEAR(found, sum, std::ldexp((kCols + 4) * magnitude, -24)) << n << " " << i;
        }
      }
    }
  }
}

void expect_memory_of_the_host(int result) {
  EXPECT_EQ(code_of(result), "c.argument");
  EXPECT_NE(std::string_view(subbyte_last_error()).find("memory of the host"),
            std::string_view::npos)
      << subbyte_last_error();
}

/// What C has on CPUs alone (docs/interfaces.md).
TEST(Device, memory_of_a_gpu_is_refused_where_the_host_computes) {
  const CContext context = c_context();
  const DeviceBytes there(4 * 128 * 64);
  auto quantizer = c_struct<subbyte_quantizer>();
  quantizer.format = "mxfp4";
  subbyte_matrix* made = nullptr;
  expect_memory_of_the_host(subbyte_matrix_quantize(context.get(), &quantizer, there.data(),
                                                    SUBBYTE_F32, 128, 64, &made));
  expect_memory_of_the_host(subbyte_hadamard_rotate(there.data(), 64, SUBBYTE_F16, 64, nullptr));
  std::vector<std::byte> memory(4 * 128 * 64);
  const std::vector<float> codebook = {-1, -0.5F, 0.5F, 1};
  auto kbit = c_struct<subbyte_kbit>();
  kbit.packed = reinterpret_cast<uint32_t*>(memory.data());
  kbit.absmax = memory.data();
  kbit.codebook = codebook.data();
  kbit.k = 2;
  kbit.k_dim = 64;
  kbit.n = 128;
  ASSERT_EQ(subbyte_kbit_measure(&kbit, &kbit.packed_words, &kbit.absmax_elements), SUBBYTE_OK)
      << subbyte_last_error();
  expect_memory_of_the_host(subbyte_kbit_multiply(context.get(), &kbit, there.data(), there.data(),
                                                  1, SUBBYTE_F16, nullptr, 0));
}

TEST(Device, a_thread_waits_for_the_workspace_that_another_has_on_the_stream) {
  device::Workspaces workspaces;
  auto first = workspaces.allocate(1000, nullptr);
  ASSERT_TRUE(first.ok());
  const std::byte* const address = first->data();
  std::atomic<bool> has = false;
  std::thread other([&] {
    const auto second = workspaces.allocate(500, nullptr);
    has = true;
    EXPECT_TRUE(second.ok() && second->data() == address);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has);
  *first = device::Buffer();
  other.join();
}

TEST(Device, calls_on_another_gpu_leave_a_thread_as_it_was) {
  const auto count = device::count_gpus();
  ASSERT_TRUE(count.ok());
  if (*count < 2) GTEST_SKIP() << "needs two GPUs";
  std::thread([] {
    {
      const auto gpu = device::Gpu::use(1, nullptr);
      ASSERT_TRUE(gpu.ok()) << gpu.error().message;
      const auto memory = gpu->allocate(256);
      ASSERT_TRUE(memory.ok());
      EXPECT_EQ(device::gpu_of(memory->data()), 1);
    }
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    expect_ok(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &entry, 12000, cudaEnableDefault,
                                               &found));
    ASSERT_NE(entry, nullptr);
    void* context = nullptr;
    EXPECT_EQ(reinterpret_cast<int (*)(void**)>(entry)(&context), 0);
    EXPECT_EQ(context, nullptr) << "a context that the thread had no use for";
    int current = -1;
    expect_ok(cudaGetDevice(&current));
    EXPECT_EQ(current, 0);
  }).join();
}

}  // namespace
}  // namespace subbyte::testing
