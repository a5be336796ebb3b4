#include "torch_operators/four_over_six.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "formats/format.h"
#include "kernels/cpu/blocks.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

constexpr int64_t kSize = 16;

struct Candidate {
  uint8_t scale = 0;
  std::array<uint8_t, kSize> codes = {};
  float error = 0;
};

Candidate candidate(const std::array<float, kSize>& x, float wanted, float factor,
                    BlockError kind) {
  const FormatInfo& e4m3 = info(Format::kE4M3);
  const FormatInfo& e2m1 = info(Format::kE2M1);
  Candidate result;
  result.scale =
      static_cast<uint8_t>(e4m3.encode(std::min(wanted, 448.0F), Rounding::kNearestEven));
  const auto scale = static_cast<float>(e4m3.decode(result.scale));
  const float inverse = std::min(1 / (scale * factor), std::numeric_limits<float>::max());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float scaled = std::clamp(x[i] * inverse, -6.0F, 6.0F);
    result.codes[i] = static_cast<uint8_t>(e2m1.encode(scaled, Rounding::kNearestEven));
    const float value = static_cast<float>(e2m1.decode(result.codes[i])) * scale * factor;
    const float off = value - x[i];
    result.error += kind == BlockError::kSquared ? off * off : std::fabs(off);
  }
  return result;
}

void put(const Candidate& best, std::byte* codes, std::byte& scale) {
  for (std::size_t i = 0; i < best.codes.size(); i += 2) {
    codes[i / 2] = static_cast<std::byte>(best.codes[i] | best.codes[i + 1] << 4);
  }
  scale = std::byte{best.scale};
}

}  // namespace

Status quantize_four_over_six(Machine& machine, const BlockQuantization& blocks,
                              const FourOverSix& search, const Tensor& x, Tensor& codes,
                              Tensor& scales) {
  SUBBYTE_CHECK(cpu::quantize_blocks(blocks, x.data(), codes.data(), scales.data(),
                                     machine.kernels(), machine.executor()));
  const int64_t groups = blocks.cols / kSize;
  const int64_t width = info(blocks.input).bits / 8;
  const float factor = 1 / search.global_scale;
  machine.executor().parallel_for(blocks.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin * groups; i < end * groups; ++i) {
      std::array<float, kSize> numbers;
      load_numbers(numbers.data(), x.data() + i * kSize * width, kSize, blocks.input);
      float largest = 0;
      bool finite = true;
      for (const float number : numbers) {
        finite = finite && std::isfinite(number);
        largest = std::max(largest, std::fabs(number));
      }
      if (!finite || largest == 0) continue;
      const float wanted = largest / 6 * search.global_scale;
      const Candidate six = candidate(numbers, wanted, factor, search.error);
      const Candidate four = candidate(numbers, wanted * 1.5F, factor, search.error);
      const int64_t row = i / groups;
      const int64_t group = i % groups;
      put(four.error < six.error ? four : six,
          codes.data() + row * blocks.row_bytes() + group * kSize / 2,
          scales.data()[scale_byte(blocks, row, group)]);
    }
  });
  return {};
}

}  // namespace subbyte::torch_operators
