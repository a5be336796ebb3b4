#include "transform/report_json.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "transform/format_hints.h"

namespace subbyte {

using json::Value;
using Verdict = ComparedWeight::Verdict;

namespace {

/// A number, or null where it is infinite.
Value finite(double value) {
  return std::isfinite(value) ? Value(value) : Value();
}

/// Null where nothing was lost.
Value worst_of(const WorstLoss& worst) {
  if (worst.name.empty()) return {};
  return {{"name", worst.name}, {"signal_to_noise_db", finite(worst.signal_to_noise_db)}};
}

/// "same_bytes" for "same bytes": a word of JSON.
std::string key_of(std::string_view text) {
  std::string key(text);
  std::ranges::replace(key, ' ', '_');
  return key;
}

}  // namespace

Value to_json(const ConvertReport& report) {
  Value root = {{"format", report.format},
                {"modules", report.converted_matrices},
                {"kept_tensors", report.kept_tensors},
                {"source_bytes", report.source_bytes},
                {"result_bytes", report.result_bytes},
                {"rounded_modules", report.rounded_matrices},
                {"max_difference", report.loss.max},
                {"mean_difference", report.loss.mean()}};
  root["signal_to_noise_db"] = finite(report.loss.signal_to_noise_db());
  root["worst"] = worst_of(report.worst);
  root["dropped_activation_scales"] = report.dropped_activation_scales;
  return root;
}

Value to_json(const QuantizeReport& report) {
  Value root = {{"format", report.format},
                {"modules", report.quantized_matrices},
                {"kept_tensors", report.kept_tensors},
                {"source_bytes", report.source_bytes},
                {"result_bytes", report.result_bytes},
                {"group_size", report.group_size},
                {"symmetric", report.symmetric},
                {"code_bits", report.code_bits},
                {"bits_per_weight", report.bits_per_weight}};
  for (const auto& [bits, modules] : report.matrices_of_bits) {
    root["modules_of_bits"][std::to_string(bits)] = modules;
  }
  if (find_quantize_format(report.format)->f16_scales) {
    root["f16_scales"] = report.matrices_with_f16_scales;
  }
  root["signal_to_noise_db"] = finite(report.signal_to_noise_db);
  root["worst"] = worst_of(report.worst);
  root["resumed_tensors"] = report.resumed_tensors;
  return root;
}

Value to_json(const ModelDiff& diff) {
  Value root = {{"verdict", key_of(summary_of(diff))}};
  for (const Verdict verdict : ComparedWeight::kVerdicts) {
    root["counts"][key_of(name_of(verdict))] = diff.count(verdict);
  }
  root["worst"] = worst_of(diff.worst());
  root["weights"] = Value::array();
  for (const ComparedWeight& weight : diff.weights) {
    Value entry = {{"name", weight.name},
                   {"verdict", key_of(name_of(weight.verdict))},
                   {"first", weight.first},
                   {"second", weight.second}};
    if (weight.difference.unequal > 0) {
      entry["unequal"] = weight.difference.unequal;
      entry["max_difference"] = finite(weight.difference.max);
      entry["mean_difference"] = finite(weight.difference.mean());
      entry["signal_to_noise_db"] = finite(weight.difference.signal_to_noise_db());
    }
    root["weights"].push_back(std::move(entry));
  }
  return root;
}

const char* summary_of(const ModelDiff& diff) {
  return diff.same_bytes() ? "same bytes" : diff.same_values() ? "same values" : "different";
}

}  // namespace subbyte
