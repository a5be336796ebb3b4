// One thing damaged in a model of FP8 gives that finding and no other.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "verify/sound_models.h"

namespace subbyte::conformance {
namespace {

const std::string kWeight = std::string(kUp) + ".weight";
const std::string kFactors = kWeight + "_scale_inv";

/// `line` is the only one, and its text contains `found`.
void expect_finding(const std::function<void(TinyModel&)>& damage, const std::string& line,
                    const std::string& found) {
  TinyModel model = sound_fp8();
  damage(model);
  const VerifyReport report = verify_model(model);
  EXPECT_EQ(lines(report), std::vector<std::string>{line});
  for (const Finding& finding : report.findings) {
    EXPECT_NE(to_string(finding).find(found), std::string::npos) << to_string(finding);
  }
}

TEST(Fp8Damage, codes_of_nan) {
  expect_finding(
      [](TinyModel& m) {
        m.up(".weight").set<uint8_t>(70, 0x7F);
        m.up(".weight").set<uint8_t>(71, 0xFF);
      },
      "error import.not_finite " + kWeight,
      "2 of 2048 that are NaN or infinite, the first of output 2, input 6");
}

TEST(Fp8Damage, factors) {
  expect_finding([](TinyModel& m) { m.up(".weight_scale_inv").set<uint32_t>(5, 0x7FC00000); },
                 "error import.scale_not_finite " + kFactors, "the first at [2, 1]");
  expect_finding([](TinyModel& m) { m.up(".weight_scale_inv").set<float>(5, 0); },
                 "warning verify.scale_zero " + kFactors,
                 "16 of 128 scales that are 0, the first of output 32, group 1");
  expect_finding(
      [](TinyModel& m) {
        m.up(".weight_scale_inv") = filled<float>(kFactors, DType::kF32, {kInner / 16, 1}, 1.0F);
      },
      "error import.shape " + kFactors, "shape [4, 2]");
}

TEST(Fp8Damage, a_module_that_is_to_be_kept) {
  expect_finding(
      [](TinyModel& m) { m.quantization()["modules_to_not_convert"] = {std::string(kUp)}; },
      "error import.config " + kWeight, "found e4m3 g16");
}

}  // namespace
}  // namespace subbyte::conformance
