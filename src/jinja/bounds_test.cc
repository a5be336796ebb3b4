// Steps and bytes of whatever a template can do are those of its work. bench/template_bounds.cc
// measures the same more closely.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/template_generator.h"

namespace subbyte::jinja {
namespace {

template <typename Constructs, typename Kind>
bool has_all(const Constructs& constructs, Kind last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const bool has = std::ranges::any_of(
        constructs, [&](const auto& made) { return static_cast<int>(made.kind) == i; });
    if (!has) return false;
  }
  return true;
}

/// Filters, tests, functions and methods are read from the tables by which they are called.
TEST(Bounds, are_tried_for_all_that_the_language_has) {
  EXPECT_TRUE(has_all(testing::kExpressions, ExpressionKind::kConditional));
  EXPECT_TRUE(has_all(testing::kOperators, Operator::kNotIn));
  EXPECT_TRUE(has_all(testing::kStatements, NodeKind::kContinue));
  testing::TemplateGenerator generator(1);
  for (std::size_t i = 0; i < generator.num_operations(); ++i) {
    const auto sources = generator.make(i, 2, 1);
    EXPECT_TRUE(Template::compile(sources[0], "t").ok()) << generator.name(i) << ": " << sources[0];
  }
}

TEST(Bounds, of_time_grow_with_the_steps) {
  constexpr Limits kLimits = {.steps = 50'000, .bytes = 64 << 20};
  constexpr std::size_t kSize = 10'000;
  // Far above what it takes, so that a machine that does other things, too, does not matter.
  constexpr double kFreeSeconds = 0.05;
  constexpr double kSecondsPerStep = 3e-6;
  testing::TemplateGenerator generator(2026);
  for (std::size_t i = 0; i < generator.num_operations(); ++i) {
    for (const std::string& source : generator.make(i, kSize, 1 + generator.below(100))) {
      const testing::Measured found = testing::measure(source, kLimits);
      EXPECT_LE(found.seconds,
                kFreeSeconds + kSecondsPerStep * static_cast<double>(found.usage.steps))
          << generator.name(i) << ": " << source;
      EXPECT_LE(found.usage.steps, kLimits.steps) << source;
      EXPECT_LE(found.usage.bytes, kLimits.bytes) << source;
    }
  }
}

}  // namespace
}  // namespace subbyte::jinja
