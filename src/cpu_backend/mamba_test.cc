// Blocks of Mamba 2 of several sequences, cut into steps, beside the definition in double
// precision.

#include <gtest/gtest.h>

#include "cpu_backend/cpu_backend.h"
#include "support/isa_test.h"
#include "support/mamba_model.h"

namespace subbyte {
namespace {

TEST(Mambas, are_those_of_the_definition) {
  for (const std::string& isa : testing::isas_of_this_machine()) {
    SCOPED_TRACE(isa);
    const auto backend = std::move(make_cpu_backend({.num_threads = 2, .isa = isa})).value();
    testing::expect_mambas(*backend, Element::kF32, 0);
  }
}

TEST(Mambas, have_the_same_bits_however_they_are_cut) {
  for (const std::string& isa : testing::isas_of_this_machine()) {
    SCOPED_TRACE(isa);
    const auto backend =
        std::move(make_cpu_backend({.num_threads = 2, .isa = isa, .batch_invariant = true}))
            .value();
    testing::expect_same_mambas_however_cut(*backend, Element::kF32);
    testing::expect_mambas(*backend, Element::kF32, 0);
  }
}

}  // namespace
}  // namespace subbyte
