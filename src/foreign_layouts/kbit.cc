#include "foreign_layouts/kbit.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/checked.h"

namespace subbyte {
namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kTileOutputs = 128;
constexpr int64_t kTileInputs = 64;

/// Each bit i of a byte at bit i * stride: eight elements of a plane where their codes are.
constexpr std::array<uint64_t, 256> spread_by(int stride) {
  std::array<uint64_t, 256> table{};
  for (std::size_t byte = 0; byte < table.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) table[byte] |= (uint64_t{byte} >> bit & 1) << (bit * stride);
  }
  return table;
}

constexpr std::array<uint64_t, 256> kSpreadByBytes = spread_by(8);

/// body(canonical index of a block, its index in the buffer) for the blocks of outputs [begin, end)
template <typename Body>
void for_blocks_of_rows(const KbitShape& shape, int64_t begin, int64_t end, const Body& body) {
  const int64_t groups = shape.cols / kBlock;
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t g = 0; g < groups; ++g) body(n * groups + g, kbit_block(shape, n, g));
  }
}

template <typename Body>
void for_each_block(const KbitShape& shape, const Body& body) {
  for_blocks_of_rows(shape, 0, shape.rows, body);
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
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for_each_block(shape, [&](int64_t canonical, int64_t block) {
    const std::byte* from = codes + canonical * block_bytes;
    std::byte* to = planes + block * block_bytes;
    for (int eight = 0; eight < kBlock / 8; ++eight) {
      uint64_t stream = 0;
      __builtin_memcpy(&stream, from + eight * bits, bits);
      uint64_t columns = 0;  // byte p: bit plane p of eight elements
      for (int i = 0; i < 8; ++i) columns |= kSpreadByBytes[stream >> (i * bits) & mask] << i;
      for (int plane = 0; plane < bits; ++plane) {
        to[plane * 4 + eight] = std::byte(columns >> (8 * plane) & 0xFF);
      }
    }
  });
}

void unpack_kbit(std::byte* codes, const std::byte* planes, const KbitShape& shape) {
  unpack_kbit_rows(codes, planes, shape, 0, shape.rows);
}

void unpack_kbit_rows(std::byte* codes, const std::byte* planes, const KbitShape& shape,
                      int64_t begin, int64_t end) {
  const int bits = shape.bits;
  const int64_t block_bytes = 4 * bits;
  const std::array<uint64_t, 256> spread = spread_by(bits);
  for_blocks_of_rows(shape, begin, end, [&](int64_t canonical, int64_t block) {
    std::byte* to = codes + canonical * block_bytes;
    const std::byte* from = planes + block * block_bytes;
    for (int eight = 0; eight < kBlock / 8; ++eight) {
      uint64_t stream = 0;
      for (int plane = 0; plane < bits; ++plane) {
        stream |= spread[std::to_integer<std::size_t>(from[plane * 4 + eight])] << plane;
      }
      __builtin_memcpy(to + eight * bits, &stream, bits);
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
  unpack_kbit_scales_of_rows(scales, from, shape, width, 0, shape.rows);
}

void unpack_kbit_scales_of_rows(std::byte* scales, const std::byte* from, const KbitShape& shape,
                                int width, int64_t begin, int64_t end) {
  for_blocks_of_rows(shape, begin, end, [&](int64_t canonical, int64_t block) {
    std::copy_n(from + block * width, width, scales + canonical * width);
  });
}

}  // namespace subbyte
