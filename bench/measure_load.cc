#include "bench/measure_load.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoints/tensor_source.h"
#include "models/model.h"

namespace subbyte::bench {
namespace {

constexpr int64_t kCopyGrain = 1 << 16;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// A line of /proc/self/status in bytes, such as "VmHWM:".
double process_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(name)) return std::stod(line.substr(name.size())) * 1024;
  }
  return 0;
}

/// From now on VmHWM counts anew.
void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

void copy(std::byte* to, const std::byte* from, int64_t size, Executor& executor) {
  executor.parallel_for(size, kCopyGrain, [&](int64_t begin, int64_t end, int) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

bool is_repacked(std::string_view name) {
  return name.ends_with(".qweight") || name.ends_with(".qzeros") || name.ends_with(".scales");
}

}  // namespace

Result<LoadFigures> measure_load(const LoadRun& run) {
  LoadFigures figures;
  SUBBYTE_TRY(const TensorSource tensors, TensorSource::open(run.directory));
  for (const auto& [name, tensor] : tensors.tensors()) {
    (is_repacked(name) ? figures.repacked_bytes : figures.mapped_bytes) +=
        static_cast<double>(tensor.bytes.size());
  }
  const auto size = static_cast<int64_t>(figures.repacked_bytes);
  SUBBYTE_TRY(const auto execution, Execution::create({.num_threads = run.threads}));
  std::vector<double> load, fresh, warm;
  const auto from = allocate_bytes(size);
  const auto kept = allocate_bytes(size);
  std::memset(from.get(), 1, size);
  std::memset(kept.get(), 1, size);
  for (int i = 0; i <= run.rounds; ++i) {
    const double before = process_bytes("VmRSS:");
    reset_peak();
    double start = now();
    {
      SUBBYTE_TRY(const auto model, load_model(run.directory, *execution));
      load.push_back(now() - start);
      figures.allocated_bytes = static_cast<double>(model->weight_bytes()) - figures.mapped_bytes;
      figures.resident_bytes = std::max(figures.resident_bytes, process_bytes("VmHWM:") - before);
    }
    start = now();
    const auto to = allocate_bytes(size);
    copy(to.get(), from.get(), size, execution->pool());
    fresh.push_back(now() - start);
    start = now();
    copy(kept.get(), from.get(), size, execution->pool());
    warm.push_back(now() - start);
    if (i == 0) load.clear(), fresh.clear(), warm.clear();  // it filled the page cache
  }
  figures.load_rate = figures.repacked_bytes / median(load);
  figures.copy_fresh_rate = figures.repacked_bytes / median(fresh);
  figures.copy_warm_rate = figures.repacked_bytes / median(warm);
  return figures;
}

}  // namespace subbyte::bench
