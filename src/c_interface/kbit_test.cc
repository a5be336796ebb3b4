// kbit and vector quantization of the C interface against those of C++.

#include "codebook/kbit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "codebook/hadamard.h"
#include "codebook/vq.h"
#include "support/c_handles.h"

namespace subbyte::testing {
namespace {

constexpr int64_t kN = 128, kK = 96;

/// Buffers of a description.
struct Buffers {
  explicit Buffers(int32_t k, int32_t p, bool tiled) {
    kbit.n = kN;
    kbit.k_dim = kK;
    kbit.k = k;
    kbit.p = p;
    kbit.tiled = tiled ? 1 : 0;
    EXPECT_EQ(subbyte_kbit_measure(&kbit, &kbit.packed_words, &kbit.absmax_elements), SUBBYTE_OK)
        << subbyte_last_error();
    packed.resize(kbit.packed_words);
    absmax.resize(kbit.absmax_elements);
    for (int i = 0; i < 1 << k; ++i) codebook.push_back(0.1f * static_cast<float>(i) - 1);
    for (int i = 0; i < 256 * p; ++i) {
      const double value = std::sin(i * 0.7);
      vectors.push_back(
          static_cast<uint16_t>(info(Format::kF16).encode(value, Rounding::kNearestEven)));
    }
    kbit.packed = packed.data();
    kbit.absmax = absmax.data();
    kbit.codebook = p == 0 ? static_cast<const void*>(codebook.data()) : vectors.data();
  }
  subbyte_kbit kbit = c_struct<subbyte_kbit>();
  std::vector<uint32_t> packed;
  std::vector<uint8_t> absmax;
  std::vector<float> codebook;
  std::vector<uint16_t> vectors;
};

std::vector<float> numbers(int64_t count, double step) {
  std::vector<float> made(count);
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = static_cast<float>(std::sin(step * static_cast<double>(i)));
  }
  return made;
}

std::vector<uint16_t> halves(const std::vector<float>& from) {
  std::vector<uint16_t> made;
  for (const float value : from) {
    made.push_back(static_cast<uint16_t>(info(Format::kF16).encode(value, Rounding::kNearestEven)));
  }
  return made;
}

/// Multiplies, and compares with sums of the dequantized weights.
void expect_products(const CContext& context, const Buffers& weights, const std::vector<float>& w) {
  const std::vector<uint16_t> a = halves(numbers(3 * kK, 0.11));
  std::vector<uint16_t> y(3 * kN);
  ASSERT_EQ(subbyte_kbit_multiply(context.get(), &weights.kbit, a.data(), y.data(), 3, SUBBYTE_F16,
                                  nullptr, 0),
            SUBBYTE_OK)
      << subbyte_last_error();
  for (int64_t i = 0; i < 3 * kN; ++i) {
    double sum = 0, magnitude = 0;
    for (int64_t j = 0; j < kK; ++j) {
      const double x = info(Format::kF16).decode(a[i / kN * kK + j]);
      sum += x * w[i % kN * kK + j];
      magnitude += std::fabs(x * w[i % kN * kK + j]);
    }
    ASSERT_NEAR(info(Format::kF16).decode(y[i]), sum,
                0x1p-11 * std::fabs(sum) + 0x1p-15 * magnitude);
  }
}

/// Quantizes, repacks, dequantizes both and multiplies by both, and compares each with C++.
void expect_same_as_cxx(int32_t k, int32_t p) {
  SCOPED_TRACE("k " + std::to_string(k) + " p " + std::to_string(p));
  const CContext context = c_context();
  ThreadPool pool(1);
  Buffers flat(k, p, false), tiled(k, p, true);
  const std::vector<float> w = numbers(kN * kK, 0.37);
  ASSERT_EQ(subbyte_kbit_quantize(context.get(), w.data(), SUBBYTE_F32, &flat.kbit), SUBBYTE_OK)
      << subbyte_last_error();
  Buffers expected(k, p, false), expected_tiled(k, p, true);
  const auto bytes = std::as_bytes(std::span(w));
  ASSERT_TRUE((p == 0 ? codebook::quantize_kbit(bytes, Format::kF32, flat.codebook, k,
                                                expected.packed, expected.absmax, pool)
                      : codebook::quantize_vq(bytes, Format::kF32, flat.vectors, p, expected.packed,
                                              expected.absmax))
                  .ok());
  EXPECT_EQ(flat.packed, expected.packed);
  EXPECT_EQ(flat.absmax, expected.absmax);
  ASSERT_EQ(subbyte_kbit_repack(&flat.kbit, &tiled.kbit), SUBBYTE_OK) << subbyte_last_error();
  ASSERT_TRUE((p == 0 ? codebook::repack_kbit(flat.packed, flat.absmax, kK, kN, k,
                                              expected_tiled.packed, expected_tiled.absmax)
                      : codebook::repack_vq(flat.packed, flat.absmax, kK, kN, p,
                                            expected_tiled.packed, expected_tiled.absmax))
                  .ok());
  EXPECT_EQ(tiled.packed, expected_tiled.packed);
  EXPECT_EQ(tiled.absmax, expected_tiled.absmax);
  if (p == 0) {
    Buffers again(k, p, false);
    ASSERT_EQ(subbyte_kbit_repack(&tiled.kbit, &again.kbit), SUBBYTE_OK) << subbyte_last_error();
    EXPECT_EQ(again.packed, flat.packed);
  }
  std::vector<float> out(kN * kK), out_tiled(kN * kK), reference(kN * kK);
  ASSERT_EQ(subbyte_kbit_dequantize(context.get(), &flat.kbit, SUBBYTE_F32, out.data()),
            SUBBYTE_OK);
  ASSERT_EQ(subbyte_kbit_dequantize(context.get(), &tiled.kbit, SUBBYTE_F32, out_tiled.data()),
            SUBBYTE_OK);
  EXPECT_EQ(out, out_tiled);
  const auto reference_bytes = std::as_writable_bytes(std::span(reference));
  const auto absmax = std::as_bytes(std::span(flat.absmax));
  ASSERT_TRUE((p == 0 ? codebook::dequantize_kbit({flat.packed, absmax, flat.codebook, k}, kN * kK,
                                                  Format::kF32, reference_bytes, pool)
                      : codebook::dequantize_vq({flat.packed, absmax, flat.vectors, p}, kN * kK,
                                                Format::kF32, reference_bytes))
                  .ok());
  EXPECT_EQ(out, reference);
  expect_products(context, flat, out);
  expect_products(context, tiled, out);
}

TEST(CKbit, is_that_of_cxx) {
  for (const int32_t k : {2, 3, 4, 5}) expect_same_as_cxx(k, 0);
}

TEST(CKbit, has_vectors) {
  for (const int32_t p : {2, 4}) expect_same_as_cxx(0, p);
}

TEST(CKbit, has_experts) {
  const CContext context = c_context();
  Buffers one(4, 0, false), tiled(4, 0, true);
  const std::vector<float> w = numbers(kN * kK, 0.37);
  ASSERT_EQ(subbyte_kbit_quantize(context.get(), w.data(), SUBBYTE_F32, &one.kbit), SUBBYTE_OK);
  ASSERT_EQ(subbyte_kbit_repack(&one.kbit, &tiled.kbit), SUBBYTE_OK);
  // Two experts, the second with the same weights: their tiles without padding between.
  const int64_t blocks = kN * 128 / 32;
  std::vector<uint32_t> packed(tiled.packed.begin(), tiled.packed.begin() + blocks * 4);
  packed.insert(packed.end(), tiled.packed.begin(), tiled.packed.begin() + blocks * 4);
  std::vector<uint8_t> absmax(tiled.absmax.begin(), tiled.absmax.begin() + blocks);
  absmax.insert(absmax.end(), tiled.absmax.begin(), tiled.absmax.begin() + blocks);
  subbyte_kbit experts = tiled.kbit;
  experts.packed = packed.data();
  experts.absmax = absmax.data();
  experts.packed_words = std::ssize(packed);
  experts.absmax_elements = std::ssize(absmax);
  const std::vector<uint16_t> a = halves(numbers(5 * kK, 0.11));
  std::vector<uint16_t> y(5 * kN), expected(5 * kN);
  const int32_t offsets[] = {0, 2, 5};
  ASSERT_EQ(subbyte_kbit_multiply(context.get(), &experts, a.data(), y.data(), 5, SUBBYTE_F16,
                                  offsets, 2),
            SUBBYTE_OK)
      << subbyte_last_error();
  for (const auto& [first, count] : {std::pair(0, 2), {2, 3}}) {
    ASSERT_EQ(subbyte_kbit_multiply(context.get(), &tiled.kbit, &a[first * kK],
                                    &expected[first * kN], count, SUBBYTE_F16, nullptr, 0),
              SUBBYTE_OK);
  }
  EXPECT_EQ(y, expected);
  EXPECT_EQ(code_of(subbyte_kbit_multiply(context.get(), &experts, a.data(), y.data(), 5,
                                          SUBBYTE_F16, offsets, 0)),
            "c.argument");
}

TEST(CKbit, refuses_by_name) {
  const CContext context = c_context();
  const std::vector<float> w = numbers(kN * kK, 0.37);
  const auto code = [&](auto change) {
    Buffers flat(4, 0, false);
    change(flat.kbit);
    return code_of(subbyte_kbit_quantize(context.get(), w.data(), SUBBYTE_F32, &flat.kbit));
  };
  EXPECT_EQ(code([](auto&) {}), "ok");
  EXPECT_EQ(code([](auto& b) { b.k = 6; }), "c.argument");
  EXPECT_EQ(code([](auto& b) { b.p = 3; }), "c.argument");
  EXPECT_EQ(code([](auto& b) { b.n = -1; }), "c.argument");
  EXPECT_EQ(code([](auto& b) { b.n = int64_t{1} << 60; }), "c.argument");
  EXPECT_EQ(code([](auto& b) { b.packed_words = -1; }), "c.argument");
  EXPECT_EQ(code([](auto& b) { b.packed_words = 3; }), "kbit.buffer");
  EXPECT_EQ(code([](auto& b) { b.absmax_dtype = SUBBYTE_F16; }), "c.argument");
  EXPECT_EQ(code([](auto& b) { b.tiled = 1; }), "c.argument");
  EXPECT_EQ(code([](auto& b) { b.packed = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto& b) { b.absmax = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto& b) { b.codebook = nullptr; }), "c.null");
}

TEST(CHadamard, is_that_of_cxx) {
  std::vector<uint16_t> data = halves(numbers(256, 0.3));
  std::vector<uint16_t> expected = data;
  const uint32_t signs[] = {0x12345678u, 0x0u};
  ASSERT_EQ(subbyte_hadamard_rotate(data.data(), 256, SUBBYTE_F16, 64, signs), SUBBYTE_OK)
      << subbyte_last_error();
  ASSERT_TRUE(codebook::hadamard_rotate(std::as_writable_bytes(std::span(expected)), Format::kF16,
                                        64, signs)
                  .ok());
  EXPECT_EQ(data, expected);
  EXPECT_EQ(code_of(subbyte_hadamard_rotate(data.data(), 256, SUBBYTE_F16, 16, nullptr)),
            "c.argument");
  EXPECT_EQ(code_of(subbyte_hadamard_rotate(data.data(), 256, SUBBYTE_F16, 48, nullptr)),
            "hadamard.dim");
  expect_nulls_refused("rotate", &subbyte_hadamard_rotate, {4},
                       {data.data(), 256, SUBBYTE_F16, 64, signs});
}

TEST(CKbit, refuses_null_for_every_address) {
  const CContext context = c_context();
  Buffers flat(4, 0, false), tiled(4, 0, true);
  std::vector<float> w = numbers(kN * kK, 0.37);
  int64_t words = 0, elements = 0;
  expect_nulls_refused("measure", &subbyte_kbit_measure, {}, {&flat.kbit, &words, &elements});
  expect_nulls_refused("quantize", &subbyte_kbit_quantize, {},
                       {context.get(), w.data(), SUBBYTE_F32, &flat.kbit});
  expect_nulls_refused("dequantize", &subbyte_kbit_dequantize, {},
                       {context.get(), &flat.kbit, SUBBYTE_F32, w.data()});
  expect_nulls_refused("repack", &subbyte_kbit_repack, {}, {&flat.kbit, &tiled.kbit});
  expect_nulls_refused("multiply", &subbyte_kbit_multiply, {6},
                       {context.get(), &flat.kbit, w.data(), w.data(), 1, SUBBYTE_F16, nullptr, 0});
}

}  // namespace
}  // namespace subbyte::testing
