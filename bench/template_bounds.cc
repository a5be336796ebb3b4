// template_bounds [SEED] [COUNT]: what templates of a generator take, compared with what they are
// charged: at most 0.25 s of processor for a million steps, and of memory at most the limits and 64
// MB. What takes more is run three times, of which the least counts. Prints the worst of each
// operation; the exit code is 1 if one takes more.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "support/template_generator.h"

namespace {

using subbyte::jinja::Limits;
using subbyte::jinja::testing::measure;
using subbyte::jinja::testing::Measured;
using subbyte::jinja::testing::TemplateGenerator;

constexpr double kMostSeconds = 0.25;   // for a million steps
constexpr double kLeastSteps = 20'000;  // fewer count as so many
constexpr int64_t kMostBytes = Limits().bytes + Limits().output_bytes + (64 << 20);

struct Worst {
  double seconds = 0;  // for a million steps
  std::string slow;
  int64_t bytes = 0;
  std::string large;
};

/// The most memory that was resident since the last call; the system counts anew.
int64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  int64_t most = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) most = std::atoll(line.c_str() + 6) << 10;
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return most;
}

/// Runs the template, again where the machine may have done something else meanwhile.
void measure_into(Worst& worst, const std::string& source, const Limits& limits) {
  double seconds = HUGE_VAL;
  int64_t bytes = INT64_MAX;
  for (int run = 0; run < 3 && (seconds > kMostSeconds || bytes > kMostBytes); ++run) {
    resident_bytes();
    const Measured found = measure(source, limits);
    const double steps = std::max(kLeastSteps, static_cast<double>(found.usage.steps));
    seconds = std::min(seconds, 1e6 * found.seconds / steps);
    bytes = std::min(bytes, resident_bytes());
  }
  if (seconds > worst.seconds) worst.seconds = seconds, worst.slow = source;
  if (bytes > worst.bytes) worst.bytes = bytes, worst.large = source;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const std::size_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 20'000;
  constexpr std::size_t kSizes[] = {2, 100, 3000, 40'000, 1'000'000};
  constexpr std::size_t kRepeats[] = {1, 20, 1000};
  TemplateGenerator generator(seed);
  std::vector<Worst> worst(generator.num_operations());
  for (std::size_t done = 0; done < count;) {
    const std::size_t operation = done / 3 % worst.size();
    const auto sources = generator.make(operation, kSizes[generator.below(std::size(kSizes))],
                                        kRepeats[generator.below(std::size(kRepeats))]);
    for (const std::string& source : sources) {
      Limits limits;
      if (done++ % 20 != 0) limits.steps = 1'000'000;
      measure_into(worst[operation], source, limits);
    }
  }
  bool is_bounded = true;
  for (std::size_t i = 0; i < worst.size(); ++i) {
    const bool fits = worst[i].seconds <= kMostSeconds && worst[i].bytes <= kMostBytes;
    is_bounded = is_bounded && fits;
    fmt::print("{} {:.3f} s for a million steps, {} MB: {}\n", fits ? "    " : "MORE",
               worst[i].seconds, worst[i].bytes >> 20, generator.name(i));
    if (!fits) fmt::print("       {}\n       {}\n", worst[i].slow, worst[i].large);
  }
  return is_bounded ? 0 : 1;
}
