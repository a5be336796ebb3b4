#include "verify/report_json.h"

#include <algorithm>
#include <utility>

#include "models/model.h"

namespace subbyte {
namespace {

constexpr int64_t kUsualStepTokens = 512;  // of a prompt, on CPUs

json::Value model_as_json(const Inspection& inspection, const ModelConfig& model) {
  return {{"layers", model.num_layers},
          {"width", model.hidden_size},
          {"heads", model.num_heads},
          {"head_width", model.head_dim},
          {"key_value_heads", model.num_kv_heads},
          {"experts", model.num_experts},
          {"experts_per_token", model.experts_per_token},
          {"vocabulary", model.vocab_size},
          {"context", model.max_positions},
          {"cache_type", "f16"},
          {"cache_bytes_per_position", cache_position_bytes(cache_of(model), Element::kF16)},
          {"full_context_bytes", full_context_bytes(inspection, model)}};
}

}  // namespace

double bits_per_weight(const Inspection& inspection) {
  return inspection.parameters == 0 ? 0
                                    : 8.0 * static_cast<double>(inspection.bytes) /
                                          static_cast<double>(inspection.parameters);
}

bool knows_weights(const Inspection& inspection) {
  const bool is_understood =
      !inspection.architecture.empty() && inspection.quantization != "unsupported";
  return is_understood ||
         std::ranges::all_of(inspection.weights, [](const InspectedWeight& weight) {
           return weight.format.starts_with('f') || weight.format.starts_with("bf");
         });
}

CacheLayout cache_of(const ModelConfig& model) {
  auto plan = plan_of(model);
  return plan.ok() ? std::move(plan->cache) : CacheLayout{};
}

uint64_t full_context_bytes(const Inspection& inspection, const ModelConfig& model) {
  const CacheSize full = {.positions = model.max_positions, .step_tokens = kUsualStepTokens};
  return inspection.bytes +
         static_cast<uint64_t>(cache_bytes(cache_of(model), Element::kF16, full));
}

json::Value to_json(const Inspection& inspection) {
  json::Value root = {{"architecture", inspection.architecture},
                      {"quantization", inspection.quantization},
                      {"parameters", nullptr},
                      {"bytes", inspection.bytes},
                      {"bits_per_weight", nullptr},
                      {"model", nullptr}};
  if (knows_weights(inspection)) {
    root["parameters"] = inspection.parameters;
    root["bits_per_weight"] = bits_per_weight(inspection);
  }
  if (inspection.model) root["model"] = model_as_json(inspection, *inspection.model);
  root["problems"] = inspection.problems;
  root["unread_tensors"] = inspection.unread;
  root["scales_read"] = inspection.reads_scales;
  root["scale_bytes"] = inspection.scale_bytes;
  root["files"] = inspection.files;
  root["tensors"] = json::Value::array();
  for (const InspectedWeight& weight : inspection.weights) {
    root["tensors"].push_back({{"name", weight.name},
                               {"kind", weight.importer},
                               {"format", weight.format},
                               {"shape", weight.shape},
                               {"parameters", weight.parameters},
                               {"bytes", weight.bytes},
                               {"bits_per_weight", weight.bits_per_weight()},
                               {"act_order", weight.act_order}});
  }
  return root;
}

json::Value to_json(const VerifyReport& report) {
  json::Value root = {
      {"architecture", report.architecture},      {"quantization", report.quantization},
      {"num_tensors", report.num_tensors},        {"bytes", report.bytes},
      {"errors", report.count(Severity::kError)}, {"warnings", report.count(Severity::kWarning)},
      {"notes", report.count(Severity::kNote)}};
  root["findings"] = json::Value::array();
  for (const Finding& finding : report.findings) {
    root["findings"].push_back({{"code", finding.code},
                                {"severity", name(finding.severity)},
                                {"where", finding.where},
                                {"expected", finding.expected},
                                {"found", finding.found}});
  }
  root["sha256"] = json::Value::object();
  for (const TensorChecksum& checksum : report.checksums) {
    root["sha256"][checksum.tensor] = checksum.sha256;
  }
  return root;
}

}  // namespace subbyte
