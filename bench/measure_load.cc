#include "bench/measure_load.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "backends/backends.h"
#include "checkpoints/containers/tensor_source.h"
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

/// Seconds of each round.
struct Times {
  std::vector<double> load, warm, fresh, file;
};

/// The bytes that are repacked, as they lie in the files.
std::vector<const FileTensor*> repacked_tensors(const TensorSource& tensors) {
  std::vector<const FileTensor*> result;
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (is_repacked(name)) result.push_back(&tensor);
  }
  return result;
}

Status run_round(const LoadRun& run, Backend& backend, LoadFigures& figures, Times& times) {
  const double before = process_bytes("VmRSS:");
  reset_peak();
  const double start = now();
  SUBBYTE_TRY(const auto model, load_model(run.directory, backend));
  times.load.push_back(now() - start);
  figures.allocated_bytes = static_cast<double>(model->weight_bytes()) - figures.mapped_bytes;
  figures.resident_bytes = std::max(figures.resident_bytes, process_bytes("VmHWM:") - before);
  return {};
}

double time_copy(std::byte* to, const std::byte* from, int64_t size, Executor& executor) {
  const double start = now();
  const auto fresh = to == nullptr ? allocate_bytes(size) : nullptr;
  copy(to == nullptr ? fresh.get() : to, from, size, executor);
  return now() - start;
}

double time_file_copy(const std::vector<const FileTensor*>& tensors, Executor& executor) {
  const double start = now();
  std::vector<std::shared_ptr<std::byte[]>> copies;
  for (const FileTensor* tensor : tensors) {
    copies.push_back(allocate_bytes(tensor->bytes.size()));
    copy(copies.back().get(), tensor->bytes.data(), std::ssize(tensor->bytes), executor);
    tensor->file->release(tensor->bytes);
  }
  return now() - start;
}

}  // namespace

Result<LoadFigures> measure_load(const LoadRun& run) {
  LoadFigures figures;
  SUBBYTE_TRY(const TensorSource tensors, TensorSource::open(run.directory));
  const auto repacked = repacked_tensors(tensors);
  for (const FileTensor* tensor : repacked) {
    figures.repacked_bytes += static_cast<double>(tensor->bytes.size());
  }
  figures.mapped_bytes = static_cast<double>(tensors.total_bytes()) - figures.repacked_bytes;
  SUBBYTE_TRY(const auto backend, make_backend({.device = "cpu", .num_threads = run.threads}));
  const auto size = static_cast<int64_t>(figures.repacked_bytes);
  const auto from = allocate_bytes(size);
  const auto kept = allocate_bytes(size);
  std::memset(from.get(), 1, size);
  std::memset(kept.get(), 1, size);
  Times times;
  for (int i = 0; i <= run.rounds; ++i) {
    if (i == 1) times = {};  // the first filled the page cache
    SUBBYTE_CHECK(run_round(run, *backend, figures, times));
    times.fresh.push_back(time_copy(nullptr, from.get(), size, backend->host()));
    times.warm.push_back(time_copy(kept.get(), from.get(), size, backend->host()));
    times.file.push_back(time_file_copy(repacked, backend->host()));
  }
  figures.load_rate = figures.repacked_bytes / median(times.load);
  figures.copy_warm_rate = figures.repacked_bytes / median(times.warm);
  figures.copy_fresh_rate = figures.repacked_bytes / median(times.fresh);
  figures.copy_file_rate = figures.repacked_bytes / median(times.file);
  return figures;
}

}  // namespace subbyte::bench
