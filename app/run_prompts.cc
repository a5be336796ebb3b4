#include "app/run_prompts.h"
#include "app/output.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>

#include "completions/job.h"
#include "engine/end_tokens.h"
#include "engine/generate.h"
#include "models/model_family.h"
#include "text/chat_template.h"

namespace subbyte::app {
namespace {

namespace fs = std::filesystem;

/// Of a request, as chat has it. Longer ones share what there is.
constexpr int64_t kUsualPositions = 4096;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What tells two models apart without reading all of one: its configuration, and the names and
/// sizes of its weights.
Result<json::Value> describe_model(const LoadedModel& loaded) {
  json::Value files = json::Value::object();
  std::error_code failure;
  std::vector<fs::path> paths = {loaded.path};
  if (fs::is_directory(loaded.path, failure)) {
    paths.clear();
    for (fs::directory_iterator at(loaded.path, failure), end; !failure && at != end;
         at.increment(failure)) {
      if (at->path().extension() == ".safetensors") paths.push_back(at->path());
    }
    std::ranges::sort(paths);
  }
  for (const fs::path& path : paths) {
    if (!failure) files[path.filename().native()] = fs::file_size(path, failure);
  }
  if (failure) {
    return Error{"file.io", fmt::format("{}: {}", loaded.path.native(), failure.message())};
  }
  const ModelConfig& config = loaded.config;
  return json::Value{{"files", std::move(files)},
                     {"model_type", config.model_type},
                     {"layers", config.num_layers},
                     {"vocabulary", config.vocab_size}};
}

/// What decides the answers beside a line and the machine.
Result<std::string> identity_of(const PromptsOptions& options, const LoadedModel& loaded,
                                const JobOptions& job) {
  SUBBYTE_TRY(json::Value model, describe_model(loaded));
  const json::Value text = {{"model", std::move(model)},
                            {"head_bits", options.head_bits},
                            {"kv_cache_type", options.kv_cache_type},
                            {"context", job.context},
                            {"max_tokens", options.max_tokens},
                            {"special", options.special},
                            {"ignore_eos", options.ignore_eos},
                            {"stop", options.stops},
                            {"sampling", to_json(job.defaults.sampling.alone)},
                            {"sampling_beside", to_json(job.defaults.sampling.beside)}};
  return json_text(text, -1);
}

Result<JobOptions> job_options(const PromptsOptions& options, const LoadedModel& loaded) {
  JobOptions job;
  SUBBYTE_TRY(job.defaults.sampling, options.sampling.resolve(loaded.directory));
  job.defaults.max_tokens = options.max_tokens;
  job.defaults.stops = options.stops;
  job.defaults.ignore_eos = options.ignore_eos;
  job.defaults.chat.date = fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr)));
  SUBBYTE_CHECK(read_template_options(loaded.directory, job.defaults.chat));
  job.special = options.special ? SpecialTokens::kRecognize : SpecialTokens::kAsText;
  job.format = family_of(loaded.config).chat;
  job.context = options.context > 0 ? options.context : loaded.config.max_positions;
  SUBBYTE_CHECK(check_context(loaded.config, job.context));
  job.model = options.model;
  SUBBYTE_TRY(job.identity, identity_of(options, loaded, job));
  return job;
}

/// Positions of the cache that all sequences share.
Result<int64_t> cache_positions(const PromptsOptions& options, int64_t longest) {
  const int64_t usual = options.parallel * std::min(longest, kUsualPositions);
  if (options.cache_positions == 0) return std::max(longest, usual);
  const int64_t positions = kv_pages(options.cache_positions) * kKvPagePositions;
  if (positions >= longest) return positions;
  return Error{"usage.cache_positions",
               fmt::format("--cache-positions {} is less than the longest request may take ({}); "
                           "see --predict and --ctx-size",
                           options.cache_positions, longest)};
}

/// On standard output with --json, else on standard error for people.
void report(const PromptsOptions& options, const SamplingOptions& sampling, const JobCounts& counts,
            double load_seconds, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(counts.tokens.generated) / seconds : 0;
  if (options.json) {
    const json::Value summary = {{"lines", counts.lines},
                                 {"skipped", counts.skipped},
                                 {"done", counts.done},
                                 {"failed", counts.failed},
                                 {"prompt_tokens", counts.tokens.prompt},
                                 {"completion_tokens", counts.tokens.generated},
                                 {"sampling", to_json(sampling)},
                                 {"load_seconds", load_seconds},
                                 {"seconds", seconds},
                                 {"completion_tokens_per_second", rate}};
    print(stdout, json_text(summary, -1));
    return;
  }
  print(stderr, line("{} of {} lines answered in {:.1f} s, {} had an answer, {} failed",
                     counts.done, counts.lines, seconds, counts.skipped, counts.failed) +
                    line("{} prompt tokens, {} generated, {:.1f} tokens/s", counts.tokens.prompt,
                         counts.tokens.generated, rate) +
                    line("sampled {} where a line says nothing else", to_string(sampling)));
}

/// Loads the model and answers what is left.
Status answer(const Invocation& invocation, const PromptsOptions& options, LoadedModel& loaded,
              Job& job) {
  SUBBYTE_TRY(const int64_t positions, cache_positions(options, job.longest()));
  const KvType kv_type = kKvTypes.at(options.kv_cache_type);
  SUBBYTE_CHECK(load(invocation, loaded,
                     {.head_bits = options.head_bits,
                      .cache_type = kv_type,
                      .cache_positions = positions,
                      .step_sequences = options.parallel,
                      .step_logits = options.parallel + job.scored_rows()}));
  SUBBYTE_TRY(KvPool pool, loaded.model->make_kv_pool(*loaded.backend, kv_type, positions));
  Scheduler scheduler(
      *loaded.model, *loaded.backend, pool,
      {.max_sequences = options.parallel, .step_tokens = loaded.backend->prompt_chunk()});
  Progress progress(invocation, "prompts");
  const double start = now();
  return job.run(scheduler, [&](const JobCounts& counts) {
    const double rate = static_cast<double>(counts.tokens.generated) / (now() - start);
    progress.update(
        static_cast<uint64_t>(counts.skipped + counts.done), static_cast<uint64_t>(counts.lines),
        fmt::format("{} of {}, {:.0f} tokens/s", counts.skipped + counts.done, counts.lines, rate));
  });
}

}  // namespace

Result<ExitCode> run_prompts(const Invocation& invocation, const PromptsOptions& options) {
  if (options.json && options.output == "-") {
    return Error{"usage.output", "--json writes to standard output: --output must be a file then"};
  }
  SUBBYTE_TRY(LoadedModel loaded, open(invocation, options.model));
  SUBBYTE_TRY(const Tokenizer tokenizer, load_tokenizer(loaded.directory));
  SUBBYTE_TRY(JobOptions settings, job_options(options, loaded));
  const SamplingOptions sampling = settings.defaults.sampling.alone;
  SUBBYTE_TRY(Job job, Job::open(options.prompts, options.output, tokenizer,
                                 end_tokens(loaded.config, tokenizer), std::move(settings)));
  double start = now();
  if (!job.is_done()) {
    const double before = loaded.load_seconds;
    SUBBYTE_CHECK(answer(invocation, options, loaded, job));
    start += loaded.load_seconds - before;
  }
  report(options, sampling, job.counts(), loaded.load_seconds, now() - start);
  return job.counts().failed > 0 ? kProblemsFound : kOk;
}

}  // namespace subbyte::app
