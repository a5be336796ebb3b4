// Models by stages, on the CPU and a GPU after it and on two GPUs, beside one GPU.

#include <gtest/gtest.h>

#include "device/gpu.h"
#include "divided_model.h"
#include "model_on_gpu.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

using namespace testing;  // of tests/gpu/model_on_gpu.h

class StagesOnGpus : public ::testing::TestWithParam<const char*> {};

TEST_P(StagesOnGpus, logits_of_some_layers_on_a_gpu_are_those_of_all) {
  DeviceOptions options = testing::gpu();
  options.gpu_layers = 2;  // the last one and lm_head
  expect_as_on_one_gpu(GetParam(), options);
}

TEST_P(StagesOnGpus, logits_of_two_gpus_are_those_of_one) {
  DeviceOptions options = testing::gpu();
  options.pipeline_parallel_size = 2;
  if (value_of(device::count_gpus()) < 2) GTEST_SKIP() << "this machine has one GPU";
  expect_as_on_one_gpu(GetParam(), options);
}

INSTANTIATE_TEST_SUITE_P(Goldens, StagesOnGpus, ::testing::ValuesIn(goldens(kFew)), NamedByValue());
INSTANTIATE_TEST_SUITE_P(States, StagesOnGpus, ::testing::ValuesIn(goldens(kEveryBorder)),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
