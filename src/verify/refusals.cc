#include "verify/refusals.h"

#include "checkpoints/config/model_files.h"
#include "engine/generation_config.h"
#include "text/tokenizer.h"

namespace subbyte {

std::vector<Refusal> find_refusals(const ModelFiles& files, Backend& backend, Reads reads,
                                   bool opened) {
  std::vector<Refusal> refusals;
  const auto add = [&refusals](std::string_view where, const Error& error) {
    refusals.push_back({where, error});
  };
  if (const Status loading = check_loading(files, backend, reads); !loading.ok()) {
    add(kConfigFile, loading.error());
  }
  // A config.json that is no JSON was an error before.
  const bool is_config = !files.has(kGenerationFile);
  const auto sampling = read_generation_config(files);
  if (!sampling.ok() && (!is_config || refusals.empty())) {
    add(generation_file(files), sampling.error());
  }
  constexpr std::string_view kTokenizer = "tokenizer.json";
  if (opened || !files.has(kTokenizer)) return refusals;
  const auto tokenizer = open_tokenizer(files.directory() / kTokenizer, files);
  if (!tokenizer.ok()) add(kTokenizer, tokenizer.error());
  return refusals;
}

}  // namespace subbyte
