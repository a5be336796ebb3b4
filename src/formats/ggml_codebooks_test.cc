#include <gtest/gtest.h>

#include "formats/format.h"

namespace subbyte {
namespace {

TEST(GgmlCodebooks, iq4_decodes_the_published_table) {
  const int table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  for (uint32_t code = 0; code < 16; ++code) {
    EXPECT_EQ(info(Format::kIQ4).decode(code), table[code]) << code;
    EXPECT_EQ(info(Format::kIQ4).encode(table[code] + 2, Rounding::kNearestEven), code);
  }
}

}  // namespace
}  // namespace subbyte
