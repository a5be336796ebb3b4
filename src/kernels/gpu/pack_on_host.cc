#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/checked.h"
#include "kernels/gpu/packed_weights.h"

namespace subbyte::gpu {
namespace {

/// The canonical codes of columns [64 tile, 64 tile + 64) of a row; 0 beyond the last.
std::array<uint16_t, kTileCols> read_codes(const MatrixView& matrix, int64_t row, int64_t tile) {
  const int bits = info(matrix.format.element).bits;
  const int64_t count = std::min<int64_t>(kTileCols, matrix.cols - tile * kTileCols);
  // 64 codes are 8 * bits whole bytes; two more, so that a code can be read as a 16-bit word.
  std::array<uint8_t, 8 * 16 + 2> bytes{};
  std::memcpy(bytes.data(),
              matrix.codes.data() + row * matrix.row_bytes() + tile * kTileCols / 8 * bits,
              ceil_div(count * bits, 8));
  std::array<uint16_t, kTileCols> codes{};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bit = i * bits;
    const int two_bytes = bytes[bit / 8] | bytes[bit / 8 + 1] << 8;
    codes[i] = static_cast<uint16_t>(two_bytes >> bit % 8 & ((1 << bits) - 1));
  }
  return codes;
}

/// Where the code of each (step, register, half) of a lane goes: the same for all lanes.
struct Places {
  struct Place {
    int together;                   // bits that follow bit 0
    std::array<BitPlace, 16> bits;  // of each bit
  };
  int bits;
  CodeOrder order;
  std::array<Place, kSteps * 8> of_code;

  explicit Places(const PackedFormat& format) : bits(format.bits), order(code_order(format)) {
    for (int i = 0; i < kSteps * 8; ++i) {
      const Slot slot = {0, i / 8, i / 2 % 4, i % 2};
      of_code[i].together = bits_together(slot, bits, order);
      for (int bit = 0; bit < bits; ++bit) {
        of_code[i].bits[bit] = bit_place(slot, bit, bits, order);
      }
    }
  }
};

using TileCodes = std::array<std::array<uint16_t, kTileCols>, kStripRows>;

void pack_tile(std::byte* to, const TileCodes& codes, const Places& places) {
  for (int lane = 0; lane < kLanes; ++lane) {
    std::array<uint32_t, 16> words{};
    for (int i = 0; i < kSteps * 8; ++i) {
      const Slot slot = {lane, i / 8, i / 2 % 4, i % 2};
      const uint32_t code = codes[row_of(slot)][col_of(slot, places.order)];
      const Places::Place& place = places.of_code[i];
      const BitPlace first = place.bits[0];
      words[first.word] |= (code & ((1u << place.together) - 1)) << first.bit;
      for (int bit = place.together; bit < places.bits; ++bit) {
        words[place.bits[bit].word] |= (code >> bit & 1) << place.bits[bit].bit;
      }
    }
    for (int word = 0; word < places.bits; ++word) {
      std::memcpy(to + 4 * word_in_tile(lane, word, places.bits), &words[word], 4);
    }
  }
}

void pack_codes(std::byte* to, const MatrixView& matrix, const PackedFormat& format) {
  const Places places(format);
  for (int64_t strip = 0; strip < format.strips; ++strip) {
    for (int64_t tile = 0; tile < format.tiles; ++tile) {
      TileCodes codes{};
      for (int row = 0; row < kStripRows; ++row) {
        const int64_t source = source_row(format.row_order, strip, row, format.rows);
        if (source < format.rows) codes[row] = read_codes(matrix, source, tile);
      }
      pack_tile(to + (strip * format.tiles + tile) * tile_bytes(format.bits), codes, places);
    }
  }
}

/// Scales or zero points of `width` bytes, which become `to_width`: more are zero, fewer are the
/// low ones.
void pack_groups(std::byte* to, int to_width, std::span<const std::byte> from, int width,
                 const MatrixView& matrix, const PackedFormat& format) {
  const int64_t groups = matrix.groups();
  for (int64_t strip = 0; strip < format.strips; ++strip) {
    for (int row = 0; row < kStripRows; ++row) {
      const int64_t source = source_row(format.row_order, strip, row, format.rows);
      if (source >= format.rows) continue;
      for (int64_t group = 0; group < groups; ++group) {
        std::memcpy(to + scale_index(format, strip, row, group) * to_width,
                    from.data() + (source * groups + group) * width, std::min(width, to_width));
      }
    }
  }
}

void pack_superblocks(std::byte* to, const MatrixView& matrix, const PackedFormat& format) {
  const Superblock form = superblock_of(format);
  const CanonicalNumbers from = canonical_numbers(matrix);
  for (int64_t i = 0; i < format.strips * format.blocks; ++i) {
    const int64_t strip = i / format.blocks;
    for (int at = 0; at < form.bytes(); ++at) {
      const SuperblockNumber number = number_at(form, at);
      const int64_t row = source_row(format.row_order, strip, number.row, format.rows);
      to[i * form.bytes() + at] = std::byte{superblock_byte(
          form, from, number, row < format.rows ? row : -1, i - strip * format.blocks)};
    }
  }
}

}  // namespace

void pack_on_host(std::byte* to, const MatrixView& matrix, const PackedFormat& format) {
  pack_codes(to, matrix, format);
  const int64_t codes_end = format.strips * format.tiles * tile_bytes(format.bits);
  std::memset(to + codes_end, 0, format.bytes - codes_end);
  const int scale_size = scale_bytes(format.scale_kind);
  if (in_superblocks(format)) {
    pack_superblocks(to + format.scales_begin, matrix, format);
  } else {
    pack_groups(to + format.scales_begin, scale_size, matrix.scales, scale_size, matrix, format);
  }
  if (format.zero_bytes != 0) {
    pack_groups(to + format.zeros_begin, format.zero_bytes, matrix.zeros,
                zero_bytes(matrix.format.zero), matrix, format);
  }
  if (!matrix.input_order.empty()) {
    std::memcpy(to + format.gather_begin, matrix.input_order.data(),
                matrix.input_order.size_bytes());
  }
  if (format.decoder == DecoderKind::kVectors) {
    std::memcpy(to + format.vectors_begin, matrix.codebook.data(), matrix.codebook.size_bytes());
  }
}

uint32_t packed_code_at(const std::byte* packed, const PackedFormat& format, int64_t row,
                        int64_t col) {
  const PackedRow place = packed_row(format.row_order, row, format.rows);
  const std::byte* tile =
      packed + (place.strip * format.tiles + col / kTileCols) * tile_bytes(format.bits);
  const Slot slot = slot_of(place.row, static_cast<int>(col % kTileCols), code_order(format));
  uint32_t code = 0;
  for (int bit = 0; bit < format.bits; ++bit) {
    const BitPlace place_of_bit = bit_place(slot, bit, format.bits, code_order(format));
    uint32_t word = 0;
    std::memcpy(&word, tile + 4 * word_in_tile(slot.lane, place_of_bit.word, format.bits), 4);
    code |= (word >> place_of_bit.bit & 1) << bit;
  }
  return code;
}

}  // namespace subbyte::gpu
