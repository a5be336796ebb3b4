#include "bench/cuda/blocks_suite.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/cuda/graph_timer.h"
#include "kernels/cuda/codebook/kbit.h"
#include "kernels/cuda/quantize/dequantize.h"
#include "kernels/cuda/quantize/quantize.h"
#include "kernels/gpu/packed_weights.h"

namespace subbyte::bench {
namespace {

constexpr std::size_t kSlots = 3;  // that launches take in turns, so that no cache helps

void must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "subbyte_gpu_bench: {}\n", status.error().message);
  std::exit(1);
}

/// Device memory for inputs and outputs, with bits that are any numbers of moderate size.
class Suite {
 public:
  explicit Suite(const BlocksSuite& options) : options_(options) {
    slot_bytes_ = static_cast<std::size_t>(options.rows * options.cols * 4);
    bench::must(cudaStreamCreate(&stream_), "stream");
    for (std::byte** memory : {&from_, &to_}) {
      bench::must(cudaMalloc(reinterpret_cast<void**>(memory), kSlots * slot_bytes_), "memory");
    }
    bench::must(cudaMalloc(reinterpret_cast<void**>(&scales_), slot_bytes_ / 4), "memory");
    bench::must(cudaMemset(from_, 0x3E, kSlots * slot_bytes_), "memory");
    const int copied = static_cast<int>(slot_bytes_ / 2);
    const double us = time([&](std::size_t slot) {
      cudaMemcpyAsync(to(slot), from(slot), copied, cudaMemcpyDeviceToDevice, stream_);
    });
    copy_ = 2.0 * copied / us;
    fmt::print("{:<36}{:>9.1f} us {:>8.1f} GB/s\n", "copy", us, copy_ * 1e-3);
  }
  ~Suite() {
    cudaFree(from_);
    cudaFree(to_);
    cudaFree(scales_);
    cudaStreamDestroy(stream_);
  }
  Suite(const Suite&) = delete;
  Suite& operator=(const Suite&) = delete;

  void quantize(const char* name, BlockQuantization b) {
    b.rows = options_.rows;
    b.cols = options_.cols;
    const int64_t read = b.rows * b.cols * info(b.input).bits / 8;
    const double us = time([&](std::size_t slot) {
      must(cuda::quantize_blocks(b, from(slot), to(slot), scales_, stream_));
    });
    print(fmt::format("{} from {}{}", name, info(b.input).name,
                      b.layout == ScaleLayout::kLinear ? "" : ", swizzled"),
          us, read + b.code_bytes() + b.scale_bytes());
  }

  /// bitsandbytes' buffers: from numbers to flat codes, back, and to tiles and back.
  void kbit(int k) {
    const int64_t numbers = options_.rows * options_.cols;
    const int64_t blocks = numbers / 32;
    cuda::KbitThresholds thresholds;
    for (int i = 0; i < 31; ++i) {
      thresholds.values[i] = static_cast<float>(2 * i + 2 - (1 << k)) / static_cast<float>(1 << k);
    }
    const std::vector<float> codebook(std::size_t{1} << k, 0.5f);
    const auto buffers = [&](std::byte* memory) {
      cuda::KbitBuffers b;
      b.packed = reinterpret_cast<uint32_t*>(memory);
      b.absmax = memory + blocks * 4 * k;
      b.packed_words = blocks * k;
      b.absmax_elements = blocks;
      b.k = k;
      return b;
    };
    const int64_t codes = blocks * (4 * k + 1);
    const std::string name = "kbit" + std::to_string(k);
    for (const Format number : {Format::kF16, Format::kBF16, Format::kF32}) {
      const int64_t bytes = numbers * info(number).bits / 8;
      const std::string type(info(number).name);
      print(name + " from " + type, time([&](std::size_t slot) {
              must(cuda::quantize_kbit(from(slot), number, numbers, thresholds, buffers(to(slot)),
                                       stream_));
            }),
            bytes + codes);
      for (const bool is_tiled : {false, true}) {
        print(name + (is_tiled ? ", tiled, to " : ", flat, to ") + type,
              time([&](std::size_t slot) {
                must(cuda::dequantize_kbit({buffers(from(slot)), codebook, options_.rows,
                                            options_.cols, is_tiled, number, to(slot)},
                                           stream_));
              }),
              bytes + codes);
      }
    }
    for (const bool to_tiled : {true, false}) {
      print(name + (to_tiled ? " to tiles" : " from tiles"), time([&](std::size_t slot) {
              must(cuda::repack_kbit(buffers(from(slot)), buffers(to(slot)), options_.rows,
                                     options_.cols, to_tiled, stream_));
            }),
            2 * codes);
    }
  }

  void dequantize(const WeightFormat& format) {
    MatrixView view;
    view.format = format;
    view.rows = options_.rows;
    view.cols = options_.cols;
    const std::size_t codes = view.rows * view.row_bytes();
    const std::size_t scales = view.rows * view.groups() * info(format.scale).bits / 8;
    const std::size_t zeros = view.rows * view.groups() * zero_bytes(format.zero);
    const double us = time([&](std::size_t slot) {
      view.codes = {from(slot), codes};
      view.scales = {from(slot) + codes, scales};
      view.zeros = {from(slot) + codes + scales, zeros};
      must(cuda::dequantize(view, Element::kBF16, to(slot), stream_));
    });
    const int64_t written = view.rows * view.cols * 2;
    print(to_string(format) + " to bf16", us, codes + scales + zeros + written);
    dequantize_packed(view, codes, scales, zeros);
  }

 private:
  void dequantize_packed(MatrixView view, std::size_t codes, std::size_t scales,
                         std::size_t zeros) {
    const std::vector<std::byte> host(scales + zeros, std::byte{0x01});
    view.scales = std::span(host).first(scales);
    view.zeros = std::span(host).last(zeros);
    view.codes = {static_cast<const std::byte*>(nullptr), codes};
    const auto format = gpu::packed_format(view);
    if (!format.ok()) return must(format.error());
    const double us = time([&](std::size_t slot) {
      must(cuda::dequantize(from(slot), *format, 1, Element::kBF16, to(slot), stream_));
    });
    print(to_string(view.format) + ", packed, to bf16", us,
          format->bytes + view.rows * view.cols * 2);
  }

  double time(const std::function<void(std::size_t slot)>& launch) {
    return time_calls(3 * kSlots, options_.replays, stream_,
                      [&](int i) { launch(static_cast<std::size_t>(i) % kSlots); });
  }
  void print(const std::string& name, double us, int64_t bytes) const {
    const double rate = static_cast<double>(bytes) / us;
    fmt::print("{:<36}{:>9.1f} us {:>8.1f} GB/s {:>6.1f} % of the copy\n", name, us, rate * 1e-3,
               100 * rate / copy_);
  }
  std::byte* from(std::size_t slot) const { return from_ + slot * slot_bytes_; }
  std::byte* to(std::size_t slot) const { return to_ + slot * slot_bytes_; }

  BlocksSuite options_;
  std::size_t slot_bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  std::byte* scales_ = nullptr;
  double copy_ = 0;  // bytes read and written a microsecond
};

}  // namespace

void run_blocks_suite(const BlocksSuite& options) {
  Suite suite(options);
  for (const Format input : {Format::kBF16, Format::kF16, Format::kF32}) {
    suite.quantize("mxfp8 e4m3", {.input = input});
    suite.quantize("mxfp8 e4m3", {.input = input, .layout = ScaleLayout::k128x4});
  }
  suite.quantize("mxfp8 e5m2", {.format = BlockFormat::kMxfp8E5M2});
  suite.quantize("mxfp4", {.format = BlockFormat::kMxfp4});
  suite.quantize("nvfp4", {.format = BlockFormat::kNvfp4});
  suite.dequantize({Format::kU4, Format::kF16, Zero::kU8, 128});
  suite.dequantize({Format::kE2M1, Format::kE8M0, Zero::kNone, 32});
  suite.dequantize({Format::kE2M1, Format::kE4M3, Zero::kNone, 16});
  suite.dequantize({Format::kNF4, Format::kBF16, Zero::kNone, 64});
  suite.dequantize({Format::kNFL3, Format::kE4M4, Zero::kNone, 32});
  suite.dequantize({Format::kI8, Format::kF16, Zero::kNone, 64});
  for (int k = 2; k <= 5; ++k) suite.kbit(k);
}

}  // namespace subbyte::bench
