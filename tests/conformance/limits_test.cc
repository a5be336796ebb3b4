// Large and expensive headers: memory and time stay in proportion to the header.

#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <string>

#include "checkpoints/containers/safetensors.h"
#include "checkpoints/containers/safetensors_codes.h"
#include "conformance/allocation_counter.h"
#include "conformance/case_list.h"
#include "support/sanitized.h"

namespace subbyte::conformance {
namespace {

namespace codes = safetensors_codes;

// Sanitizers, and readers without optimization in their build, slow everything down by some 25 and
// say nothing about proportions.
constexpr std::size_t kScale = testing::kSanitized ? 20 : 1;
constexpr double kSlowdown = testing::kSanitized ? 25 : 1;

constexpr std::size_t kLimit = 100'000'000 / kScale;  // the largest header there can be
constexpr std::size_t kSmaller = 20'000'000 / kScale;

/// Sorting 2 million names takes some hundred nanoseconds for each, one name has 50 bytes and
/// parsing takes about 10 ns for each byte: 100 ns leave room for a busy machine. Anything
/// quadratic in the number of entries takes more than 10,000 ns; of a header that is a twentieth as
/// large, 500 ns and the slowdown.
constexpr double kMaxNanosecondsPerByte = 100;

struct Measured {
  std::string_view code;
  double ns_per_byte;
};

Measured read(const std::string& file) {
  const AllocationPeak peak;
  timespec start{};
  timespec end{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  const auto header = read_safetensors_header(std::as_bytes(std::span(file)), file.size(), "f");
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  const std::size_t header_size = file.size() - 8;
  EXPECT_LE(peak.bytes(), 16 * header_size + (1 << 20))
      << static_cast<double>(peak.bytes()) / static_cast<double>(header_size);
  const double ns = static_cast<double>(end.tv_sec - start.tv_sec) * 1e9 +
                    static_cast<double>(end.tv_nsec - start.tv_nsec);
  return {header.ok() ? std::string_view() : header.error().code,
          ns / static_cast<double>(header_size)};
}

void expect_bounded(const std::string& file, std::string_view code) {
  const Measured measured = read(file);
  EXPECT_EQ(measured.code, code);
  EXPECT_LE(measured.ns_per_byte, kMaxNanosecondsPerByte * kSlowdown);
}

/// Repeats `member(i)` up to `size` bytes of header and ends with `tail`.
std::string many(std::size_t size, const std::function<std::string(std::size_t)>& member,
                 std::string_view tail = {}) {
  std::string header = "{";
  for (std::size_t i = 0;; ++i) {
    const std::string next = member(i);
    if (header.size() + next.size() + 2 + tail.size() > size) break;
    if (i > 0) header += ',';
    header += next;
  }
  return safetensors_bytes(header.append(tail).append("}"));
}

std::string empty_tensor(std::size_t i) {
  return entry(std::to_string(i), "U8", "[0]", "[0,0]");
}

TEST(Limits, hold_for_every_small_case) {
  for (const FileCase& file : file_cases()) {
    const AllocationPeak peak;
    {
      const auto header =
          read_safetensors_header(std::as_bytes(std::span(file.bytes)), file.bytes.size(), "f");
    }
    EXPECT_LE(peak.bytes(), 16 * file.bytes.size() + (1 << 20)) << file.name;
  }
}

TEST(Limits, the_counter_counts) {
  const AllocationPeak peak;
  { const std::string text(1'000'000, 'x'); }
  { const std::string text(2'000'000, 'x'); }
  EXPECT_GE(peak.bytes(), 2'000'000u);
  EXPECT_LE(peak.bytes(), 2'100'000u);
}

TEST(Limits, the_largest_header_of_tiny_entries_loads) {
  expect_bounded(many(kLimit, empty_tensor), {});
}

TEST(Limits, a_duplicate_at_the_end_of_the_largest_header_is_found) {
  expect_bounded(many(kSmaller, empty_tensor, "," + empty_tensor(1000)), codes::kDuplicateName);
}

TEST(Limits, entries_in_falling_order_load) {
  const std::size_t count = kSmaller / 60;
  std::string header = "{";
  for (std::size_t i = count; i-- > 0;) {
    header += entry(std::to_string(i), "U8", "[]",
                    "[" + std::to_string(i) + "," + std::to_string(i + 1) + "]") +
              (i == 0 ? "}" : ",");
  }
  const std::string start = safetensors_bytes(header);
  const auto loaded =
      read_safetensors_header(std::as_bytes(std::span(start)), start.size() + count, "f");
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->tensors[count / 2].name, std::to_string(count / 2));
}

TEST(Limits, tiny_metadata_load) {
  const auto pair = [](std::size_t i) { return '"' + std::to_string(i) + "\":\"\""; };
  const std::string pairs = many(kSmaller, pair);
  expect_bounded(safetensors_bytes(R"({"__metadata__":)" + pairs.substr(8) + "}"), {});
}

TEST(Limits, shapes_of_the_highest_rank_load) {
  const std::string shape = "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]";
  expect_bounded(
      many(kSmaller, [&](std::size_t i) { return entry(std::to_string(i), "U8", shape, "[0,0]"); }),
      {});
}

TEST(Limits, names_with_a_long_common_start_load) {
  const std::string start(1000, 'n');
  expect_bounded(
      many(kSmaller,
           [&](std::size_t i) { return entry(start + std::to_string(i), "U8", "[0]", "[0,0]"); }),
      {});
}

TEST(Limits, a_million_identical_ranges_are_refused) {
  const std::string header = many(1'000'000 / kScale * 60, [](std::size_t i) {
    return entry(std::to_string(i), "U8", "[4]", "[0,4]");
  });
  expect_bounded(header + "data", codes::kOverlap);
}

TEST(Limits, endless_tokens_are_refused) {
  expect_bounded(safetensors_bytes("{\"" + std::string(kLimit - 2, 'n')), codes::kJson);
  expect_bounded(safetensors_bytes("{\"" + std::string(kSmaller, 'n') + "\":1}"), codes::kBadName);
  expect_bounded(safetensors_bytes(std::string(kSmaller, '1')), codes::kJson);
  expect_bounded(safetensors_bytes("{\"" + repeat("\\u00", kSmaller / 4)), codes::kJson);
  expect_bounded(safetensors_bytes(std::string(kSmaller, ' ')), codes::kJson);
  expect_bounded(safetensors_bytes(std::string(kSmaller, '\0')), codes::kJson);
  expect_bounded(safetensors_bytes(R"({"a":{"dtype":")" + std::string(kSmaller, 'F') + "\"}}"),
                 codes::kDtype);
}

TEST(Limits, endless_nesting_is_refused) {
  const std::string arrays(kSmaller, '[');
  expect_bounded(safetensors_bytes(arrays), codes::kNotObject);
  expect_bounded(safetensors_bytes(R"({"a":{"dtype":"U8","shape":)" + arrays), codes::kShape);
  expect_bounded(safetensors_bytes(R"({"__metadata__":{"k":)" + arrays), codes::kMetadata);
  expect_bounded(safetensors_bytes(repeat(R"({"a":)", kSmaller / 5)), codes::kUnknownField);
}

}  // namespace
}  // namespace subbyte::conformance
