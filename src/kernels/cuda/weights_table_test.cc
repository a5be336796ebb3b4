// The table of docs/kernels/cuda.md, "What is compiled", has the lines of weights.def.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/weight_kind.h"
#include "support/paths.h"

namespace subbyte::cuda {
namespace {

struct WeightsLine {
  std::string name;
  DecoderKind decoder;
  int bits;
  int groups;  // of a tile of 64 inputs
  int levels;  // of scales
};

std::vector<WeightsLine> weights_lines() {
  return {
#define SUBBYTE_CUDA_WEIGHTS(name, decoder, bits, groups, levels) \
  {#name, DecoderKind::k##decoder, bits, groups, levels},
#include "kernels/cuda/weights.def"
#undef SUBBYTE_CUDA_WEIGHTS
  };
}

std::string elements_of(const WeightsLine& line) {
  const std::string bits = std::to_string(line.bits);
  if (line.levels == 2) {
    const bool has_offsets = superblock_of(true, line.bits, line.groups).has_offsets;
    if (line.decoder == DecoderKind::kCodebook) {
      return std::string(line.bits == 4 ? "iq4, nfl4" : "nfl3") + ", scales of two levels";
    }
    return (has_offsets ? "u" + bits + ", scales and offsets" : "i" + bits + ", scales") +
           " of two levels";
  }
  if (line.decoder == DecoderKind::kIntegers) return "u" + bits + ", i" + bits;
  if (line.decoder == DecoderKind::kE2M1) return "e2m1";
  if (line.decoder == DecoderKind::kE4M3) return "e4m3";
  if (line.decoder == DecoderKind::kVectors) return "vq" + bits;
  return (line.bits == 4 ? "nf4, iq4, nfl" : "nfl") + bits;
}

std::string group_of(const WeightsLine& line) {
  const bool whole = line.decoder == DecoderKind::kIntegers || line.decoder == DecoderKind::kE4M3;
  if (line.groups == 1 && whole) return "multiples of 64, rows";
  return std::to_string(kTileCols / line.groups);
}

/// How codes become numbers.
std::string decoding_of(const WeightsLine& line) {
  switch (line.decoder) {
    case DecoderKind::kIntegers:
      return "raw codes; large_m less zero points";
    case DecoderKind::kE2M1:
      return "bits moved";
    case DecoderKind::kE4M3:
      return "an instruction; sm_80 bits moved";
    case DecoderKind::kVectors:
      return "table of vectors";
    default:
      return line.bits == 5 ? "values in registers" : "table of pairs";
  }
}

std::string table() {
  std::string text = "|kind|elements|group|how codes become numbers|\n|---|---|---|---|\n";
  for (const WeightsLine& line : weights_lines()) {
    text += "|`" + line.name + "`|" + elements_of(line) + "|" + group_of(line) + "|" +
            decoding_of(line) + "|\n";
  }
  return text;
}

TEST(CudaWeightsTable, of_the_docs_has_every_line_and_the_number_of_kernels) {
  std::ifstream file(std::string(SUBBYTE_TEST_DATA) + "/../../docs/kernels/cuda.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::size_t lines = weights_lines().size();
  const std::string count = std::to_string(lines) + " x 2 x " + std::to_string(kKernelKinds) +
                            " = " + std::to_string(lines * 2 * kKernelKinds) + " kernels";
  EXPECT_NE(text.str().find(count), std::string::npos) << "docs/kernels/cuda.md lacks: " << count;
  EXPECT_NE(text.str().find("\n" + table() + "\n"), std::string::npos)
      << "docs/kernels/cuda.md lacks this table:\n"
      << table();
}

}  // namespace
}  // namespace subbyte::cuda
