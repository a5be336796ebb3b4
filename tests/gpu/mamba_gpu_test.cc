// Blocks of Mamba 2 of several sequences on the GPU, cut into steps, beside the definition in
// double precision: long prompts in chunks, with operands of 16 bits; in batch-invariant mode token
// by token, with the same bits however a sequence is cut.

#include <gtest/gtest.h>

#include "model_on_gpu.h"
#include "support/mamba_model.h"

namespace subbyte::testing {
namespace {

TEST(GpuMambas, are_those_of_the_definition) {
  for (const Activations activations : {Activations::kF32, Activations::kBF16}) {
    const bool is_bf16 = activations == Activations::kBF16;
    SCOPED_TRACE(is_bf16 ? "bf16" : "f16");
    const auto backend = std::move(make_backend(gpu(activations))).value();
    expect_mambas(*backend, is_bf16 ? Element::kBF16 : Element::kF16, is_bf16 ? 0x1p-8 : 0x1p-11);
  }
}

TEST(GpuMambas, have_the_same_bits_however_they_are_cut) {
  DeviceOptions options = gpu(Activations::kBF16);
  options.batch_invariant = true;
  const auto backend = std::move(make_backend(options)).value();
  expect_same_mambas_however_cut(*backend, Element::kBF16);
  expect_mambas(*backend, Element::kBF16, 0x1p-8);
}

}  // namespace
}  // namespace subbyte::testing
