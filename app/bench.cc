// subbyte bench: how fast a model reads prompts and generates, by llama-bench's tests.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "app/bench_report.h"
#include "app/command.h"
#include "app/number_list.h"
#include "backends/processes.h"
#include "base/cpu_features.h"
#include "engine/streams.h"
#include "engine/workload.h"
#include "verify/inspect.h"

namespace subbyte::app {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 26;
constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxStreams = 1024;
constexpr std::size_t kMaxTests = 10'000;

struct Options {
  std::string model;
  int head_bits = 16;
  std::string prompt = "512";
  std::string generated = "128";
  std::vector<std::string> both;
  std::string depth = "0";
  std::string parallel = "1";
  std::string threads;
  std::string kv_cache_types = "f16";
  int repetitions = 5;
  bool no_warmup = false;
  std::string output = "md";
  bool json = false;
};

Streams::Size streams_of(const Workload& workload) {
  return {workload.streams, workload.depth, workload.generated};
}

/// Every combination of these is a test.
struct Tests {
  std::vector<int> threads;  // 0: as the program's other commands have it
  std::vector<std::string> kv_types;
  std::vector<Workload> workloads;

  /// Of a sequence.
  int64_t positions() const {
    return std::ranges::max(workloads, {}, &Workload::positions).positions();
  }
  /// The sequence of one stream, and those of a test of many beside it.
  CacheSize cache_size() const {
    CacheSize all = {.positions = positions()};
    for (const Workload& one : workloads) {
      const CacheSize size = Streams::cache_size(streams_of(one));
      if (one.streams == 1) continue;
      all.positions = std::max(all.positions, positions() + size.positions);
      all.sequences = std::max(all.sequences, 1 + size.sequences);
    }
    return all;
  }
};

/// "512,128" of --pg.
Result<Workload> parse_both(const std::string& text) {
  SUBBYTE_TRY(const auto numbers, parse_numbers("--pg", text, 1, kMaxTokens));
  if (numbers.size() == 2) return Workload{.prompt = numbers[0], .generated = numbers[1]};
  return Error{
      "usage.numbers",
      fmt::format("--pg: expected a prompt and what is generated, such as 512,128, found {}",
                  quote(text))};
}

/// For each context prompts, then generations, of one stream and of many, then both.
Result<std::vector<Workload>> workloads_of(const Options& options) {
  SUBBYTE_TRY(const auto prompts, parse_numbers("--n-prompt", options.prompt, 0, kMaxTokens));
  SUBBYTE_TRY(const auto generated, parse_numbers("--n-gen", options.generated, 0, kMaxTokens));
  SUBBYTE_TRY(const auto depths, parse_numbers("--n-depth", options.depth, 0, kMaxTokens));
  SUBBYTE_TRY(const auto streams, parse_numbers("--parallel", options.parallel, 1, kMaxStreams));
  std::vector<Workload> both;
  for (const std::string& text : options.both) {
    SUBBYTE_TRY(both.emplace_back(), parse_both(text));
  }
  const std::size_t num_tests =
      depths.size() * (prompts.size() + generated.size() * streams.size() + both.size());
  if (num_tests > kMaxTests) {
    return Error{"usage.numbers", fmt::format("the lists of --n-prompt, --n-gen, --parallel and "
                                              "--n-depth make {} tests, expected at most {}",
                                              num_tests, kMaxTests)};
  }
  const auto is_more = [](int64_t number) { return number > 1; };
  if (std::ranges::any_of(streams, is_more) && std::ranges::max(generated) == 0) {
    return Error{"usage.numbers",
                 "--parallel is for tests of generated tokens alone: expected --n-gen above 0"};
  }
  std::vector<Workload> workloads;
  for (const int64_t depth : depths) {
    for (const int64_t n : prompts) workloads.push_back({.depth = depth, .prompt = n});
    for (const int64_t n : generated) {
      for (const int64_t count : streams) {
        workloads.push_back({.depth = depth, .generated = n, .streams = count});
      }
    }
    for (Workload one : both) {
      one.depth = depth;
      workloads.push_back(one);
    }
  }
  std::erase_if(workloads, [](const Workload& one) { return one.tokens() == 0; });
  if (!workloads.empty()) return workloads;
  return Error{"usage.numbers", "no test: --n-prompt and --n-gen are 0, and there is no --pg"};
}

Result<std::vector<std::string>> parse_kv_types(const std::string& text) {
  std::vector<std::string> types;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    types.push_back(text.substr(begin, end - begin));
    if (!find_cache_type(types.back())) {
      return Error{
          "usage.kv_cache_type",
          fmt::format("--kv-cache-type: expected a list of f32, f16, bf16 and fp8, found {}",
                      quote(types.back()))};
    }
    begin = end + 1;
  }
  return types;
}

Result<Tests> tests_of(const Options& options) {
  Tests tests;
  SUBBYTE_TRY(tests.workloads, workloads_of(options));
  SUBBYTE_TRY(tests.kv_types, parse_kv_types(options.kv_cache_types));
  tests.threads = {0};
  const bool is_default = options.threads == "0" || options.threads == "-1";
  if (!options.threads.empty() && !is_default) {
    SUBBYTE_TRY(const auto numbers, parse_numbers("--threads", options.threads, 1, kMaxThreads));
    tests.threads.assign(numbers.begin(), numbers.end());
  }
  return tests;
}

/// The tests of one number of threads, with the model loaded for them.
class Bench {
 public:
  Bench(const Invocation& invocation, const Options& options, ReadyModel& loaded,
        BenchReport& report)
      : invocation_(invocation), options_(options), loaded_(loaded), report_(report) {}

  Status run(const Tests& tests) {
    for (const std::string& type : tests.kv_types) {
      SUBBYTE_TRY(KvPool pool, loaded_.model->make_kv_pool(*loaded_.backend, kv_element(type),
                                                           tests.cache_size()));
      Sequence sequence(pool, tests.positions());
      WorkloadRunner runner(*loaded_.model, *loaded_.backend, sequence);
      for (const Workload& workload : tests.workloads) {
        BenchResult result;
        result.workload = workload;
        result.kv_type = type;
        SUBBYTE_CHECK(measure(runner, pool, result));
        report_.add(result);
      }
    }
    return {};
  }

 private:
  Status measure(WorkloadRunner& runner, KvPool& pool, BenchResult& result) {
    Backend& backend = *loaded_.backend;
    const Workload& workload = result.workload;
    result.threads = backend.host().size();
    result.kernels = backend.description();
    result.time = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    const bool generates = workload.prompt == 0;
    if (generates) result.bytes_per_token = bytes_per_token(workload, pool);
    Progress progress(invocation_, to_string(workload));
    std::optional<Streams> streams;
    if (workload.streams > 1) {
      streams.emplace(*loaded_.model, backend, pool, streams_of(workload));
      SUBBYTE_CHECK(streams->fill_contexts());
    }
    if (!options_.no_warmup) {
      Workload first = workload;
      first.generated = std::min<int64_t>(workload.generated, 1);
      SUBBYTE_CHECK(seconds_of(first, runner, streams));
    }
    std::vector<double> bandwidth;
    for (int i = 0; i < options_.repetitions; ++i) {
      progress.update(i, options_.repetitions);
      if (generates) {
        bandwidth.push_back(backend.measure_read_bandwidth(loaded_.model->largest_weight()));
      }
      SUBBYTE_TRY(result.seconds.emplace_back(), seconds_of(workload, runner, streams));
    }
    if (generates) {
      std::ranges::sort(bandwidth);
      result.read_bandwidth = bandwidth[bandwidth.size() / 2];
    }
    return {};
  }

  /// A step of all streams reads the weights once; of experts those of one token are counted. In
  /// the mean a token sees the context and half of what is generated.
  double bytes_per_token(const Workload& workload, const KvPool& pool) const {
    const double positions =
        static_cast<double>(workload.depth) + static_cast<double>(workload.generated) / 2;
    return static_cast<double>(loaded_.model->bytes_per_token()) /
               static_cast<double>(workload.streams) +
           static_cast<double>(
               cache_read_bytes(pool.layout(), pool.type(), std::llround(positions)));
  }

  static Result<double> seconds_of(const Workload& workload, WorkloadRunner& runner,
                                   std::optional<Streams>& streams) {
    if (streams) return streams->generate(workload.generated);
    SUBBYTE_TRY(const WorkloadTimes times, runner.run(workload));
    return times.seconds();
  }

  const Invocation& invocation_;
  const Options& options_;
  ReadyModel& loaded_;
  BenchReport& report_;
};

Result<BenchSubject> describe(const Invocation& invocation, const ReadyModel& loaded,
                              const Tests& tests) {
  SUBBYTE_TRY(const Inspection inspection, inspect(loaded.files, loaded.backend->host()));
  const MachineMemory* const memory = loaded.backend->memory();
  const bool is_quantized = inspection.quantization != "none";
  const std::string format = is_quantized ? " " + inspection.quantization : "";
  return BenchSubject{.path = loaded.files.path().string(),
                      .type = inspection.architecture + format,
                      .size = static_cast<int64_t>(inspection.bytes),
                      .num_parameters = static_cast<int64_t>(inspection.parameters),
                      .processor = processor_name(),
                      .gpu = memory == nullptr ? "" : memory->name(),
                      .activations = invocation.activations,
                      .has_kv_types = tests.kv_types.size() > 1};
}

Status run_tests(Invocation invocation, const Options& options, const Tests& tests,
                 std::optional<BenchReport>& report) {
  const auto largest = std::ranges::max(tests.kv_types, {}, [](const std::string& type) {
    return KvShape{.layers = 1, .kv_heads = 1, .head_dim = 128, .type = kv_element(type)}
        .bytes_per_position();
  });
  for (const int threads : tests.threads) {
    if (threads != 0) invocation.threads = threads;
    SUBBYTE_TRY(ReadyModel loaded, open(invocation, options.model));
    SUBBYTE_CHECK(check_context(loaded.config, tests.positions()));
    const CacheSize size = tests.cache_size();
    SUBBYTE_CHECK(load(invocation, loaded,
                       {.head_bits = options.head_bits,
                        .cache_type = kv_element(largest),
                        .cache_positions = size.positions,
                        .step_sequences = size.sequences,
                        .step_logits = size.sequences}));
    if (!report) {
      SUBBYTE_TRY(BenchSubject subject, describe(invocation, loaded, tests));
      report.emplace(options.json ? BenchFormat::kJson : kBenchFormats.at(options.output),
                     std::move(subject));
    }
    SUBBYTE_CHECK(Bench(invocation, options, loaded, *report).run(tests));
  }
  return {};
}

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const Tests tests, tests_of(options));
  SUBBYTE_TRY(const DeviceOptions device, device_options(invocation));
  if (tests.threads.size() > 1 && is_one_of_several(device)) {
    return Error{"usage.numbers",
                 "--threads: processes of mpirun load a model once: expected one number, not a "
                 "list"};
  }
  std::optional<BenchReport> report;
  const Status status = run_tests(invocation, options, tests, report);
  if (report) report->finish();  // so that what was measured before an error can be read
  SUBBYTE_CHECK(status);
  return kOk;
}

}  // namespace

void add_bench(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "bench", "Measure prompts and generation by llama-bench's tests: pp512, tg128",
      "  subbyte bench ./model\n"
      "  subbyte bench ./model -p 128,512,2048 -n 0 -t 1,2,4,8\n"
      "  subbyte bench ./model -p 0 -d 0,4096,16384 --kv-cache-type f16,fp8\n"
      "  subbyte bench ./model -p 0 --parallel 1,16,64\n"
      "  subbyte bench ./model --pg 512,128 -r 10 -o json > bench.json\n\n"
      "Lists are 1,2,4 or 1-4 or 0-1024+256 or 1-16*2; every combination is a test.\n"
      "t/s is the mean and the deviation of the repetitions. read GB/s is what the\n"
      "machine reads from memory, measured between them, and share what generating\n"
      "reaches of it; both are left out where the weights fit into the caches.");
  auto options = std::make_shared<Options>();
  command.model(options->model);
  command.option("-p,--n-prompt", options->prompt, "tokens of prompts, a list; 0: none")
      .shows_default();
  command.option("-n,--n-gen", options->generated, "tokens to generate, a list; 0: none")
      .shows_default();
  command.option("--pg", options->both,
                 "P,N: a prompt of P tokens and N generated ones, as one test");
  command
      .option("--parallel", options->parallel,
              "sequences that generate together, a list; in tests without a prompt")
      .value("LIST")
      .shows_default();
  command.option("-d,--n-depth", options->depth, "positions of the context before, a list")
      .shows_default();
  command
      .option("-t,--threads", options->threads,
              "threads, a list (SUBBYTE_THREADS; default: all processors)")
      .value("LIST");
  command
      .option("--kv-cache-type,--ctk", options->kv_cache_types,
              "what the key-value cache is stored as, a list of f32, f16, bf16 and fp8")
      .shows_default();
  command.option("-r,--repetitions", options->repetitions, "of each test")
      .between(1, 1000)
      .shows_default();
  command.flag("--no-warmup", options->no_warmup, "leave out the run before the repetitions");
  const Argument output =
      command.option("-o,--output", options->output, "md (a table), json, jsonl or csv")
          .one_of(kBenchFormats)
          .shows_default();
  command.flag("--json", options->json, "the same as -o json").excludes(output);
  add_head_bits(command, options->head_bits);
  command.shares(Shares::kModel);
  command.run([options, &invocation] { return run(invocation, *options); });
}

}  // namespace subbyte::app
