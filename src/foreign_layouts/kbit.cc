#include "foreign_layouts/kbit.h"

#include <algorithm>
#include <string>

#include "base/checked.h"

namespace subbyte {
namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kTileOutputs = 128;
constexpr int64_t kTileInputs = 64;

uint32_t load_u32(const std::byte* from) {
  uint32_t word = 0;
  __builtin_memcpy(&word, from, 4);
  return word;
}

/// body(canonical index of a block, its index in the buffer)
template <typename Body>
void for_each_block(const KbitShape& shape, const Body& body) {
  const int64_t groups = shape.cols / kBlock;
  for (int64_t n = 0; n < shape.rows; ++n) {
    for (int64_t g = 0; g < groups; ++g) body(n * groups + g, kbit_block(shape, n, g));
  }
}

}  // namespace

Status check_kbit_shape(const KbitShape& shape) {
  const bool tiled = shape.order == KbitOrder::kTiled;
  if (shape.rows > 0 && shape.cols > 0 && shape.cols % kBlock == 0 && shape.bits >= 2 &&
      shape.bits <= 5 && (!tiled || shape.rows % kTileOutputs == 0)) {
    return {};
  }
  return Error{"layout.shape", std::string("kbit needs 2 to 5 bits, inputs in 32s") +
                                   (tiled ? " and outputs in 128s when tiled" : "") + ", found " +
                                   std::to_string(shape.bits) + " bits, " +
                                   std::to_string(shape.cols) + " inputs and " +
                                   std::to_string(shape.rows) + " outputs"};
}

int64_t kbit_blocks(const KbitShape& shape) {
  const bool tiled = shape.order == KbitOrder::kTiled;
  const auto cols = static_cast<uint64_t>(shape.cols);
  return shape.rows * static_cast<int64_t>(round_up(cols, tiled ? kTileInputs : kBlock)) / kBlock;
}

int64_t kbit_block(const KbitShape& shape, int64_t n, int64_t group) {
  if (shape.order == KbitOrder::kFlat) return n * (shape.cols / kBlock) + group;
  const int64_t tile = group / 2 * (shape.rows / kTileOutputs) + n / kTileOutputs;
  return (tile * kTileOutputs + n % kTileOutputs) * 2 + group % 2;
}

void pack_kbit(std::byte* planes, const std::byte* codes, const KbitShape& shape) {
  const int bits = shape.bits;
  const int64_t block_bytes = 4 * bits;
  std::fill_n(planes, kbit_blocks(shape) * block_bytes, std::byte{0});
  for_each_block(shape, [&](int64_t canonical, int64_t block) {
    const std::byte* from = codes + canonical * block_bytes;
    std::byte* to = planes + block * block_bytes;
    for (int i = 0; i < kBlock * bits; ++i) {
      const std::byte bit = from[i / 8] >> (i % 8) & std::byte{1};
      const int element = i / bits;
      to[i % bits * 4 + element / 8] |= bit << (element % 8);
    }
  });
}

void unpack_kbit(std::byte* codes, const std::byte* planes, const KbitShape& shape) {
  const int bits = shape.bits;
  const int64_t block_bytes = 4 * bits;
  std::fill_n(codes, shape.rows * shape.cols * bits / 8, std::byte{0});
  for_each_block(shape, [&](int64_t canonical, int64_t block) {
    std::byte* to = codes + canonical * block_bytes;
    const std::byte* from = planes + block * block_bytes;
    for (int i = 0; i < kBlock * bits; ++i) {
      const uint32_t plane = load_u32(from + i % bits * 4);
      to[i / 8] |= std::byte((plane >> (i / bits) & 1u) << (i % 8));
    }
  });
}

void pack_kbit_scales(std::byte* to, const std::byte* scales, const KbitShape& shape, int width) {
  std::fill_n(to, kbit_blocks(shape) * width, std::byte{0});
  for_each_block(shape, [&](int64_t canonical, int64_t block) {
    std::copy_n(scales + canonical * width, width, to + block * width);
  });
}

void unpack_kbit_scales(std::byte* scales, const std::byte* from, const KbitShape& shape,
                        int width) {
  for_each_block(shape, [&](int64_t canonical, int64_t block) {
    std::copy_n(from + block * width, width, scales + canonical * width);
  });
}

}  // namespace subbyte
