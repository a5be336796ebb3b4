#include "session/not_enough_memory.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "models/checkpoint.h"
#include "models/memory_need.h"

namespace subbyte {
namespace {

/// Of this machine, as the kernel estimates it; infinite where it does not say.
double machine_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  double kilobytes = 0;
  while (file >> word) {
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return std::numeric_limits<double>::infinity();
}

/// Of `ulimit -v`; infinite where there is no such limit.
double address_space_bytes() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<double>::infinity();
  }
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  file >> pages;
  const double used = pages * static_cast<double>(sysconf(_SC_PAGESIZE));
  return std::max(0.0, static_cast<double>(limit.rlim_cur) - used);
}

}  // namespace

FreeMemory free_memory() {
  const FreeMemory machine = {machine_bytes(), "in this machine"};
  const FreeMemory space = {address_space_bytes(), "below the limit of `ulimit -v`"};
  return space.bytes < machine.bytes ? space : machine;
}

double weight_bytes(const ModelFiles& files) {
  const auto opened = open_weights(files);
  return opened.ok() ? static_cast<double>(opened->tensors->total_bytes()) : 0;
}

Error not_enough_memory(const ModelFiles& files, const ModelConfig& config,
                        const LoadOptions& options) {
  const auto plan = plan_of(config);
  const double cache = plan.ok()
                           ? static_cast<double>(cache_bytes(plan->cache, options.cache_type,
                                                             cache_size(options, plan->cache)))
                           : 0;
  const FreeMemory free = free_memory();
  return {"memory",
          fmt::format("{}: not enough memory: the weights want about {:.0f} MB, the cache of {} "
                      "tokens {:.0f} MB, the numbers of a step and the stacks of threads as much "
                      "as is left, and {:.0f} MB are free {}; a shorter context (-c), fewer "
                      "threads (-t), --kv-cache-type fp8, --head-bits 4 or a smaller model want "
                      "less",
                      files.path().string(), weight_bytes(files) / 1e6, options.cache_positions,
                      cache / 1e6, free.bytes / 1e6, free.limit)};
}

}  // namespace subbyte
