// How fast a tokenizer is, and what it makes of many texts:
//
//   tokenizer_time TOKENIZER.json FILE [ROUNDS]    MB/s of encoding FILE, the best of 5 rounds
//   tokenizer_time TOKENIZER.json --lines          a JSON string a line on standard input; for each
//                                                  a line with its ids and texts on standard output
//
// Time is that of the processor, so that others on the machine count less. The lines are for
// tools/interop/tokenizers_check.py.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "subbyte/json.h"
#include "text/tokenizer.h"

namespace {

using namespace subbyte;

int fail(const Error& error) {
  fmt::print(stderr, "{}\n", error.message);
  return 1;
}

int measure(const Tokenizer& tokenizer, const char* path, int rounds) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string bytes = text.str();
  double best = 1e9;
  std::size_t num_ids = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::clock_t start = std::clock();
    const auto ids = tokenizer.encode(bytes, SpecialTokens::kAsText);
    if (!ids.ok()) return fail(ids.error());
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    num_ids = ids->size();
  }
  const double megabytes = static_cast<double>(bytes.size()) / 1e6;
  fmt::print("{:.1f} MB/s: {:.1f} MB, {} tokens, {:.3f} s\n", megabytes / best, megabytes, num_ids,
             best);
  return 0;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip) {
  StreamDecoder stream(tokenizer, skip);
  std::string text;
  for (const TokenId id : ids) text += stream.push(id);
  return text + stream.finish();
}

int answer_lines(const Tokenizer& tokenizer) {
  for (std::string line; std::getline(std::cin, line);) {
    const Json item = Json::parse(line).value();
    std::vector<TokenId> ids;
    Json out;
    if (item.is_string()) {
      const auto text = item.get<std::string>();
      const auto made = tokenizer.encode_prompt(text, SpecialTokens::kRecognize);
      if (!made.ok()) return fail(made.error());
      ids = *made;
      out["ids"] = ids;
    } else {
      ids = item.get<std::vector<TokenId>>();
    }
    for (const bool skip : {false, true}) {
      const auto text = tokenizer.decode(ids, skip);
      if (!text.ok()) return fail(text.error());
      out[skip ? "skipped" : "decoded"] = *text;
      out[skip ? "streamed_skipped" : "streamed"] = streamed(tokenizer, ids, skip);
    }
    fmt::print("{}\n", out.text());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: tokenizer_time TOKENIZER.json FILE|--lines [ROUNDS]\n");
    return 2;
  }
  const auto tokenizer = Tokenizer::load(argv[1]);
  if (!tokenizer.ok()) return fail(tokenizer.error());
  if (std::string_view(argv[2]) == "--lines") return answer_lines(*tokenizer);
  return measure(*tokenizer, argv[2], argc > 3 ? std::atoi(argv[3]) : 5);
}
