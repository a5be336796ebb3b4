#include "app/quantize_probe.h"

#include <vector>

#include "engine/divergence.h"
#include "models/model.h"
#include "session/text_setup.h"
#include "transform/probing_backend.h"
#include "transform/quantize_formats.h"

namespace subbyte::app {
namespace {

constexpr int64_t kProbeTokens = 2048;  // of the text, for each unit
constexpr int64_t kProbeWindow = 512;

/// The source and a text, with which single units of it are tried in other forms.
struct Probe {
  std::filesystem::path source;
  ModelConfig config;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::vector<int32_t> tokens;
};

/// The KL divergence of the model with one unit quantized from the model itself.
Result<double> measure(const Probe& probe, const std::string& unit, const QuantizeFormat& format,
                       const QuantizeForm& form) {
  ProbingBackend backend(*probe.backend, probe.config, format, form, unit);
  SUBBYTE_TRY(const auto model, load_model(probe.source, backend));
  SUBBYTE_TRY(const Divergence found, divergence({*model, backend}, {*probe.model, *probe.backend},
                                                 Element::kF32, probe.tokens, kProbeWindow));
  return found.kl.value;
}

}  // namespace

Result<decltype(QuantizeOptions::measure)> measure_by_text(const std::filesystem::path& source,
                                                           std::string_view text,
                                                           std::unique_ptr<Backend> backend) {
  const auto probe = std::make_shared<Probe>();
  probe->source = source;
  SUBBYTE_TRY(const Tokenizer tokenizer, load_tokenizer(source));
  SUBBYTE_TRY(probe->tokens, tokenizer.encode_prompt(text, SpecialTokens::kAsText));
  if (std::ssize(probe->tokens) > kProbeTokens) probe->tokens.resize(kProbeTokens);
  SUBBYTE_TRY(probe->config, read_model_config(source));
  probe->backend = std::move(backend);
  SUBBYTE_TRY(probe->model, load_model(source, *probe->backend));
  return decltype(QuantizeOptions::measure)(
      [probe](const std::string& unit, const QuantizeFormat& format, const QuantizeForm& form) {
        return measure(*probe, unit, format, form);
      });
}

}  // namespace subbyte::app
