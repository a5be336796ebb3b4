#include "bench/measure_model.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <vector>

#include "bench/timing.h"
#include "engine/workload.h"
#include "kernels/cpu/read_bandwidth.h"
#include "models/model.h"

namespace subbyte::bench {
namespace {

constexpr std::size_t kBandwidthBytes = std::size_t{1} << 30;

/// The most memory that was ever resident, from the system.
double peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) * 1024;
  }
  return 0;
}

double file_bytes(const std::filesystem::path& directory) {
  double sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") sum += static_cast<double>(entry.file_size());
  }
  return sum;
}

Result<ModelFigures> measure_here(const ModelRun& run) {
  ModelFigures figures;
  SUBBYTE_TRY(const auto backend, make_backend(run.device));
  const double start = now();
  const int64_t capacity = run.prompt + run.decode;
  SUBBYTE_TRY(const auto model, load_model(run.directory, *backend,
                                           {.head_bits = run.head_bits,
                                            .cache_type = run.kv_type,
                                            .cache_positions = capacity}));
  figures.load_seconds = now() - start;
  SUBBYTE_TRY(KvPool pool, model->make_kv_pool(*backend, run.kv_type, {capacity}));
  Sequence sequence(pool, capacity);
  WorkloadRunner runner(*model, *backend, sequence);
  const Workload workload = {.prompt = run.prompt, .generated = run.decode};
  SUBBYTE_CHECK(runner.run(workload));
  figures.resident_bytes = peak_resident_bytes();  // before the buffer below

  const auto buffer = allocate_bytes(kBandwidthBytes);
  std::memset(buffer.get(), 1, kBandwidthBytes);
  std::vector<double> bandwidth, prefill, decode;
  for (int i = 0; i < run.rounds; ++i) {
    bandwidth.push_back(
        backend->memory() != nullptr
            ? backend->measure_read_bandwidth(model->largest_weight())
            : cpu::measure_read_bandwidth({buffer.get(), kBandwidthBytes}, backend->host(), 1)
                  .bytes_per_second);
    SUBBYTE_TRY(const WorkloadTimes times, runner.run(workload));
    prefill.push_back(run.prompt / times.prompt_seconds);
    decode.push_back(run.decode / times.generate_seconds);
  }
  figures.read_bandwidth = median(bandwidth);
  figures.prefill_tokens = median(prefill);
  figures.decode_tokens = median(decode);
  const int64_t positions = run.prompt + run.decode / 2;  // that a token sees on average
  figures.bytes_per_token =
      static_cast<double>(model->bytes_per_token()) +
      static_cast<double>(cache_read_bytes(pool.layout(), pool.type(), positions));
  figures.checkpoint_bytes = file_bytes(run.directory);
  figures.kv_bytes =
      static_cast<double>(cache_bytes(pool.layout(), pool.type(), {.positions = capacity}));
  return figures;
}

/// In the child: figures on success, else a line of text.
[[noreturn]] void report_and_exit(const ModelRun& run, int pipe) {
  const auto figures = measure_here(run);
  std::string message(1, figures.ok() ? '+' : '-');
  if (figures.ok()) {
    message.append(reinterpret_cast<const char*>(&*figures), sizeof(ModelFigures));
  } else {
    message += figures.error().message;
  }
  const bool sent = write(pipe, message.data(), message.size()) == std::ssize(message);
  _exit(sent ? 0 : 1);
}

}  // namespace

Result<ModelFigures> measure_model(const ModelRun& run) {
  int ends[2];
  if (pipe(ends) != 0) return Error{"bench.pipe", "could not make a pipe"};
  const pid_t child = fork();
  if (child < 0) return Error{"bench.fork", "could not start a process"};
  if (child == 0) report_and_exit(run, ends[1]);
  close(ends[1]);
  std::string message;
  char part[4096];
  for (ssize_t n = 0; (n = read(ends[0], part, sizeof part)) > 0;) message.append(part, n);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  if (message.empty()) return Error{"bench.died", "the process that measured died"};
  if (message[0] != '+' || message.size() != 1 + sizeof(ModelFigures)) {
    return Error{"bench.failed", message.substr(1)};
  }
  ModelFigures figures;
  std::memcpy(&figures, message.data() + 1, sizeof figures);
  return figures;
}

}  // namespace subbyte::bench
