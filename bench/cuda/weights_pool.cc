#include "bench/cuda/weights_pool.h"

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "bench/cuda/contents.h"
#include "bench/cuda/graph_timer.h"

namespace subbyte::bench {
namespace {

constexpr std::size_t kPattern = 1 << 16;

/// Scales with sign bit off, around 0.01; of two levels factors like that, and any integers.
std::vector<std::byte> scale_pattern(Format stored) {
  const Format scale = has_two_levels(stored) ? Format::kF16 : stored;
  Random random(3);
  std::vector<std::byte> pattern(kPattern);
  const int width = info(scale).bits / 8;
  for (std::size_t at = 0; at < kPattern; at += width) {
    const double value = 0.01 * std::exp(0.3 * random.normal());
    const uint32_t code = info(scale).encode(value, Rounding::kNearestEven);
    std::memcpy(&pattern[at], &code, width);
  }
  return pattern;
}

}  // namespace

WeightsPool::WeightsPool(std::size_t bytes) : bytes_(bytes) {
  must(cudaMalloc(reinterpret_cast<void**>(&data_), bytes), "weights");
  must(cudaMalloc(reinterpret_cast<void**>(&pattern_), kPattern), "weights");
}

WeightsPool::~WeightsPool() {
  cudaFree(data_);
  cudaFree(pattern_);
}

void WeightsPool::fill(const cuda::PackedFormat& format) {
  copy_bytes_ = format.bytes;
  copies_ = static_cast<int>(std::max<std::size_t>(1, bytes_ / copy_bytes_));
  const std::vector<std::byte> scales = scale_pattern(format.source.scale);
  must(cudaMemcpy(pattern_, scales.data(), kPattern, cudaMemcpyHostToDevice), "scales");
  for (int i = 0; i < copies_; ++i) {
    std::byte* to = data_ + i * copy_bytes_;
    fill_random(to, format.scales_begin, i + 1, ~0u, nullptr);
    fill_pattern(to + format.scales_begin, format.zeros_begin - format.scales_begin, pattern_,
                 kPattern, nullptr);
    fill_random(to + format.zeros_begin, format.bytes - format.zeros_begin, i + 99, 0x0f0f0f0f,
                nullptr);
  }
  must(cudaDeviceSynchronize(), "weights");
}

cuda::PackedFormat format_of(const WeightFormat& format, int64_t rows, int64_t cols) {
  MatrixView view;
  view.format = format;
  view.rows = rows;
  view.cols = cols;
  std::vector<std::byte> codes(rows * view.row_bytes());
  std::vector<std::byte> scales(rows * view.scale_row_bytes());
  std::vector<std::byte> zeros(rows * view.zero_row_bytes());
  const std::vector<std::byte> pattern = scale_pattern(format.scale);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = pattern[i % kPattern];
  view.codes = codes;
  view.scales = scales;
  view.zeros = zeros;
  const std::vector<float> vectors(info(format.element).vector_size > 1 ? view.num_codes() : 0);
  view.codebook = vectors;
  const Result<cuda::PackedFormat> packed = cuda::packed_format(view);
  if (packed) return *packed;
  std::fprintf(stderr, "subbyte_gpu_bench: %s\n", packed.error().message.c_str());
  std::exit(1);
}

}  // namespace subbyte::bench
