#include "app/quantize_probe.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/random.h"
#include "engine/divergence.h"
#include "engine/scheduler.h"
#include "models/model.h"
#include "session/text_setup.h"
#include "transform/format_hints.h"
#include "transform/probing_backend.h"

namespace subbyte::app {
namespace {

constexpr int64_t kProbeTokens = 2048;  // of the text, for each unit
constexpr int64_t kProbeWindow = 512;
constexpr int64_t kSamples = 8;  // that a model writes where there is no text
constexpr int64_t kSampleTokens = kProbeTokens / kSamples;

/// The source and tokens, with which single units of it are tried in other forms.
struct Probe {
  ModelFiles files;
  ModelConfig config;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::vector<int32_t> tokens;
  int64_t window = kProbeWindow;
};

/// Samples at temperature 1, each after another token of the vocabulary: what the model itself
/// finds likely, whatever it was trained on. Ends of texts are tokens like others.
Status write_samples(Probe& probe, const TokensWritten& written) {
  const int64_t length = std::min(kSampleTokens, probe.config.max_positions);
  SUBBYTE_TRY(KvPool pool,
              probe.model->make_kv_pool(*probe.backend, Element::kF32,
                                        {.positions = kSamples * length, .sequences = kSamples}));
  Scheduler scheduler(*probe.model, *probe.backend, pool, {.max_sequences = kSamples});
  Random random(1);
  std::map<RequestId, std::vector<int32_t>> samples;  // in the order of the requests
  for (int64_t i = 0; i < kSamples; ++i) {
    ScheduledRequest request;
    request.prompt = {
        static_cast<int32_t>(random.below(static_cast<uint64_t>(probe.config.vocab_size)))};
    request.options.sampling = neutral_sampling();
    request.options.sampling.seed = static_cast<uint64_t>(i);
    request.options.max_tokens = length - 1;
    request.max_length = length;
    SUBBYTE_TRY(const RequestId id, scheduler.add(request));
    samples[id] = request.prompt;
  }
  int64_t num_written = kSamples;
  while (!scheduler.idle()) {
    if (written) written(num_written, kSamples * length);
    SUBBYTE_TRY(const std::vector<SampleEvent> events, scheduler.step());
    for (const SampleEvent& event : events) {
      if (event.error) return *event.error;
      if (!event.token) continue;
      samples[event.request].push_back(*event.token);
      ++num_written;
    }
  }
  for (const auto& [id, tokens] : samples) {
    probe.tokens.insert(probe.tokens.end(), tokens.begin(), tokens.end());
  }
  probe.window = length;
  return {};
}

/// Loads the model, and has the tokens.
Status begin(Probe& probe, std::string_view text, const TokensWritten& written) {
  SUBBYTE_TRY(probe.config, read_model_config(probe.files));
  probe.window = std::min(kProbeWindow, probe.config.max_positions);
  if (!text.empty()) {
    SUBBYTE_TRY(const Tokenizer tokenizer, load_tokenizer(probe.files));
    SUBBYTE_TRY(probe.tokens, tokenizer.encode_prompt(text, SpecialTokens::kAsText));
    if (std::ssize(probe.tokens) > kProbeTokens) probe.tokens.resize(kProbeTokens);
  }
  SUBBYTE_TRY(probe.model, load_model(probe.files, *probe.backend));
  return text.empty() ? write_samples(probe, written) : Status();
}

/// The KL divergence of the model with one unit quantized from the model itself.
Result<double> measure(const Probe& probe, const std::string& unit, const QuantizeFormat& format,
                       const QuantizeForm& form) {
  ProbingBackend backend(*probe.backend, probe.config, format, form, unit);
  SUBBYTE_TRY(const auto model, load_model(probe.files, backend));
  SUBBYTE_TRY(const Divergence found, divergence({*model, backend}, {*probe.model, *probe.backend},
                                                 Element::kF32, probe.tokens, probe.window));
  return found.kl.value;
}

}  // namespace

decltype(QuantizeOptions::measure) measure_by_text(const std::filesystem::path& source,
                                                   std::string text,
                                                   std::unique_ptr<Backend> backend,
                                                   TokensWritten written) {
  const auto probe = std::make_shared<Probe>(source, ModelConfig(), std::move(backend));
  return [probe, text = std::move(text), written = std::move(written)](
             const std::string& unit, const QuantizeFormat& format,
             const QuantizeForm& form) -> Result<double> {
    if (probe->model == nullptr) SUBBYTE_CHECK(begin(*probe, text, written));
    return measure(*probe, unit, format, form);
  };
}

}  // namespace subbyte::app
