#include "matrix/input_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace subbyte {
namespace {

TEST(InputOrder, is_every_input_once) {
  EXPECT_EQ(input_order_fault({}), "");
  EXPECT_EQ(input_order_fault(std::vector<uint32_t>{2, 0, 3, 1}), "");
  EXPECT_EQ(input_order_fault(std::vector<uint32_t>{0, 1, 1}),
            "every input once, found 1 at column 2");
  EXPECT_EQ(input_order_fault(std::vector<uint32_t>{0, 3, 1}),
            "every input once, found 3 at column 1");
  EXPECT_EQ(input_order_fault(std::vector<uint32_t>{0, 0xFFFFFFFFu}),
            "every input once, found -1 at column 1");
}

}  // namespace
}  // namespace subbyte
