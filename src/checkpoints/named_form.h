#pragma once
// Formats of weights by any name of them: what all interfaces take where a format is an argument.

#include <cstdint>

#include "base/status.h"
#include "checkpoints/quantize_formats.h"
#include "formats/weight_format.h"
#include "subbyte/quantize.h"

namespace subbyte {

/// A format and the form of one matrix.
struct NamedForm {
  const QuantizeFormat* format = nullptr;
  QuantizeForm form;

  WeightFormat weights() const { return format->format(form); }
};

/// The form of a matrix with `cols` inputs in a format that is named: by a name that
/// find_quantize_format() takes, by an element ("u4", "nfl3"), or by a canonical text, as
/// to_string(WeightFormat) writes it ("u4 g128 scale f16 zero u8"). A group that nobody asked for
/// is halved until it divides the inputs. Codes: those of choose_quantize_format() and of
/// check_form(); quantize.bits, quantize.group_size and quantize.symmetry for
/// what is asked for beside a text that says something else.
Result<NamedForm> named_form(const WeightQuantization& asked, int64_t cols,
                             ElsewhereFormat elsewhere = nullptr);

/// A matrix in that form. Codes: those of named_form() and quantize_one().
Result<Matrix> quantize_named(const WeightQuantization& asked, int64_t rows, int64_t cols,
                              const RowReader& read_row, Executor& pool,
                              ElsewhereFormat elsewhere = nullptr);

}  // namespace subbyte
