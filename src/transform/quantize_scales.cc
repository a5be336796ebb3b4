#include "transform/quantize_scales.h"

#include "formats/rotation.h"
#include "quantize/vq.h"

namespace subbyte {
namespace {

/// As the quantizer reads them.
Result<KbitBlocks> blocks_of(const QuantizeFormat& format, const std::vector<MatrixRows>& set,
                             Executor& pool) {
  KbitBlocks blocks;
  for (const MatrixRows& matrix : set) {
    const int64_t rotation = rotation_of(matrix.cols, format.rotation);
    SUBBYTE_CHECK(matrix.tensor->file->verify_unchanged());
    blocks += count_kbit_blocks(matrix.rows, matrix.cols,
                                rotated_rows(row_reader(matrix), matrix.cols, rotation), pool);
    matrix.tensor->file->release(matrix.tensor->bytes);
  }
  return blocks;
}

}  // namespace

Status choose_scales(const QuantizeFormat& format, QuantizePlan& plan, Executor& pool) {
  if (!format.f16_scales) return {};
  std::vector<bool> are_small;
  for (const std::vector<MatrixRows>& set : plan.sets) {
    SUBBYTE_TRY(const KbitBlocks blocks, blocks_of(format, set, pool));
    plan.largest.push_back(blocks.largest);
    const auto small = static_cast<double>(blocks.count_subnormal());
    are_small.push_back(small > kShareOfSmallBlocks * static_cast<double>(blocks.count()));
  }
  for (QuantizeUnit& unit : plan.units) {
    for (const QuantizeModule& module : unit.modules) {
      if (are_small[module.set]) unit.form.scale = Format::kF16;
    }
  }
  return {};
}

}  // namespace subbyte
