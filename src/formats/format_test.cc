// What holds for every format of formats.def: the list itself, and rounding between all
// neighbours. That the decoded values are right is shown by the test of each family.

#include "formats/format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace subbyte {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Rounding kRoundings[] = {Rounding::kNearestEven, Rounding::kNearestLowerIndex,
                                   Rounding::kTowardZero};

class EveryFormat : public testing::TestWithParam<const FormatInfo*> {};

INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat, testing::ValuesIn(all_formats()),
                         [](const auto& test) { return std::string(test.param->name); });

struct Point {
  double value;
  uint32_t code;
};

/// All finite values in rising order. Of two zeros only +0, which is what a positive code is.
std::vector<Point> finite_points(const FormatInfo& format) {
  std::vector<Point> points;
  for (uint32_t code = 0; code < (1u << format.bits); ++code) {
    const double value = format.decode(code);
    if (std::isfinite(value) && !(value == 0 && std::signbit(value))) {
      points.push_back({value, code});
    }
  }
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.value < b.value; });
  return points;
}

bool has_negative_zero(const FormatInfo& format) {
  for (uint32_t code = 0; code < (1u << std::min(format.bits, 16)); ++code) {
    const double value = format.decode(code);
    if (value == 0 && std::signbit(value)) return true;
  }
  return false;
}

/// The code expected when `value` is rounded to `point`.
uint32_t expected_code(const FormatInfo& format, const Point& point, double value,
                       Rounding rounding, bool negative_zero) {
  const bool minus_zero = negative_zero && point.value == 0 && std::signbit(value) &&
                          rounding != Rounding::kNearestLowerIndex;
  return minus_zero ? 1u << (format.bits - 1) : point.code;
}

const Point& rounded(const Point& low, const Point& high, double value, Rounding rounding) {
  if (rounding == Rounding::kTowardZero) {
    if (low.value < 0 && high.value > 0) return value < 0 ? low : high;
    return std::fabs(low.value) < std::fabs(high.value) ? low : high;
  }
  const double middle = (low.value + high.value) / 2;
  if (value < middle) return low;
  if (value > middle) return high;
  if (rounding == Rounding::kNearestEven) return low.code % 2 == 0 ? low : high;
  // Sign and magnitude: among negative numbers the lower code is the one nearer to zero.
  return low.code < high.code ? low : high;
}

TEST_P(EveryFormat, has_plausible_limits) {
  const FormatInfo& format = *GetParam();
  EXPECT_GE(format.bits, 2);
  EXPECT_LE(format.bits, 32);
  EXPECT_LT(format.min, format.max);
  EXPECT_EQ(format.decode(format.encode(format.max, Rounding::kNearestEven)), format.max);
  EXPECT_EQ(format.decode(format.encode(format.min, Rounding::kNearestEven)), format.min);
  EXPECT_EQ(&info(format.id), &format);
  EXPECT_EQ(find_format(format.name), format.id);
}

TEST_P(EveryFormat, max_min_and_specials_are_those_of_the_codes) {
  const FormatInfo& format = *GetParam();
  double max = -kInf;
  double min = kInf;
  bool nan = false;
  bool infinity = false;
  // Of the 32-bit format the codes with a clear and those with a set lower half.
  const uint32_t step = format.bits > 16 ? 0xFFFF : 1;
  const uint64_t size = uint64_t{1} << format.bits;
  for (uint64_t code = 0; code < size; code += step) {
    const double value = format.decode(static_cast<uint32_t>(code));
    nan = nan || std::isnan(value);
    infinity = infinity || std::isinf(value);
    if (!std::isfinite(value)) continue;
    max = std::max(max, value);
    min = std::min(min, value);
  }
  if (format.bits <= 16) {
    EXPECT_EQ(max, format.max);
    EXPECT_EQ(min, format.min);
    EXPECT_EQ(infinity, format.specials == Specials::kNanInfinity);
  } else {
    EXPECT_LE(max, format.max);
    EXPECT_GE(min, format.min);
  }
  EXPECT_EQ(nan, format.specials != Specials::kNone);
}

TEST_P(EveryFormat, every_value_encodes_to_its_code) {
  const FormatInfo& format = *GetParam();
  if (format.bits > 16) GTEST_SKIP() << "too many codes: DenseFloats.f32_agrees_with_the_machine";
  for (const Rounding rounding : kRoundings) {
    for (uint32_t code = 0; code < (1u << format.bits); ++code) {
      const double value = format.decode(code);
      if (std::isnan(value)) continue;
      const bool minus_zero = value == 0 && std::signbit(value);
      const bool prefers_plus = minus_zero && rounding == Rounding::kNearestLowerIndex;
      ASSERT_EQ(format.encode(value, rounding), prefers_plus ? 0 : code) << value;
    }
  }
}

TEST_P(EveryFormat, rounds_between_all_neighbours) {
  const FormatInfo& format = *GetParam();
  if (format.bits > 16) {
    GTEST_SKIP() << "too many codes: DenseFloats.f32_rounds_doubles_as_the_machine_does";
  }
  const std::vector<Point> points = finite_points(format);
  const bool negative_zero = has_negative_zero(format);
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    const Point& low = points[i];
    const Point& high = points[i + 1];
    const double middle = (low.value + high.value) / 2;
    for (const double value :
         {std::nextafter(low.value, kInf), std::nextafter(middle, -kInf), middle,
          std::nextafter(middle, kInf), std::nextafter(high.value, -kInf)}) {
      for (const Rounding rounding : kRoundings) {
        const Point& point = rounded(low, high, value, rounding);
        ASSERT_EQ(format.encode(value, rounding),
                  expected_code(format, point, value, rounding, negative_zero))
            << low.value << " < " << value << " < " << high.value << ", rounding "
            << static_cast<int>(rounding);
      }
    }
  }
}

TEST_P(EveryFormat, infinity_gives_infinity_or_saturates) {
  const FormatInfo& format = *GetParam();
  const bool has_infinity = format.specials == Specials::kNanInfinity;
  for (const Rounding rounding : kRoundings) {
    EXPECT_EQ(format.decode(format.encode(kInf, rounding)), has_infinity ? kInf : format.max);
    EXPECT_EQ(format.decode(format.encode(-kInf, rounding)), has_infinity ? -kInf : format.min);
  }
}

/// Bits of every decoded value, and codes of a ladder of magnitudes down to the subnormals of
/// double.
std::vector<uint64_t> everything(const FormatInfo& format) {
  std::vector<uint64_t> results;
  const uint32_t step = format.bits > 16 ? 65521 : 1;
  for (uint64_t code = 0; code < (uint64_t{1} << format.bits); code += step) {
    results.push_back(std::bit_cast<uint64_t>(format.decode(static_cast<uint32_t>(code))));
  }
  for (uint64_t code = 1; format.bits > 16 && code < (1u << 23); code += 4099) {  // subnormals
    results.push_back(std::bit_cast<uint64_t>(format.decode(static_cast<uint32_t>(code))));
  }
  for (uint64_t bits = 1; bits < uint64_t{0x7FF} << 52; bits += uint64_t{0x0003'1415'9265'3589}) {
    for (const Rounding rounding : kRoundings) {
      results.push_back(format.encode(std::bit_cast<double>(bits), rounding));
      results.push_back(format.encode(-std::bit_cast<double>(bits), rounding));
    }
  }
  return results;
}

/// The register of the processor that says how floating point numbers are rounded and flushed.
#if defined(__x86_64__)
constexpr uint64_t kFlush = 0x8040;  // results and operands
constexpr uint64_t kRoundUp = 0x4000;
uint64_t floating_point_mode() {
  return _mm_getcsr();
}
void set_floating_point_mode(uint64_t mode) {
  _mm_setcsr(static_cast<unsigned>(mode));
}
#elif defined(__aarch64__)
constexpr uint64_t kFlush = 1u << 24;
constexpr uint64_t kRoundUp = 1u << 22;
uint64_t floating_point_mode() {
  uint64_t mode = 0;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
void set_floating_point_mode(uint64_t mode) {
  asm volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}
#endif

TEST_P(EveryFormat, ignores_the_floating_point_mode_of_the_caller) {
  const FormatInfo& format = *GetParam();
  const std::vector<uint64_t> expected = everything(format);
  const uint64_t mode = floating_point_mode();
  set_floating_point_mode(mode | kFlush);
  const std::vector<uint64_t> flushed = everything(format);
  set_floating_point_mode(mode | kRoundUp);
  const std::vector<uint64_t> upward = everything(format);
  set_floating_point_mode(mode);
  EXPECT_EQ(flushed, expected);
  EXPECT_EQ(upward, expected);
}

TEST(Formats, names_are_unique_and_lower_case) {
  std::set<std::string_view> names;
  for (const FormatInfo* format : all_formats()) {
    EXPECT_TRUE(names.insert(format->name).second) << format->name;
    for (const char c : format->name) {
      EXPECT_TRUE((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) << format->name;
    }
  }
  EXPECT_EQ(names.size(), 28u);
}

TEST(Formats, names_tell_the_size) {
  const std::vector<std::pair<const char*, int>> sizes = {
      {"f32", 32}, {"f16", 16}, {"bf16", 16}, {"e2m1", 4}, {"e4m3", 8}, {"e5m2", 8}, {"e4m4", 8},
      {"e8m0", 8}, {"nf4", 4},  {"nfl2", 2},  {"nfl3", 3}, {"nfl4", 4}, {"nfl5", 5}, {"iq4", 4},
  };
  for (const auto& [name, bits] : sizes)
    EXPECT_EQ(info(find_format(name).value()).bits, bits) << name;
}

TEST(Formats, ids_follow_the_list) {
  for (int id = 1; id <= static_cast<int>(Format::kIQ4); ++id) {
    EXPECT_EQ(static_cast<int>(info(static_cast<Format>(id)).id), id);
  }
}

TEST(Formats, vectors_have_no_values_of_their_own) {
  for (const auto& [id, name, bits] :
       {std::tuple(Format::kVQ2, "vq2", 2), {Format::kVQ4, "vq4", 4}}) {
    const FormatInfo& format = info(id);
    EXPECT_EQ(format.id, id);
    EXPECT_EQ(format.name, name);
    EXPECT_EQ(format.bits, bits);
    EXPECT_EQ(format.vector_size * bits, 8);
    EXPECT_TRUE(std::isnan(format.decode(1)));
    EXPECT_EQ(find_format(name), std::nullopt);
  }
  for (const FormatInfo* format : all_formats()) EXPECT_EQ(format->vector_size, 1);
}

TEST(Formats, unknown_names_are_not_found) {
  EXPECT_EQ(find_format(""), std::nullopt);
  EXPECT_EQ(find_format("E2M1"), std::nullopt);
  EXPECT_EQ(find_format("e2m1 "), std::nullopt);
  EXPECT_EQ(find_format("none"), std::nullopt);
}

TEST(Format, names_lead_to_formats_and_back) {
  for (int i = 1; i <= static_cast<int>(Format::kNFL5); ++i) {
    const auto format = static_cast<Format>(i);
    EXPECT_EQ(find_format(name(format)), format);
  }
  EXPECT_EQ(name(Format::kNone), "none");
  EXPECT_EQ(bits(Format::kE2M1), 4);
  EXPECT_EQ(decode(Format::kE2M1, 0x7), 6);
  EXPECT_EQ(encode(Format::kE2M1, -3.1), 0xDu);
}

}  // namespace
}  // namespace subbyte
