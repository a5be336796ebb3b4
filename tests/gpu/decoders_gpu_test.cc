// The decoders on the GPU, every code at every place, bit for bit against the formats' decode();
// and every code of every type of scale.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "decode_on_gpu.h"
#include "device_bytes.h"
#include "formats/format.h"
#include "kernels/gpu/packed_weights.h"

namespace subbyte::testing {
namespace {

using cuda::Number;

struct Decoder {
  std::string name;
  cuda::DecoderKind kind;
  int bits;
  Format element;
};

std::vector<Decoder> all_decoders() {
  using enum cuda::DecoderKind;
  return {
      {"integers2", kIntegers, 2, Format::kU2},   {"integers3", kIntegers, 3, Format::kU3},
      {"integers4", kIntegers, 4, Format::kU4},   {"integers8", kIntegers, 8, Format::kU8},
      {"e2m1", kE2M1, 4, Format::kE2M1},          {"codebook2", kCodebook, 2, Format::kNFL2},
      {"codebook3", kCodebook, 3, Format::kNFL3}, {"codebook4", kCodebook, 4, Format::kNF4},
      {"e4m3", kE4M3, 8, Format::kE4M3},          {"codebook4", kCodebook, 4, Format::kNFL4},
      {"codebook5", kCodebook, 5, Format::kNFL5}, {"e4m3_bits", kE4M3, 8, Format::kE4M3},
  };
}

constexpr int kLanes = 2048;
constexpr int kSlots = 32;  // of a lane: step, register, half

/// Every code in each slot, and up to 5 bits every pair in each register.
uint32_t code_at(int lane, int slot, int bits) {
  const int codes = 1 << bits;
  const int high = bits == 8 ? 5 * lane : lane / codes;
  return (slot % 2 == 0 ? lane + 7 * slot : high + 3 * slot) % codes;
}

std::vector<uint32_t> words_of(const Decoder& decoder) {
  std::vector<uint32_t> words(kLanes * decoder.bits);
  const cuda::CodeOrder order = cuda::code_order(decoder.kind, decoder.bits);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < kSlots; ++i) {
      for (int bit = 0; bit < decoder.bits; ++bit) {
        const cuda::BitPlace at =
            cuda::bit_place({0, i / 8, i / 2 % 4, i % 2}, bit, decoder.bits, order);
        words[lane * decoder.bits + at.word] |= (code_at(lane, i, decoder.bits) >> bit & 1)
                                                << at.bit;
      }
    }
  }
  return words;
}

template <class T>
std::vector<T> read(const DeviceBytes& memory) {
  const std::vector<std::byte> bytes = memory.read();
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

const FormatInfo& type_of(Number number) {
  return info(number == Number::kF16 ? Format::kF16 : Format::kBF16);
}
uint16_t number_of(double value, Number number) {
  return static_cast<uint16_t>(type_of(number).encode(value, Rounding::kNearestEven));
}

class OnGpu {
 public:
  OnGpu(const Decoder& decoder, Number number)
      : decoder_(decoder), number_(number), registers_(kLanes * 16 * 4) {
    const std::vector<uint32_t> words = words_of(decoder);
    words_ = std::make_unique<DeviceBytes>(std::as_bytes(std::span(words)));
    std::vector<uint16_t> codebook(32);
    for (uint32_t code = 0; code < 1u << decoder.bits && code < 32; ++code) {
      codebook[code] = number_of(info(decoder.element).decode(code), number);
    }
    codebook_ = std::make_unique<DeviceBytes>(std::as_bytes(std::span(codebook)));
  }

  int64_t mismatches(Zeros zeros) {
    const std::string name = decoder_.name + (number_ == Number::kF16 ? "_f16" : "_bf16");
    EXPECT_TRUE(decode_on_gpu(name, reinterpret_cast<const uint32_t*>(words_->data()), kLanes,
                              zeros, reinterpret_cast<const uint16_t*>(codebook_->data()),
                              reinterpret_cast<uint32_t*>(registers_.data())));
    expect_ok(cudaDeviceSynchronize());
    // Raw E2M1 of f16 is 2^-14 of its value.
    const bool is_small = number_ == Number::kF16 && decoder_.kind == cuda::DecoderKind::kE2M1;
    const double gain = is_small ? 0x1p14 : 1;
    const bool keeps_nan = decoder_.name == "e4m3" && converts_e4m3_on_gpu();
    const auto halves = read<uint16_t>(registers_);
    int64_t bad = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < kSlots; ++i) {
        const uint32_t code = code_at(lane, i, decoder_.bits);
        const double decoded = info(decoder_.element).decode(code);
        const uint16_t found = halves[lane * kSlots + i];
        if (std::isnan(decoded) && keeps_nan) {
          bad += !std::isnan(type_of(number_).decode(found));
          continue;
        }
        const double element = std::isnan(decoded) ? (code < 128 ? 480 : -480) : decoded;
        const double value = element - (i / 2 % 2 == 0 ? zeros.even : zeros.odd);
        bad += found != number_of(value / gain, number_);
      }
    }
    return bad;
  }

 private:
  Decoder decoder_;
  Number number_;
  DeviceBytes registers_;
  std::unique_ptr<DeviceBytes> words_;
  std::unique_ptr<DeviceBytes> codebook_;
};

TEST(DecodersOnGpu, are_exact_for_every_code_and_zero_point) {
  for (const Decoder& decoder : all_decoders()) {
    for (const Number number : {Number::kF16, Number::kBF16}) {
      OnGpu gpu(decoder, number);
      const bool has_zeros = decoder.kind == cuda::DecoderKind::kIntegers;
      const uint32_t most = has_zeros ? 1u << decoder.bits : 0;
      for (uint32_t zero = 0; zero <= most; ++zero) {
        ASSERT_EQ(gpu.mismatches({zero, most - zero}), 0)
            << info(decoder.element).name << " " << type_of(number).name << " zero " << zero;
      }
    }
  }
}

TEST(DecodersOnGpu, a_wrong_zero_point_is_noticed) {
  OnGpu gpu({"integers4", cuda::DecoderKind::kIntegers, 4, Format::kI4}, Number::kF16);
  // i4 is u4 less 8; what the GPU is told to subtract is subtracted from i4 once more.
  EXPECT_EQ(gpu.mismatches({8, 8}), int64_t{kLanes} * kSlots);
}

TEST(ScalesOnGpu, are_exact_for_every_code) {
  struct Case {
    Format format;
    cuda::ScaleKind kind;
  };
  for (const Case& c : {Case{Format::kF16, cuda::ScaleKind::kF16},
                        {Format::kBF16, cuda::ScaleKind::kBF16},
                        {Format::kE8M0, cuda::ScaleKind::kE8M0},
                        {Format::kE4M3, cuda::ScaleKind::kE4M3},
                        {Format::kE4M4, cuda::ScaleKind::kE4M4}}) {
    const FormatInfo& format = info(c.format);
    std::vector<uint32_t> codes(std::size_t{1} << format.bits);
    // Whatever is above a code in its word does not count.
    for (uint32_t i = 0; i < codes.size(); ++i)
      codes[i] = i | 0xabcd1234u << (format.bits - 1) << 1;
    DeviceBytes input(std::as_bytes(std::span(codes)));
    DeviceBytes output(codes.size() * 4);
    read_scales_on_gpu(cuda::scale_rule(c.kind), reinterpret_cast<const uint32_t*>(input.data()),
                       static_cast<int>(codes.size()), reinterpret_cast<float*>(output.data()));
    expect_ok(cudaDeviceSynchronize());
    const auto values = read<float>(output);
    for (uint32_t i = 0; i < codes.size(); ++i) {
      const double expected = format.decode(i);
      if (!std::isfinite(expected)) {
        EXPECT_TRUE(std::isnan(values[i])) << format.name << " " << i;  // infinity, too
      } else {
        EXPECT_EQ(values[i], expected) << format.name << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace subbyte::testing
