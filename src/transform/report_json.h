#pragma once
// Reports of conversions, quantizations and comparisons as JSON, for the program, C and Python
// alike.

#include <string_view>

#include "json/strict_json.h"
#include "transform/convert_model.h"
#include "transform/diff_models.h"
#include "transform/quantize_model.h"

namespace subbyte {

/// A number, or null where it is infinite.
json::Value finite_as_json(double value);

/// {"name": ..., "signal_to_noise_db": ...}; null where nothing was lost.
json::Value worst_as_json(const WorstLoss& worst);

/// The objects that the commands print with --json, but for destination and seconds.
json::Value to_json(const ConvertReport& report);
json::Value to_json(const QuantizeReport& report);

/// The object that `subbyte diff --json` prints.
json::Value to_json(const ModelDiff& diff);

/// All verdicts, in the order in which they are counted.
inline constexpr ComparedWeight::Verdict kVerdicts[] = {
    ComparedWeight::Verdict::kSameBytes, ComparedWeight::Verdict::kSameValues,
    ComparedWeight::Verdict::kDifferent, ComparedWeight::Verdict::kShape,
    ComparedWeight::Verdict::kOnlyFirst, ComparedWeight::Verdict::kOnlySecond};

/// "same bytes", "same values" or "different".
std::string_view summary_of(const ModelDiff& diff);

}  // namespace subbyte
