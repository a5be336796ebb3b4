#pragma once
// Widths for a mean number of bits that is no whole one, such as 3.4.
//
// The error of a unit (quantize_plan.h) is its share of noise: the sum of (w - w')^2 over that of
// w^2. It is measured with every width of the format, of large matrices on rows that are spread
// evenly. What it does to the predictions differs from unit to unit by much more than that share,
// so each is weighted: one unit is quantized alone, and the KL divergence of the predictions that
// it causes is divided by its share of noise. Small errors of different units add up.
//
// Who measures nothing has weights of 1: norms stand in front of the matrices of a layer, so that
// what each adds to the stream has about the size of the stream, and by the share of noise it is
// wrong.
//
// Every unit begins with the fewest bits of the format. As long as bits are left, that unit gets
// more of them whose weighted error falls most for each bit that it costs.

#include <functional>
#include <string>

#include "base/status.h"
#include "subbyte/executor.h"
#include "transform/quantize_plan.h"

namespace subbyte {

/// Measures the KL divergence of a model's predictions from its own when the unit of that name has
/// that form, and nothing else is changed.
using MeasureUnit =
    std::function<Result<double>(const std::string& unit, const QuantizeForm& form)>;

/// Sets the bits of all units of `plan` without a width of their own, so that their codes have at
/// most `bits` on average and no unit could have more. `measure` may be nullptr.
/// Codes: quantize.bits when the format has only wider ones or one width for all, those of its
/// quantizer and of `measure`; messages about a tensor name it.
Status choose_widths(const QuantizeFormat& format, double bits, const MeasureUnit& measure,
                     const std::function<void(int64_t done, int64_t all)>& measured,
                     QuantizePlan& plan, Executor& pool);

}  // namespace subbyte
