// Short convolutions of several sequences on the GPU, cut into steps, beside the definition in
// double precision: of channels that are multiples of eight, and of others.

#include <gtest/gtest.h>

#include "model_on_gpu.h"
#include "support/short_conv_model.h"

namespace subbyte::testing {
namespace {

TEST(GpuShortConvs, are_what_the_definition_says_however_sequences_are_cut) {
  for (const Activations activations : {Activations::kF32, Activations::kBF16}) {
    const auto backend = std::move(make_backend(gpu(activations))).value();
    const bool is_bf16 = activations == Activations::kBF16;
    expect_short_convs(*backend, is_bf16 ? Element::kBF16 : Element::kF16,
                       is_bf16 ? 0x1p-8 : 0x1p-11);
  }
}

}  // namespace
}  // namespace subbyte::testing
