#include "verify/report_json.h"
#include "models/tensor_spec.h"

namespace subbyte {

using json::Value;

namespace {

Value model_as_json(const Inspection& inspection, const ModelConfig& model) {
  const TensorSpec experts = expert_stack_of(model).value_or(TensorSpec{});
  return {{"layers", model.num_layers},
          {"width", model.hidden_size},
          {"heads", model.num_heads},
          {"head_width", model.head_dim},
          {"key_value_heads", model.num_kv_heads},
          {"experts", experts.experts},
          {"experts_per_token", experts.use.per_token},
          {"vocabulary", model.vocab_size},
          {"context", model.max_positions},
          {"cache_type", "f16"},
          {"cache_bytes_per_position", cache_position_bytes(cache_of(model), Element::kF16)},
          {"full_context_bytes", full_context_bytes(inspection, model)}};
}

Value gguf_as_json(const InspectedGguf& gguf) {
  Value types = Value::array();
  for (const InspectedGguf::Type& type : gguf.types) {
    types.push_back({{"type", type.name}, {"tensors", type.tensors}, {"bytes", type.bytes}});
  }
  return {{"architecture", gguf.architecture},
          {"types", std::move(types)},
          {"tokenizer", gguf.tokenizer},
          {"pre_tokenizer", gguf.pre_tokenizer},
          {"tokens", gguf.tokens},
          {"memory_bytes", gguf.memory_bytes}};
}

}  // namespace

Value to_json(const Inspection& inspection) {
  Value root = {{"architecture", inspection.architecture},
                {"quantization", inspection.quantization},
                {"parameters", nullptr},
                {"bytes", inspection.bytes},
                {"bits_per_weight", nullptr},
                {"model", nullptr},
                {"gguf", nullptr},
                {"runs", inspection.is_run_here()}};
  if (inspection.gguf) root["gguf"] = gguf_as_json(*inspection.gguf);
  if (inspection.knows_weights()) {
    root["parameters"] = inspection.parameters;
    root["bits_per_weight"] = inspection.bits_per_weight();
  }
  if (inspection.model) root["model"] = model_as_json(inspection, *inspection.model);
  root["problems"] = inspection.problems;
  root["notes"] = inspection.notes;
  root["unread_tensors"] = inspection.unread;
  root["scales_read"] = inspection.reads_scales;
  root["scale_bytes"] = inspection.scale_bytes;
  root["files"] = inspection.files;
  root["tensors"] = Value::array();
  for (const InspectedWeight& weight : inspection.weights) {
    root["tensors"].push_back({{"name", weight.name},
                               {"kind", weight.flavour},
                               {"format", weight.format},
                               {"shape", weight.shape},
                               {"parameters", weight.parameters},
                               {"bytes", weight.bytes},
                               {"bits_per_weight", weight.bits_per_weight()},
                               {"act_order", weight.act_order}});
  }
  return root;
}

Value to_json(const VerifyReport& report) {
  Value root = {{"architecture", report.architecture},
                {"quantization", report.quantization},
                {"num_tensors", report.num_tensors},
                {"bytes", report.bytes},
                {"errors", report.count(Severity::kError)},
                {"warnings", report.count(Severity::kWarning)},
                {"notes", report.count(Severity::kNote)},
                {"runs", report.count(Severity::kError) == 0 && report.is_run_here()}};
  root["findings"] = Value::array();
  for (const Finding& finding : report.findings) {
    root["findings"].push_back({{"code", finding.code},
                                {"severity", name(finding.severity)},
                                {"where", finding.where},
                                {"expected", finding.expected},
                                {"found", finding.found}});
  }
  root["sha256"] = Value::object();
  for (const auto& [tensor, sha256] : report.checksums) root["sha256"][tensor] = sha256;
  return root;
}

}  // namespace subbyte
