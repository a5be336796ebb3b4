#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include "formats/format.h"

namespace subbyte {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The tables come from exact rational arithmetic in another language, one exponent to a line.

const std::vector<double> kE2m1 = {
    0,    0.5,  1,  1.5,  2,  3,  4,  6,  //
    -0.0, -0.5, -1, -1.5, -2, -3, -4, -6,
};

const std::vector<double> kE4m3Positive = {
    0,         0.001953125, 0.00390625, 0.005859375,
    0.0078125, 0.009765625, 0.01171875, 0.013671875,  //
    0.015625,  0.017578125, 0.01953125, 0.021484375,
    0.0234375, 0.025390625, 0.02734375, 0.029296875,  //
    0.03125,   0.03515625,  0.0390625,  0.04296875,
    0.046875,  0.05078125,  0.0546875,  0.05859375,  //
    0.0625,    0.0703125,   0.078125,   0.0859375,
    0.09375,   0.1015625,   0.109375,   0.1171875,  //
    0.125,     0.140625,    0.15625,    0.171875,
    0.1875,    0.203125,    0.21875,    0.234375,  //
    0.25,      0.28125,     0.3125,     0.34375,
    0.375,     0.40625,     0.4375,     0.46875,  //
    0.5,       0.5625,      0.625,      0.6875,
    0.75,      0.8125,      0.875,      0.9375,  //
    1,         1.125,       1.25,       1.375,
    1.5,       1.625,       1.75,       1.875,  //
    2,         2.25,        2.5,        2.75,
    3,         3.25,        3.5,        3.75,  //
    4,         4.5,         5,          5.5,
    6,         6.5,         7,          7.5,  //
    8,         9,           10,         11,
    12,        13,          14,         15,  //
    16,        18,          20,         22,
    24,        26,          28,         30,  //
    32,        36,          40,         44,
    48,        52,          56,         60,  //
    64,        72,          80,         88,
    96,        104,         112,        120,  //
    128,       144,         160,        176,
    192,       208,         224,        240,  //
    256,       288,         320,        352,
    384,       416,         448,        kNan,  //
};

// In units of 2^-16.
const std::vector<double> kE5m2PositiveUnits = {
    0,          1,          2,          3,
    4,          5,          6,          7,  //
    8,          10,         12,         14,
    16,         20,         24,         28,  //
    32,         40,         48,         56,
    64,         80,         96,         112,  //
    128,        160,        192,        224,
    256,        320,        384,        448,  //
    512,        640,        768,        896,
    1024,       1280,       1536,       1792,  //
    2048,       2560,       3072,       3584,
    4096,       5120,       6144,       7168,  //
    8192,       10240,      12288,      14336,
    16384,      20480,      24576,      28672,  //
    32768,      40960,      49152,      57344,
    65536,      81920,      98304,      114688,  //
    131072,     163840,     196608,     229376,
    262144,     327680,     393216,     458752,  //
    524288,     655360,     786432,     917504,
    1048576,    1310720,    1572864,    1835008,  //
    2097152,    2621440,    3145728,    3670016,
    4194304,    5242880,    6291456,    7340032,  //
    8388608,    10485760,   12582912,   14680064,
    16777216,   20971520,   25165824,   29360128,  //
    33554432,   41943040,   50331648,   58720256,
    67108864,   83886080,   100663296,  117440512,  //
    134217728,  167772160,  201326592,  234881024,
    268435456,  335544320,  402653184,  469762048,  //
    536870912,  671088640,  805306368,  939524096,
    1073741824, 1342177280, 1610612736, 1879048192,  //
    2147483648, 2684354560, 3221225472, 3758096384,
    kInf,       kNan,       kNan,       kNan,  //
};

// In units of 2^-14.
const std::vector<double> kE4m4Units = {
    0,      1,      2,      3,      4,      5,      6,      7,
    8,      9,      10,     11,     12,     13,     14,     15,  //
    16,     17,     18,     19,     20,     21,     22,     23,
    24,     25,     26,     27,     28,     29,     30,     31,  //
    32,     34,     36,     38,     40,     42,     44,     46,
    48,     50,     52,     54,     56,     58,     60,     62,  //
    64,     68,     72,     76,     80,     84,     88,     92,
    96,     100,    104,    108,    112,    116,    120,    124,  //
    128,    136,    144,    152,    160,    168,    176,    184,
    192,    200,    208,    216,    224,    232,    240,    248,  //
    256,    272,    288,    304,    320,    336,    352,    368,
    384,    400,    416,    432,    448,    464,    480,    496,  //
    512,    544,    576,    608,    640,    672,    704,    736,
    768,    800,    832,    864,    896,    928,    960,    992,  //
    1024,   1088,   1152,   1216,   1280,   1344,   1408,   1472,
    1536,   1600,   1664,   1728,   1792,   1856,   1920,   1984,  //
    2048,   2176,   2304,   2432,   2560,   2688,   2816,   2944,
    3072,   3200,   3328,   3456,   3584,   3712,   3840,   3968,  //
    4096,   4352,   4608,   4864,   5120,   5376,   5632,   5888,
    6144,   6400,   6656,   6912,   7168,   7424,   7680,   7936,  //
    8192,   8704,   9216,   9728,   10240,  10752,  11264,  11776,
    12288,  12800,  13312,  13824,  14336,  14848,  15360,  15872,  //
    16384,  17408,  18432,  19456,  20480,  21504,  22528,  23552,
    24576,  25600,  26624,  27648,  28672,  29696,  30720,  31744,  //
    32768,  34816,  36864,  38912,  40960,  43008,  45056,  47104,
    49152,  51200,  53248,  55296,  57344,  59392,  61440,  63488,  //
    65536,  69632,  73728,  77824,  81920,  86016,  90112,  94208,
    98304,  102400, 106496, 110592, 114688, 118784, 122880, 126976,  //
    131072, 139264, 147456, 155648, 163840, 172032, 180224, 188416,
    196608, 204800, 212992, 221184, 229376, 237568, 245760, 253952,  //
    262144, 278528, 294912, 311296, 327680, 344064, 360448, 376832,
    393216, 409600, 425984, 442368, 458752, 475136, 491520, 507904,  //
};

std::vector<double> scaled(std::vector<double> table, int exponent) {
  for (double& value : table) value = std::ldexp(value, exponent);
  return table;
}

std::vector<double> with_negatives(std::vector<double> table) {
  const std::size_t half = table.size();
  for (std::size_t i = 0; i < half; ++i) table.push_back(-table[i]);
  return table;
}

void expect_decodes_to(Format format, const std::vector<double>& table) {
  ASSERT_EQ(table.size(), std::size_t{1} << info(format).bits);
  for (uint32_t code = 0; code < table.size(); ++code) {
    const double value = info(format).decode(code);
    if (std::isnan(table[code])) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(value, table[code]) << code;
      EXPECT_EQ(std::signbit(value), std::signbit(table[code])) << code;
    }
  }
}

uint32_t nearest(Format format, double value) {
  return info(format).encode(value, Rounding::kNearestEven);
}

uint32_t truncated(Format format, double value) {
  return info(format).encode(value, Rounding::kTowardZero);
}

TEST(SmallFloats, decodes_all_codes) {
  expect_decodes_to(Format::kE2M1, kE2m1);
  expect_decodes_to(Format::kE4M3, with_negatives(kE4m3Positive));
  expect_decodes_to(Format::kE5M2, with_negatives(scaled(kE5m2PositiveUnits, -16)));
  expect_decodes_to(Format::kE4M4, scaled(kE4m4Units, -14));
}

TEST(SmallFloats, e2m1_rounds_ties_to_even_and_saturates) {
  const std::vector<std::pair<double, double>> cases = {
      {0.25, 0}, {0.75, 1}, {1.25, 1}, {1.75, 2}, {2.5, 2},  {3.5, 4},
      {5, 4},    {5.01, 6}, {7, 6},    {100, 6},  {kInf, 6}, {1e-300, 0},
  };
  for (const auto& [value, rounded] : cases) {
    const FormatInfo& e2m1 = info(Format::kE2M1);
    EXPECT_EQ(e2m1.decode(nearest(Format::kE2M1, value)), rounded) << value;
    EXPECT_EQ(e2m1.decode(nearest(Format::kE2M1, -value)), -rounded) << value;
  }
}

TEST(SmallFloats, e2m1_lower_index_is_the_rule_of_ggml) {
  // A search for the smallest distance that starts at code 0 and replaces only by a smaller one.
  const auto search = [](double value) {
    uint32_t best = 0;
    for (uint32_t code = 1; code < 16; ++code) {
      if (std::fabs(value - kE2m1[code]) < std::fabs(value - kE2m1[best])) best = code;
    }
    return best;
  };
  for (int i = -1000; i <= 1000; ++i) {
    const double value = i / 128.0;
    EXPECT_EQ(info(Format::kE2M1).encode(value, Rounding::kNearestLowerIndex), search(value))
        << value;
  }
}

TEST(SmallFloats, overflow_saturates_without_infinity) {
  EXPECT_EQ(nearest(Format::kE4M3, 449), 0x7Eu);
  EXPECT_EQ(nearest(Format::kE4M3, 464), 0x7Eu);  // the tie with 480, which is NaN's code
  EXPECT_EQ(nearest(Format::kE4M3, 480), 0x7Eu);
  EXPECT_EQ(nearest(Format::kE4M3, 1e300), 0x7Eu);
  EXPECT_EQ(nearest(Format::kE4M3, kInf), 0x7Eu);
  EXPECT_EQ(nearest(Format::kE4M3, -kInf), 0xFEu);
  EXPECT_EQ(truncated(Format::kE4M3, 1e300), 0x7Eu);
}

TEST(SmallFloats, e4m4_carries_and_saturates) {
  // What the encoder upstream gets wrong: 32 -> 16, 40 -> 20, 64 -> 16; 1.97 -> 1.9375.
  for (const double value : {31.5, 32.0, 40.0, 64.0, 1e300, kInf}) {
    EXPECT_EQ(nearest(Format::kE4M4, value), 0xFFu) << value;
  }
  EXPECT_EQ(info(Format::kE4M4).decode(nearest(Format::kE4M4, 1.97)), 2);
  EXPECT_EQ(info(Format::kE4M4).decode(nearest(Format::kE4M4, 15.9)), 16);
  // From the subnormals into the normals, and below half of the smallest.
  EXPECT_EQ(nearest(Format::kE4M4, std::ldexp(15.75, -14)), 0x10u);
  EXPECT_EQ(nearest(Format::kE4M4, std::ldexp(1, -15)), 0u);
  EXPECT_EQ(nearest(Format::kE4M4, std::ldexp(1.001, -15)), 1u);
}

TEST(SmallFloats, unsigned_formats_clamp_negatives_to_zero) {
  for (const double value : {-0.0, -1e-300, -1.0, -kInf}) {
    EXPECT_EQ(nearest(Format::kE4M4, value), 0u) << value;
  }
}

TEST(SmallFloats, e5m2_overflows_to_infinity_as_ieee_754_says) {
  // Max 57344, the next step would be 65536, half way is 61440.
  EXPECT_EQ(nearest(Format::kE5M2, 61439.999), 0x7Bu);
  EXPECT_EQ(nearest(Format::kE5M2, 61440), 0x7Cu);
  EXPECT_EQ(nearest(Format::kE5M2, -61440), 0xFCu);
  EXPECT_EQ(nearest(Format::kE5M2, 1e300), 0x7Cu);
  EXPECT_EQ(nearest(Format::kE5M2, kInf), 0x7Cu);
  EXPECT_EQ(truncated(Format::kE5M2, 1e300), 0x7Bu);
  EXPECT_EQ(truncated(Format::kE5M2, kInf), 0x7Cu);
  const FormatInfo& e5m2 = info(Format::kE5M2);
  EXPECT_EQ(e5m2.encode(61440, Rounding::kNearestLowerIndex), 0x7Bu);
  EXPECT_EQ(e5m2.encode(61441, Rounding::kNearestLowerIndex), 0x7Cu);
}

TEST(SmallFloats, nan_becomes_the_nan_code_or_zero) {
  for (const Rounding rounding :
       {Rounding::kNearestEven, Rounding::kNearestLowerIndex, Rounding::kTowardZero}) {
    for (const double nan : {kNan, -kNan, std::numeric_limits<double>::signaling_NaN()}) {
      EXPECT_EQ(info(Format::kE2M1).encode(nan, rounding), 0u);
      EXPECT_EQ(info(Format::kE4M3).encode(nan, rounding), 0x7Fu);
      EXPECT_EQ(info(Format::kE5M2).encode(nan, rounding), 0x7Eu);
      EXPECT_EQ(info(Format::kE4M4).encode(nan, rounding), 0u);
    }
  }
}

}  // namespace
}  // namespace subbyte
