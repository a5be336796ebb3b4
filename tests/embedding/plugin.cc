// A shared library as others write it, for Python or for another program: one C function.

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "backends/backends.h"
#include "engine/generate.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace {

using namespace subbyte;

Result<std::string> continue_text(const char* directory, const char* text) {
  SUBBYTE_TRY(const auto backend, make_backend({.device = "cpu", .num_threads = 1}));
  const std::filesystem::path path = directory;
  SUBBYTE_TRY(const auto model, load_model(path, *backend));
  SUBBYTE_TRY(const Tokenizer tokenizer, Tokenizer::load(path / "tokenizer.json"));
  SUBBYTE_TRY(const auto prompt, tokenizer.encode(text, SpecialTokens::kAsText));
  constexpr int64_t kPositions = 64;
  SUBBYTE_TRY(KvPool pool, model->make_kv_pool(*backend, Element::kF16, {kPositions}));
  Sequence sequence(pool, kPositions);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 4;
  std::vector<TokenId> answer;
  SUBBYTE_CHECK(generate(*model, *backend, sequence, prompt, options, [&](TokenId token) {
    answer.push_back(token);
    return true;
  }));
  return tokenizer.decode(answer, /*skip_special=*/true);
}

}  // namespace

/// Writes what comes after `text`, or the error: 0 or 1.
extern "C" __attribute__((visibility("default"))) int plugin_continue(const char* directory,
                                                                      const char* text, char* out,
                                                                      std::size_t size) {
  const Result<std::string> answer = continue_text(directory, text);
  std::snprintf(out, size, "%s", answer.ok() ? answer->c_str() : to_string(answer.error()).c_str());
  return answer.ok() ? 0 : 1;
}
