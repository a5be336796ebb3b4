#include "bench/make_model.h"

#include <cstdio>

#include "base/thread_pool.h"

namespace subbyte::bench {

Status make_model(const std::filesystem::path& directory, const SynthOptions& options) {
  if (std::filesystem::exists(directory)) return {};
  std::filesystem::create_directories(directory.parent_path());
  std::fprintf(stderr, "making %s ...\n", directory.c_str());
  ThreadPool pool;
  return synthesize(directory, options, pool);
}

}  // namespace subbyte::bench
