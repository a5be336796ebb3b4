#include "bench/cuda/model_suite.h"

#include <cuda_runtime_api.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "backends/backends.h"
#include "bench/cuda/device_times.h"
#include "bench/cuda/graph_timer.h"
#include "bench/cuda/model_rounds.h"
#include "bench/cuda/model_targets.h"
#include "bench/make_model.h"
#include "bench/timing.h"
#include "json/strict_json.h"
#include "models/model.h"
#include "models/tensor_spec.h"

namespace subbyte::bench {
namespace {

constexpr int64_t kContext = 128;         // of what is called a short one
constexpr int64_t kSteps = 256;           // one stream
constexpr int64_t kLongSteps = 64;        // after the long context
constexpr int64_t kBatchSteps = 32;       // of more sequences
constexpr int64_t kPrefillTokens = 4096;  // also those of a product of cuBLAS
constexpr int64_t kShortChunk = 512;      // of a prompt beside many that decode
constexpr int kReplays = 9;

/// A line of the table. Times and bytes are those of decode steps.
struct Row {
  std::string measure;
  std::string title;
  double tokens_per_second = 0;
  DecodeFigures decode;
  bool is_decode = false;
};

std::string device_name() {
  int index = 0;
  cudaDeviceProp properties;
  must(cudaGetDevice(&index), "device");
  must(cudaGetDeviceProperties(&properties, index), "device");
  return properties.name;
}

/// Shapes of gpt-oss are those whose names begin so, those of Qwen3.5 begin with 3.5; those with
/// experts name the parameters that a token uses; the others are Qwen3's. ":16" after a shape: its
/// first 16 layers.
SynthOptions options_of(std::string model) {
  constexpr std::string_view kOss = "oss-";
  constexpr std::string_view kNewer = "3.5-";
  SynthOptions options;
  options.format = "awq";
  if (const std::size_t colon = model.find(':'); colon != std::string::npos) {
    options.layers = std::atoll(model.c_str() + colon + 1);
    model.resize(colon);
  }
  if (model.starts_with(kOss)) {
    options.arch = "gpt-oss";
    options.format = "mxfp4";
    options.shape = model.substr(kOss.size());
    return options;
  }
  const bool is_newer = model.starts_with(kNewer);
  options.shape = is_newer ? model.substr(kNewer.size()) : model;
  options.arch = is_newer ? "qwen3.5" : "qwen3";
  if (model.find("b-a") != std::string::npos) options.arch += "-moe";
  return options;
}

/// One model: its figures, and what they are compared with.
class ModelTable {
 public:
  ModelTable(const ModelSuite& suite, std::string model, DeviceTimes& times, double bandwidth)
      : suite_(suite), name_(std::move(model)), times_(times), bandwidth_(bandwidth) {}

  Status measure() {
    const SynthOptions options = options_of(name_);
    title_ = fmt::format("{}-{}-{}", options.arch, options.shape, options.format);
    if (options.layers > 0) title_ += fmt::format("-{}-layers", options.layers);
    const std::filesystem::path directory = std::filesystem::path(suite_.folder) / title_;
    SUBBYTE_CHECK(make_model(directory, options));
    DeviceOptions device;
    device.device = "cuda";
    device.step_kernel_tokens = suite_.step_tokens;
    device.step_graphs = !suite_.no_graphs;
    SUBBYTE_TRY(backend_, make_backend(device));
    const double start = now();
    SUBBYTE_TRY(model_, load_model(directory, *backend_));
    load_seconds_ = now() - start;
    print_head();
    SUBBYTE_CHECK(decode("decode", 1, kContext, kSteps));
    SUBBYTE_CHECK(decode("decode-long", 1, suite_.context, kLongSteps));
    for (const int64_t batch : suite_.batches) {
      SUBBYTE_CHECK(decode("decode-batch-" + std::to_string(batch), batch, kContext, kBatchSteps));
    }
    SUBBYTE_CHECK(prefill("prefill", kPrefillTokens));
    SUBBYTE_CHECK(prefill("prefill-chunks", kShortChunk));
    print_vendor();
    print_targets();
    return {};
  }

  json::Value to_json() const {
    json::Value rows = json::Value::array();
    for (const Row& row : rows_) {
      json::Value figures = {{"measure", row.measure},
                             {"tokens_per_second", row.tokens_per_second}};
      if (row.is_decode) {
        figures.update({{"step_us", 1e6 * row.decode.step_seconds},
                        {"submit_us", 1e6 * row.decode.submit_seconds},
                        {"wait_us", 1e6 * row.decode.wait_seconds},
                        {"bytes", row.decode.bytes},
                        {"of_limit", share(row)}});
      }
      rows.push_back(std::move(figures));
    }
    return {{"model", name_},
            {"load_seconds", load_seconds_},
            {"cublas_tokens_per_second", vendor_rate_},
            {"rows", rows}};
  }

 private:
  void print_head() const {
    fmt::print(
        "\n{}, embedding, head and cache of 16 bits: {:.2f} GB of weights, loaded in "
        "{:.1f} s\n\n| | tokens/s | step us | submit | wait | rest | MB/step | % of the limit "
        "| as |\n|---|---|---|---|---|---|---|---|---|\n",
        title_, static_cast<double>(model_->weight_bytes()) * 1e-9, load_seconds_);
  }

  /// Of the time that a step takes, what its bytes take at B.
  double share(const Row& row) const {
    return row.decode.bytes / bandwidth_ / row.decode.step_seconds;
  }

  Status decode(const std::string& measure, int64_t sequences, int64_t context, int64_t steps) {
    const DecodeRun run = {sequences, context, steps, suite_.rounds, suite_.in_flight};
    Row row;
    row.measure = measure;
    row.is_decode = true;
    row.title = sequences == 1 ? fmt::format("one stream after {} tokens", context)
                               : fmt::format("{} streams after {} tokens", sequences, context);
    SUBBYTE_TRY(row.decode, measure_decode(*model_, *backend_, run));
    const DecodeFigures& f = row.decode;
    row.tokens_per_second = f.tokens_per_second;
    fmt::print("| {} | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {} |\n",
               row.title, f.tokens_per_second, 1e6 * f.step_seconds, 1e6 * f.submit_seconds,
               1e6 * f.wait_seconds, 1e6 * (f.step_seconds - f.submit_seconds - f.wait_seconds),
               1e-6 * f.bytes, 100 * share(row), f.ran_as);
    std::fflush(stdout);
    rows_.push_back(std::move(row));
    return {};
  }

  Status prefill(const std::string& measure, int64_t chunk) {
    Row row;
    row.measure = measure;
    row.title = fmt::format("prompt of {}, {} in a step", kPrefillTokens, chunk);
    SUBBYTE_TRY(row.tokens_per_second,
                measure_prefill(*model_, *backend_, {kPrefillTokens, chunk, suite_.rounds}));
    fmt::print("| {} | {:.0f} | | | | | | | |\n", row.title, row.tokens_per_second);
    std::fflush(stdout);
    rows_.push_back(std::move(row));
    return {};
  }

  /// The products of all layers alone, by cuBLAS.
  void print_vendor() {
    const ModelConfig& config = model_->config();
    if (expert_stack_of(config)) return;                      // `gpu-bench moe` has these
    if (!ops_of<DeltaNetOp>(model_->plan()).empty()) return;  // other products than these
    const int64_t hidden = config.hidden_size;
    const int64_t q_size = config.num_heads * config.head_dim;
    const int64_t kv_size = config.num_kv_heads * config.head_dim;
    const int64_t inner = config.intermediate_size;
    const std::pair<int64_t, int64_t> products[] = {// rows, columns
                                                    {q_size + 2 * kv_size, hidden},
                                                    {hidden, q_size},
                                                    {2 * inner, hidden},
                                                    {hidden, inner}};
    double layer_us = 0;
    for (const auto& [rows, cols] : products) {
      const double us = times_.vendor_product(kPrefillTokens, rows, cols);
      if (us == 0) return;
      layer_us += us;
    }
    vendor_rate_ = static_cast<double>(kPrefillTokens) /
                   (1e-6 * layer_us * static_cast<double>(config.num_layers));
    fmt::print("| cuBLAS f16, the products of {} tokens | {:.0f} | | | | | | | |\n", kPrefillTokens,
               vendor_rate_);
  }

  double rate(std::string_view measure) const {
    for (const Row& row : rows_) {
      if (row.measure == measure) return row.tokens_per_second;
    }
    return 0;
  }

  void print_targets() const {
    bool is_first = true;
    for (const ModelTarget& target : kModelTargets) {
      const double seen = rate(target.measure);
      if (target.model != name_ || seen == 0) continue;
      if (is_first) fmt::print("\n| target | must | aim | seen |\n|---|---|---|---|\n");
      is_first = false;
      switch (target.of) {
        case TargetOf::kTokensPerSecond:
          fmt::print("| {}, tokens/s | {} | {} | {:.0f} |\n", target.measure, target.must,
                     target.aim, seen);
          break;
        case TargetOf::kOneStream:
          print_ratio(target, "decode", seen, rate("decode"));
          break;
        case TargetOf::kVendorRate:
          print_ratio(target, "cuBLAS", seen, vendor_rate_);
          break;
        case TargetOf::kLlamaCpp:
          print_ratio(target, "llama.cpp", seen, 0);
          break;
      }
    }
  }

  /// `base` of 0: not measured here.
  static void print_ratio(const ModelTarget& target, std::string_view of, double seen,
                          double base) {
    fmt::print("| {}, x {} | {} | {} | {} |\n", target.measure, of, target.must, target.aim,
               base == 0 ? "-" : fmt::format("{:.2f}", seen / base));
  }

  const ModelSuite& suite_;
  std::string name_;
  std::string title_;
  DeviceTimes& times_;
  double bandwidth_;
  double load_seconds_ = 0;
  double vendor_rate_ = 0;  // tokens per second; 0 without cuBLAS
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::vector<Row> rows_;
};

}  // namespace

Status run_model_suite(const ModelSuite& suite) {
  const Error unwritable = {"bench.json", suite.json + ": could not be written"};
  std::ofstream file;
  if (!suite.json.empty()) file.open(suite.json);
  if (!file) return unwritable;
  DeviceTimes times(kReplays);
  const std::string why = suite.no_cublas ? "" : times.load_cublas();
  if (!why.empty()) fmt::print("cuBLAS: {}\n", why);
  const double bandwidth = times.read_bandwidth();
  const std::string date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  fmt::print("{}, {}, B = {:.0f} GB/s; greedy, medians of {} rounds\n", device_name(), date,
             bandwidth * 1e-9, suite.rounds);
  json::Value figures = {{"device", device_name()}, {"date", date}, {"bandwidth", bandwidth}};
  for (const std::string& model : suite.models) {
    ModelTable table(suite, model, times, bandwidth);
    SUBBYTE_CHECK(table.measure());
    figures["models"].push_back(table.to_json());
  }
  if (!suite.json.empty()) file << json::to_text(figures, 2) << std::endl;
  if (!file) return unwritable;
  return {};
}

}  // namespace subbyte::bench
