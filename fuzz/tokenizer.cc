// tokenizer.json. The input is the file; a tokenizer that is accepted must encode and decode.

#include "text/tokenizer.h"
#include "fuzz/fuzz.h"

using namespace subbyte;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const fuzz::Scratch scratch;
  const fuzz::Exact file(data, size);
  const auto path = scratch.write("tokenizer.json", file.text());
  const auto tokenizer = Tokenizer::load(path);
  if (!tokenizer.ok()) {
    fuzz::require_line(tokenizer.error(), "tokenizer.json");
    return 0;
  }
  constexpr std::string_view kText = "Grace <|end|> \xC3\xA9\xFF 12345\n";
  for (const auto special : {SpecialTokens::kAsText, SpecialTokens::kRecognize}) {
    const auto ids = tokenizer->encode(kText, special);
    if (!ids.ok()) {
      fuzz::require_line(ids.error(), "");
      continue;
    }
    StreamDecoder stream(*tokenizer, false);
    std::string streamed;
    for (const TokenId id : *ids) {
      fuzz::require(id >= 0 && id < tokenizer->size(), "an id");
      streamed += stream.push(id);
    }
    streamed += stream.finish();
    const auto decoded = tokenizer->decode(*ids, false);
    fuzz::require(decoded.ok() && *decoded == streamed, "a stream of its own ids");
  }
  return 0;
}
