// What pre-tokenizers take for texts that their patterns find hard, of 20 MB and of 40 MB:
//
//   split_time [FILE] [MB]       conformance/patterns/patterns.tsv, 20
//
// Prints the slowest and ends with 1 where twice the text took more than 2.2 times as long. Times
// are those of the processor, the best of three; on a busy machine of up to twelve, as a single one
// can be half as long again.

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

constexpr double kMaxRatio = 2.2;
constexpr int kRounds = 3;
constexpr int kMaxRounds = 12;

double seconds_for(const PreTokenizer& tokenizer, const std::string& text) {
  PreTokenizer::Scratch scratch;
  const std::clock_t start = std::clock();
  tokenizer.split(text, scratch);
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

/// The best times so far.
struct Times {
  double once = 1e9;
  double twice = 1e9;

  double ratio() const { return twice / once; }
};

/// In turns, so that both meet what else the machine does.
Times measure(const PreTokenizer& tokenizer, const std::string& unit, std::size_t size) {
  const std::string once = repeated_text(unit, size);
  const std::string twice = repeated_text(unit, 2 * size);
  Times times;
  for (int i = 0; i < kRounds || (i < kMaxRounds && times.ratio() > kMaxRatio); ++i) {
    times.once = std::min(times.once, seconds_for(tokenizer, once));
    times.twice = std::min(times.twice, seconds_for(tokenizer, twice));
  }
  return times;
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
    const Times times = measure(*tokenizer, item.unit(), size);
    const double rate = static_cast<double>(size) / 1e6 / times.once;
    if (times.ratio() > worst_ratio || rate < slowest) {
      fmt::print("{:7.1f} MB/s, twice the text {:4.2f} times as long: {}\n", rate, times.ratio(),
                 item.pattern.substr(0, 60));
    }
    worst_ratio = std::max(worst_ratio, times.ratio());
    slowest = std::min(slowest, rate);
    ++num_split;
  }
  fmt::print("{} patterns split, {} refused; at least {:.1f} MB/s, at most {:.2f} times as long\n",
             num_split, num_refused, slowest, worst_ratio);
  return num_split > 0 && worst_ratio <= kMaxRatio ? 0 : 1;
}
