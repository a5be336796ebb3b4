// What pre-tokenizers take for texts that their patterns find hard, of 20 MB and of 40 MB:
//
//   split_time [FILE] [MB]       conformance/patterns/patterns.tsv, 20
//
// Prints the slowest and ends with 1 where twice the text took more than 2.2 times as long. Times
// are those of the processor, the better of two.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "tests/support/patterns.h"
#include "text/pretokenizer.h"

namespace {

using namespace subbyte;

double seconds_for(const PreTokenizer& tokenizer, const std::string& text) {
  double best = 1e9;
  for (int i = 0; i < 2; ++i) {
    PreTokenizer::Scratch scratch;
    const std::clock_t start = std::clock();
    tokenizer.split(text, scratch);
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "conformance/patterns/patterns.tsv";
  const std::size_t size = (argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 20) * 1'000'000;
  int num_split = 0;
  int num_refused = 0;
  double worst_ratio = 0;
  double slowest = 1e12;
  for (const NamedPattern& item : read_patterns(path)) {
    const auto tokenizer = PreTokenizer::compile({item.pattern});
    if (!tokenizer) {
      fmt::print("refused: {}\n", tokenizer.error().message);
      ++num_refused;
      continue;
    }
    const double once = seconds_for(*tokenizer, repeated_text(item.unit(), size));
    const double twice = seconds_for(*tokenizer, repeated_text(item.unit(), 2 * size));
    const double rate = static_cast<double>(size) / 1e6 / once;
    if (twice / once > worst_ratio || rate < slowest) {
      fmt::print("{:7.1f} MB/s, twice the text {:4.2f} times as long: {}\n", rate, twice / once,
                 item.pattern.substr(0, 60));
    }
    worst_ratio = std::max(worst_ratio, twice / once);
    slowest = std::min(slowest, rate);
    ++num_split;
  }
  fmt::print("{} patterns split, {} refused; at least {:.1f} MB/s, at most {:.2f} times as long\n",
             num_split, num_refused, slowest, worst_ratio);
  return num_split > 0 && worst_ratio <= 2.2 ? 0 : 1;
}
