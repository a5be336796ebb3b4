// Short convolutions of several sequences, cut into steps, beside the definition in double
// precision.

#include <gtest/gtest.h>

#include "cpu_backend/cpu_backend.h"
#include "support/isa_test.h"
#include "support/short_conv_model.h"

namespace subbyte {
namespace {

TEST(ShortConvs, are_what_the_definition_says_however_sequences_are_cut) {
  for (const std::string& isa : testing::isas_of_this_machine()) {
    const auto backend = std::move(make_cpu_backend({.num_threads = 2, .isa = isa})).value();
    testing::expect_short_convs(*backend, Element::kF32, 0x1p-24);
  }
}

}  // namespace
}  // namespace subbyte
