// batch MODEL PROMPT...: continues several texts at once, each step with one part of each.

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "devices/devices.h"
#include "engine/generation.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace {

using namespace subbyte;

constexpr int64_t kContext = 128;    // positions of a sequence
constexpr int64_t kPromptChunk = 8;  // tokens of a prompt in one step; a server takes hundreds

struct Request {
  Request(KvPool& pool, std::span<const TokenId> prompt, const GenerateOptions& options)
      : sequence(pool, kContext), generation(sequence, prompt, options) {}

  Sequence sequence;
  Generation generation;  // refers to the sequence
  std::vector<TokenId> answer;
  Status status;  // an error of this request alone
};

/// One step: decoded tokens of some requests beside chunks of the prompts of others.
Status step(const Model& model, Backend& backend, std::deque<Request>& requests) {
  std::vector<Part> parts;
  std::vector<Request*> owners;
  for (Request& request : requests) {
    if (request.generation.ended()) continue;
    parts.push_back(request.generation.next(kPromptChunk));
    owners.push_back(&request);
  }
  Logits logits;
  SUBBYTE_CHECK(model.forward(backend, {parts}, logits));
  int64_t row = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].choice) continue;  // the prompt goes on in the next step
    const auto event = owners[i]->generation.accept(logits.tokens[row++]);
    if (!event.ok()) owners[i]->status = event.error();
    if (event.ok() && event->token) owners[i]->answer.push_back(*event->token);
  }
  return {};
}

Status continue_texts(const std::filesystem::path& directory, std::span<char* const> texts) {
  // Batch-invariant: each answer has the same bits as alone.
  SUBBYTE_TRY(const std::unique_ptr<Backend> backend, make_backend({.batch_invariant = true}));
  SUBBYTE_TRY(const std::unique_ptr<Model> model, load_model(directory, *backend));
  SUBBYTE_TRY(const Tokenizer tokenizer, Tokenizer::load(directory / "tokenizer.json"));

  // One pool for all: its pages go to whichever sequence grows.
  const int64_t positions = std::ssize(texts) * kContext;
  SUBBYTE_TRY(KvPool pool,
              model->make_kv_pool(*backend, Element::kF16, {positions, std::ssize(texts)}));
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 12;
  options.stop_tokens = model->config().eos_tokens;

  std::deque<Request> requests;
  for (const char* text : texts) {
    SUBBYTE_TRY(const auto prompt, tokenizer.encode(text, SpecialTokens::kAsText));
    requests.emplace_back(pool, prompt, options);
  }
  const auto ended = [](const Request& request) { return request.generation.ended(); };
  while (!std::ranges::all_of(requests, ended)) {
    SUBBYTE_CHECK(step(*model, *backend, requests));
  }
  for (const Request& request : requests) {
    SUBBYTE_CHECK(request.status);
    SUBBYTE_TRY(const std::string text, tokenizer.decode(request.answer, /*skip_special=*/true));
    std::printf("[%s]\n", text.c_str());
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const Status status = continue_texts(argv[1], std::span(argv + 2, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", to_string(status.error()).c_str());
  return 1;
}
