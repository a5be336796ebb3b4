#include "verify/refusals.h"

#include "base/model_file.h"
#include "checkpoints/config/config_file.h"
#include "engine/generation_config.h"
#include "text/tokenizer.h"

namespace subbyte {

constexpr std::string_view kConfig = "config.json";

std::vector<Refusal> find_refusals(const std::filesystem::path& path, Backend& backend,
                                   Reads reads) {
  std::vector<Refusal> refusals;
  const auto add = [&refusals](std::string_view where, const Error& error) {
    refusals.push_back({where, error});
  };
  const std::filesystem::path directory = model_directory(path);
  if (const Status loading = check_loading(path, backend, reads); !loading.ok()) {
    add(kConfig, loading.error());
  }
  // A config.json that is no JSON was an error before.
  const bool is_config = generation_file(path).filename() == kConfig;
  const auto sampling = read_generation_config(path);
  if (!sampling.ok() && (!is_config || refusals.empty())) {
    add(is_config ? kConfig : "generation_config.json", sampling.error());
  }
  const std::filesystem::path tokenizer_json = directory / "tokenizer.json";
  if (!is_there(tokenizer_json)) return refusals;
  if (const auto tokenizer = Tokenizer::load(tokenizer_json); !tokenizer.ok()) {
    add("tokenizer.json", tokenizer.error());
  }
  return refusals;
}

}  // namespace subbyte
