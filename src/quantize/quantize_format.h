#pragma once
// A format that `quantize` writes: which widths and groups it has, and the quantizer that makes a
// canonical matrix of it. Exporters have them (checkpoints/exporter.h).

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "matrix/matrix.h"
#include "quantize/row_reader.h"
#include "subbyte/executor.h"

namespace subbyte {

/// How the weights of one matrix are to be stored.
struct QuantizeForm {
  int bits = 4;
  int64_t group_size = 128;  // 0: the whole row
  bool symmetric = false;
  Format scale = Format::kNone;  // kF16, or what the format usually has (quantize_scales.h)

  bool operator==(const QuantizeForm&) const = default;
};

/// A matrix that is to be quantized.
struct QuantizeInput {
  int64_t rows = 0;
  int64_t cols = 0;
  const RowReader& read_row;
  /// The largest magnitude of all matrices that shall have one factor; 0 where formats have none.
  double largest = 0;
};

/// The weights that a quantizer makes, without the rotation; and the quantizer.
using MadeFormat = WeightFormat(const QuantizeForm& form);
using Quantizer = Result<Matrix>(const QuantizeInput& input, const QuantizeForm& form,
                                 Executor& pool);

/// Codes lie around zero always, never (each group has a zero point), or unless the other is asked
/// for.
enum class Symmetry : uint8_t { kAlways, kNever, kByDefault };

struct QuantizeFormat {
  std::string_view name;
  std::string_view other_name = {};  // that other software has for it: "w4a16"
  int other_bits = 0;                // that the other name says; 0: none
  /// A text of the weights ("i4 g128 scale f16") means it; of several that hold them one is meant.
  bool is_meant_by_text = true;
  /// Where it is for stacks of experts: the format for models whose experts are modules.
  std::string_view without_stacks = {};
  std::span<const int> bits;  // that it has
  int default_bits = 4;
  /// The format without a width in its name, of one that says its width (kbit of kbit3).
  std::string_view series = {};
  bool is_series = false;  // whether it is such a one; of a mean of widths it is what is written
  /// Inputs that may share a scale; empty: every multiple of 8.
  std::span<const int64_t> group_sizes = {};
  int64_t default_group = 128;  // 0: the whole row
  bool whole_rows = false;      // whether a scale may be that of a row
  bool short_groups = false;    // whether the last group of a row may be short
  int64_t rotation = 0;         // the largest run of inputs that are rotated; 0: none are
  Symmetry symmetry = Symmetry::kAlways;
  /// True where matrices of one checkpoint may have other bits and groups than the rest.
  bool mixed = false;
  bool head = true;         // whether the head may be quantized
  bool embedding = false;   // whether the embedding may be
  bool f16_scales = false;  // whether scales may be F16 instead of E4M4
  bool f16_floats = false;  // whether its readers want everything else as f16
  MadeFormat* format = nullptr;
  Quantizer* quantize = nullptr;

  bool holds_bits(int64_t width) const;
  bool holds_group(int64_t group_size) const;
  bool holds_symmetry(bool symmetric) const;
};

/// The inputs that share a scale, 0 for the whole row: of nullopt the usual ones, and -1, which
/// other software writes, is the whole row, too.
int64_t group_size_of(const QuantizeFormat& format, std::optional<int64_t> wanted);

/// Checks that a format has such weights. Codes: quantize.bits, quantize.group_size,
/// quantize.symmetry.
Status check_form(const QuantizeFormat& format, const QuantizeForm& form);

/// Groups and inputs of quantized weights are multiples of it.
inline constexpr int64_t kSmallestGroup = 8;

/// The next group size to try where one that nobody asked for does not divide the inputs: half of
/// it. nullopt: the format has no such groups.
std::optional<int64_t> half_group(const QuantizeFormat& format, int64_t group_size);

/// Quantizes a matrix that shares a factor with no other. Codes: quantize.shape for sizes that are
/// not 1 to 2^24, quantize.loss, those of the quantizer.
Result<Matrix> quantize_one(const QuantizeFormat& format, int64_t rows, int64_t cols,
                            const RowReader& read_row, const QuantizeForm& form, Executor& pool);

/// Says for messages which bits, or groups, it has: "2, 3, 4 or 8".
std::string list_bits(const QuantizeFormat& format);
std::string list_groups(const QuantizeFormat& format);

}  // namespace subbyte
