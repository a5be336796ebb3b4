// Host time of subbyte_multiply() on a GPU: of eager calls, and of calls that are captured, as
// python/bench/host_time.py has it of torch's operator.
//
//   LD_LIBRARY_PATH=build/release build/release/bench/c_host_time
//
// It sees the C interface alone, so the libraries of two trees are compared with one program, in
// turns: nine processes each, with the LD_LIBRARY_PATH of each.

#include <cuda_runtime_api.h>
#include <subbyte/subbyte.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int64_t kSize = 4096;
constexpr int kCalls = 100;  // so few that the queue of the GPU is never full
constexpr int kRounds = 100;

void must(int status) {
  if (status == SUBBYTE_OK) return;
  std::fprintf(stderr, "c_host_time: %s [%s]\n", subbyte_last_error(), subbyte_last_error_code());
  std::exit(1);
}
void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "c_host_time: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

/// u4 with groups of 128, packed on GPU 0.
subbyte_matrix* make_matrix(cudaStream_t stream) {
  std::vector<float> numbers(kSize * kSize);
  uint32_t state = 1;
  for (float& number : numbers) {
    state = state * 1664525 + 1013904223;
    number = (static_cast<float>(state >> 8) / (1 << 24) - 0.5F) * 0.04F;
  }
  subbyte_context* context = nullptr;
  must(subbyte_context_create(nullptr, &context));
  subbyte_quantizer quantizer = {};
  quantizer.struct_size = sizeof quantizer;
  quantizer.format = "awq";
  subbyte_matrix* host = nullptr;
  subbyte_matrix* packed = nullptr;
  must(subbyte_matrix_quantize(context, &quantizer, numbers.data(), SUBBYTE_F32, kSize, kSize,
                               &host));
  must(subbyte_matrix_to_gpu(host, 0, SUBBYTE_ROWS_NATURAL, stream, &packed));
  subbyte_matrix_destroy(host);
  return packed;
}

/// Microseconds of a call.
double time_calls(const subbyte_matrix* matrix, const subbyte_product& product, int count) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) must(subbyte_multiply(matrix, &product));
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  return time.count() / count;
}

void measure(const subbyte_matrix* matrix, int64_t m, cudaStream_t stream) {
  subbyte_product product = {};
  product.struct_size = sizeof product;
  product.m = m;
  product.number = SUBBYTE_F16;
  product.stream = stream;
  void* x = nullptr;
  const auto bytes = static_cast<std::size_t>(m * kSize * 2);
  must(cudaMalloc(&x, bytes));
  must(cudaMemset(x, 0, bytes));
  must(cudaMalloc(&product.y, bytes));
  product.x = x;
  must(subbyte_product_reserve(matrix, &product));
  time_calls(matrix, product, 20);
  double eager = 0;
  for (int i = 0; i < kRounds; ++i) {
    must(cudaStreamSynchronize(stream));
    eager += time_calls(matrix, product, kCalls);
  }
  must(cudaStreamSynchronize(stream));
  cudaGraph_t graph = nullptr;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const double captured = time_calls(matrix, product, kCalls * 10);
  must(cudaStreamEndCapture(stream, &graph));
  must(cudaGraphDestroy(graph));
  std::printf("M = %lld: eager %.2f us, captured %.2f us\n", static_cast<long long>(m),
              eager / kRounds, captured);
  must(cudaFree(x));
  must(cudaFree(product.y));
}

}  // namespace

int main() {
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  subbyte_matrix* const matrix = make_matrix(stream);
  for (const int64_t m : {1, 16, 256}) measure(matrix, m, stream);
  subbyte_matrix_destroy(matrix);
  return 0;
}
