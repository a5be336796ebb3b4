#include "transform/quantize_widths.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "checkpoints/import_parts.h"
#include "quantize/loss.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxRows = 256;  // of a matrix that are measured

/// What a unit loses with each width of the format.
struct Losses {
  QuantizeUnit* unit = nullptr;
  std::vector<double> errors;
  std::size_t width = 0;  // that it has now

  double cost(const QuantizeFormat& format, std::size_t to) const {
    return static_cast<double>(unit->weights()) * (format.bits[to] - format.bits[width]);
  }
};

/// Every `step`th row.
MatrixRows sample_of(MatrixRows matrix) {
  const int64_t step = std::max<int64_t>(1, matrix.rows / kMaxRows);
  matrix.rows = (matrix.rows + step - 1) / step;
  matrix.row_step *= step;
  return matrix;
}

Result<Losses> measure_noise(const QuantizeFormat& format, QuantizeUnit& unit, Executor& pool) {
  Losses losses = {&unit, {}, 0};
  for (const int bits : format.bits) {
    QuantizeForm form = unit.form;
    form.bits = bits;
    SignalAndNoise sum;
    for (const QuantizeModule& module : unit.modules) {
      for (const MatrixRows& matrix : module.matrices) {
        const MatrixRows sample = sample_of(matrix);
        const RowReader read_row = row_reader(sample);
        SUBBYTE_CHECK(matrix.tensor->file->verify_unchanged());
        const auto quantized = format.quantize({sample.rows, sample.cols, read_row, 0}, form, pool);
        if (!quantized.ok()) {
          return tensor_error(quantized.error().code, *matrix.tensor, quantized.error().message);
        }
        sum += quantization_error(quantized->view, read_row, pool);
      }
    }
    losses.errors.push_back(sum.signal == 0 ? 0 : sum.noise / sum.signal);
  }
  return losses;
}

/// Makes the errors divergences of the predictions: that of one width is measured, and the others
/// are to it as their noise is.
Status weight(Losses& losses, const QuantizeFormat& format, double bits,
              const MeasureUnit& measure) {
  std::size_t probe = 0;  // the width next to the mean, from below
  while (probe + 1 < format.bits.size() && format.bits[probe + 1] <= bits) ++probe;
  QuantizeForm form = losses.unit->form;
  form.bits = format.bits[probe];
  const double noise = losses.errors[probe];
  if (noise == 0) return {};
  SUBBYTE_TRY(const double divergence, measure(losses.unit->name, form));
  for (double& error : losses.errors) error *= std::max(0.0, divergence) / noise;
  return {};
}

/// The unit and the width with which the error falls most for each bit; nullptr when no more of
/// them fits.
std::pair<Losses*, std::size_t> best_step(const QuantizeFormat& format, std::vector<Losses>& all,
                                          double left) {
  std::pair<Losses*, std::size_t> best = {nullptr, 0};
  double best_gain = -1;
  for (Losses& losses : all) {
    for (std::size_t to = losses.width + 1; to < losses.errors.size(); ++to) {
      const double cost = losses.cost(format, to);
      if (cost > left) break;
      const double gain = (losses.errors[losses.width] - losses.errors[to]) / cost;
      if (gain <= best_gain) continue;
      best_gain = gain;
      best = {&losses, to};
    }
  }
  return best;
}

}  // namespace

Status choose_widths(const QuantizeFormat& format, double bits, const MeasureUnit& measure,
                     const std::function<void(int64_t done, int64_t all)>& measured,
                     QuantizePlan& plan, Executor& pool) {
  if (!format.mixed) {
    return Error{"quantize.bits", fmt::format("{} bits on average need widths that differ, and {} "
                                              "has one for all matrices; compressed-tensors and "
                                              "gptq have several",
                                              bits, format.name)};
  }
  if (bits < format.bits.front() || bits > format.bits.back()) {
    return Error{"quantize.bits",
                 fmt::format("{} bits, expected {} to {}, as {} has", bits, format.bits.front(),
                             format.bits.back(), format.name)};
  }
  std::vector<Losses> all;
  double left = 0;
  const int64_t num_units = std::ranges::count(plan.units, false, &QuantizeUnit::has_own_bits);
  if (measured) measured(0, num_units);
  for (QuantizeUnit& unit : plan.units) {
    if (unit.has_own_bits) continue;
    SUBBYTE_TRY(Losses losses, measure_noise(format, unit, pool));
    if (measure) SUBBYTE_CHECK(weight(losses, format, bits, measure));
    all.push_back(std::move(losses));
    left += static_cast<double>(unit.weights()) * (bits - format.bits.front());
    if (measured) measured(std::ssize(all), num_units);
  }
  while (true) {
    const auto [losses, width] = best_step(format, all, left);
    if (losses == nullptr) break;
    left -= losses->cost(format, width);
    losses->width = width;
  }
  for (const Losses& losses : all) losses.unit->form.bits = format.bits[losses.width];
  return {};
}

}  // namespace subbyte
