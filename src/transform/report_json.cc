#include "transform/report_json.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace subbyte {
namespace {

/// "same_bytes" for "same bytes": a word of JSON.
std::string key_of(std::string_view text) {
  std::string key(text);
  std::ranges::replace(key, ' ', '_');
  return key;
}

}  // namespace

json::Value finite_as_json(double value) {
  return std::isfinite(value) ? json::Value(value) : json::Value(nullptr);
}

json::Value worst_as_json(const WorstLoss& worst) {
  if (worst.name.empty()) return nullptr;
  return {{"name", worst.name}, {"signal_to_noise_db", finite_as_json(worst.signal_to_noise_db)}};
}

json::Value to_json(const ConvertReport& report) {
  json::Value root = {{"format", report.format},
                      {"modules", report.converted_modules},
                      {"kept_tensors", report.kept_tensors},
                      {"source_bytes", report.source_bytes},
                      {"result_bytes", report.result_bytes},
                      {"rounded_modules", report.rounded_modules},
                      {"max_difference", report.loss.max},
                      {"mean_difference", report.loss.mean()}};
  root["signal_to_noise_db"] = finite_as_json(report.loss.signal_to_noise_db());
  root["worst"] = worst_as_json(report.worst);
  root["dropped_activation_scales"] = report.dropped_activation_scales;
  return root;
}

json::Value to_json(const QuantizeReport& report) {
  json::Value root = {{"format", report.format},
                      {"modules", report.quantized_tensors},
                      {"kept_tensors", report.kept_tensors},
                      {"source_bytes", report.source_bytes},
                      {"result_bytes", report.result_bytes},
                      {"group_size", report.group_size},
                      {"symmetric", report.symmetric},
                      {"code_bits", report.code_bits},
                      {"bits_per_weight", report.bits_per_weight}};
  for (const auto& [bits, modules] : report.modules_of_bits) {
    root["modules_of_bits"][std::to_string(bits)] = modules;
  }
  root["signal_to_noise_db"] = finite_as_json(report.signal_to_noise_db);
  root["worst"] = worst_as_json(report.worst);
  root["resumed_tensors"] = report.resumed_tensors;
  return root;
}

std::string_view summary_of(const ModelDiff& diff) {
  return diff.same_bytes() ? "same bytes" : diff.same_values() ? "same values" : "different";
}

json::Value to_json(const ModelDiff& diff) {
  json::Value root = {{"verdict", key_of(summary_of(diff))}};
  for (const ComparedWeight::Verdict verdict : kVerdicts) {
    root["counts"][key_of(name_of(verdict))] = diff.count(verdict);
  }
  root["worst"] = worst_as_json(diff.worst());
  root["weights"] = json::Value::array();
  for (const ComparedWeight& weight : diff.weights) {
    json::Value entry = {{"name", weight.name},
                         {"verdict", key_of(name_of(weight.verdict))},
                         {"first", weight.first},
                         {"second", weight.second}};
    if (weight.difference.unequal > 0) {
      entry["unequal"] = weight.difference.unequal;
      entry["max_difference"] = finite_as_json(weight.difference.max);
      entry["mean_difference"] = finite_as_json(weight.difference.mean());
      entry["signal_to_noise_db"] = finite_as_json(weight.difference.signal_to_noise_db());
    }
    root["weights"].push_back(std::move(entry));
  }
  return root;
}

}  // namespace subbyte
