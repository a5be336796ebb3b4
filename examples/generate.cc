// generate MODEL PROMPT: continues a text.

#include "engine/generate.h"

#include <cstdio>
#include <filesystem>
#include <string_view>

#include "devices/devices.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace {

using namespace subbyte;

Status continue_text(const std::filesystem::path& directory, std::string_view text) {
  SUBBYTE_TRY(const std::unique_ptr<Backend> backend, make_backend());
  SUBBYTE_TRY(const std::unique_ptr<Model> model, load_model(directory, *backend));
  SUBBYTE_TRY(const Tokenizer tokenizer, Tokenizer::load(directory / "tokenizer.json"));
  SUBBYTE_TRY(const auto prompt, tokenizer.encode(text, SpecialTokens::kAsText));

  const int64_t context = 256;  // positions: prompt and answer
  SUBBYTE_TRY(KvPool pool, model->make_kv_pool(*backend, Element::kF16, {context}));
  Sequence sequence(pool, context);

  GenerateOptions options;
  options.sampling.temperature = 0;  // the most likely token each time
  options.max_tokens = 20;
  options.stop_tokens = model->config().eos_tokens;
  StreamDecoder decoder(tokenizer, /*skip_special=*/true);
  SUBBYTE_TRY(const GenerateStats stats,
              generate(*model, *backend, sequence, prompt, options, [&](int32_t token) {
                std::fputs(decoder.push(token).c_str(), stdout);
                return true;  // false ends the generation
              }));
  std::printf("%s\n%lld tokens\n", decoder.finish().c_str(),
              static_cast<long long>(stats.generated_tokens));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Status status = continue_text(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", to_string(status.error()).c_str());
  return 1;
}
