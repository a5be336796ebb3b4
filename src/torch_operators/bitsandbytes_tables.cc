#include "torch_operators/bitsandbytes_tables.h"

#include <algorithm>
#include <numeric>

#include "formats/format.h"
#include "torch_operators/tensor.h"

namespace subbyte::torch_operators {
namespace {

/// FP4 of bitsandbytes: a sign and 12, 8, 6, 4, 3, 2, 1/16 or 0 twelfths. The code 8 is -0.
constexpr Table kFp4 = {0.0F,
                        static_cast<float>(0.0052083333),
                        static_cast<float>(0.66666667),
                        1.0F,
                        static_cast<float>(0.33333333),
                        0.5F,
                        static_cast<float>(0.16666667),
                        0.25F,
                        -0.0F,
                        static_cast<float>(-0.0052083333),
                        static_cast<float>(-0.66666667),
                        -1.0F,
                        static_cast<float>(-0.33333333),
                        -0.5F,
                        static_cast<float>(-0.16666667),
                        -0.25F};

}  // namespace

Table nf4_table() {
  Table table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<float>(info(Format::kNF4).decode(i));
  }
  return table;
}

Table table_of(int64_t quant_type) {
  return quant_type == 2 ? kFp4 : nf4_table();
}

Rising::Rising(const Table& table) {
  std::iota(codes.begin(), codes.end(), uint8_t{0});
  std::ranges::stable_sort(codes, {}, [&](uint8_t code) { return table[code]; });
  for (std::size_t i = 0; i + 1 < codes.size(); ++i) {
    middles[i] = (table[codes[i]] + table[codes[i + 1]]) / 2;
  }
}

Status check_blocksize(int64_t blocksize) {
  constexpr std::array<int64_t, 8> kSizes = {32, 64, 128, 256, 512, 1024, 2048, 4096};
  if (std::ranges::find(kSizes, blocksize) != kSizes.end()) return {};
  return refuse("blocksize", "a power of two from 32 to 4096", std::to_string(blocksize));
}

void unpack(float* to, const std::byte* packed, const Table& table, std::span<const float> absmax,
            int64_t blocksize, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const auto byte = std::to_integer<uint32_t>(packed[i / 2]);
    to[i - begin] = table[i % 2 == 0 ? byte >> 4 : byte & 15u] *
                    absmax[static_cast<std::size_t>(i / blocksize)];
  }
}

}  // namespace subbyte::torch_operators
