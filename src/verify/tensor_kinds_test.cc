#include "verify/tensor_kinds.h"

#include <gtest/gtest.h>

#include <string>

namespace subbyte {
namespace {

InspectedWeight tensor(std::string name, std::string format = "bf16") {
  return {std::move(name), "dense", std::move(format), {2, 3}, 6, 12, false};
}

/// "count name" of each kind.
std::vector<std::string> kinds_of(const std::vector<InspectedWeight>& weights) {
  std::vector<std::string> lines;
  for (const TensorKind& kind : find_tensor_kinds(weights)) {
    EXPECT_EQ(kind.weight.parameters, 6u * kind.count);
    EXPECT_EQ(kind.weight.bytes, 12u * kind.count);
    lines.push_back(std::to_string(kind.count) + " " + kind.weight.name);
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(TensorKinds, layers_that_are_alike_are_one_line) {
  std::vector<InspectedWeight> weights = {tensor("norm"), tensor("head")};
  for (const int layer : {10, 2, 0, 1, 11, 7}) {
    weights.push_back(tensor("layers." + std::to_string(layer) + ".up"));
  }
  EXPECT_EQ(kinds_of(weights), (Lines{"1 head", "6 layers.0-2,7,10-11.up", "1 norm"}));
}

TEST(TensorKinds, other_formats_are_lines_of_their_own) {
  EXPECT_EQ(kinds_of({tensor("l.0.up"), tensor("l.1.up", "f16"), tensor("l.2.up")}),
            (Lines{"2 l.0,2.up", "1 l.1.up"}));
}

TEST(TensorKinds, every_name_of_a_line_is_there) {
  std::vector<InspectedWeight> weights;
  for (int layer = 0; layer < 3; ++layer) {
    for (int expert = 0; expert < (layer == 1 ? 2 : 4); ++expert) {
      weights.push_back(
          tensor("l." + std::to_string(layer) + ".e." + std::to_string(expert) + ".up"));
    }
  }
  EXPECT_EQ(kinds_of(weights), (Lines{"8 l.0,2.e.0-3.up", "2 l.1.e.0-1.up"}));
}

TEST(TensorKinds, what_is_no_plain_number_stays) {
  EXPECT_EQ(kinds_of({tensor("a.01.b"), tensor("a.1.b"), tensor("a..b"), tensor("a.-1.b"),
                      tensor("a.99999999999999999999.b"), tensor("a.2.b")})
                .size(),
            5u);
  EXPECT_EQ(kinds_of({}), Lines{});
}

TEST(TensorKinds, numbers_are_ordered_as_numbers) {
  EXPECT_TRUE(comes_before("l.9.a", "l.10.a"));
  EXPECT_FALSE(comes_before("l.10.a", "l.9.b"));
  EXPECT_TRUE(comes_before("l.10.a", "l.10.b"));
  EXPECT_TRUE(comes_before("l", "l.0"));
  EXPECT_FALSE(comes_before("l.0", "l.0"));
}

}  // namespace
}  // namespace subbyte
