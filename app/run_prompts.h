#pragma once
// `subbyte run --prompts`: many requests from a file.

#include "app/command.h"
#include "app/template_flags.h"

namespace subbyte::app {

/// Options of `run` for many prompts, and for their lines unless these say it.
struct PromptsOptions {
  std::string model;
  int head_bits = 16;
  std::string kv_cache_type;
  PrefixFlags prefixes;
  std::filesystem::path prompts;
  std::string output;
  bool json = false;
  int64_t parallel = 8;
  CacheFlags cache;
  int64_t step_tokens = 0;  // 0: what suits the machine
  int64_t context = 0;      // 0: of the model
  int64_t max_tokens = 128;
  bool special = false;
  bool ignore_eos = false;
  std::vector<std::string> stops;
  SamplingFlags sampling;
  TemplateFlags chat_template;
};

/// kProblemsFound when a line of the output has an error instead of a response, be it of this run
/// or of an earlier one.
Result<ExitCode> run_prompts(const Invocation& invocation, PromptsOptions options);

}  // namespace subbyte::app
