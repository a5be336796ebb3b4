// subbyte plan: on how many GPUs a model fits, and how fast it is expected to be there.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "app/checkpoint_json.h"
#include "app/command.h"
#include "app/output.h"
#include "backends/matrix_bytes.h"
#include "base/quote.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/model_path.h"
#include "models/gpu_plan.h"
#include "models/model_config.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string model;
  std::string gpus;
  std::string cache_type = "f16";
  int64_t context = 4096;
  int64_t clients = 1;
  int64_t stages = 0;
  bool json = false;
};

/// The cards that were measured: "H100, H200".
std::string card_names() {
  std::string names;
  for (const CardFigures& card : measured_cards()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", card.name);
  }
  return names;
}

/// "8xH200", or a card alone. Codes: usage.gpus, usage.card.
Status read_gpus(const std::string& text, GpuPlanRequest& request) {
  const std::size_t times = text.find('x');
  const bool has_number = times != std::string::npos;
  if (has_number) {
    const char* const end = text.data() + times;
    const auto found = std::from_chars(text.data(), end, request.gpus);
    if (found.ec != std::errc() || found.ptr != end || request.gpus < 1 || request.gpus > 1024) {
      return Error{"usage.gpus", fmt::format("--gpus: expected 1 to 1024 times a card, such as "
                                             "8xH200, found {}",
                                             quote(text))};
    }
  }
  const std::string name = has_number ? text.substr(times + 1) : text;
  request.card = find_card(name);
  if (request.card != nullptr) return {};
  return Error{"usage.card", fmt::format("--gpus: expected a card that was measured ({}), found {}",
                                         card_names(), quote(name))};
}

/// The one with the most tokens; nullptr where none has room.
const GpuPlan* best_of(const std::vector<GpuPlan>& plans) {
  const auto best = std::ranges::max_element(plans, {}, &GpuPlan::tokens_per_second);
  return best == plans.end() || best->at_once == 0 ? nullptr : &*best;
}

Json json_of(const GpuPlan& plan) {
  const auto whole = [](double bytes) { return static_cast<int64_t>(bytes); };
  return {{"gpus", plan.gpus},
          {"replicas", plan.replicas},
          {"weight_bytes", whole(plan.weight_bytes)},
          {"cache_bytes", whole(plan.cache_bytes)},
          {"workspace_bytes", whole(plan.workspace_bytes)},
          {"at_once", plan.at_once},
          {"step_seconds", plan.step_seconds},
          {"exchange_seconds", plan.exchange_seconds},
          {"tokens_per_second", plan.tokens_per_second},
          {"prompt_tokens_per_second", plan.prompt_per_second}};
}

std::string as_json(const Options& options, const GpuPlanRequest& request,
                    const std::vector<GpuPlan>& plans, std::optional<int64_t> fitting) {
  Json list = Json::array();
  for (const GpuPlan& plan : plans) list.push_back(json_of(plan));
  const GpuPlan* const best = best_of(plans);
  Json root = {{"card", std::string(request.card->name)},
               {"measured", std::string(request.card->date)},
               {"gpus", request.gpus},
               {"context", request.context},
               {"clients", request.clients},
               {"best_gpus", best == nullptr ? 0 : best->gpus},
               {"plans", std::move(list)}};
  if (options.stages > 0) root["stages"] = options.stages;
  if (fitting) root["layers_that_fit"] = *fitting;
  return json_text(with_checkpoint(options.model, root));
}

constexpr const char* kColumns = "{:>4} {:>8} {:>8} {:>8} {:>6} {:>8} {:>9} {:>7} {:>9}";

std::string row(const GpuPlan& plan) {
  const auto gigabytes = [](double bytes) { return fmt::format("{:.1f}", bytes / 1e9); };
  const auto rounded = [](double number) { return fmt::format("{:.0f}", number); };
  const bool has_room = plan.at_once > 0;
  const double each =
      plan.tokens_per_second / static_cast<double>(std::max<int64_t>(plan.at_once, 1));
  return fmt::format(kColumns, plan.gpus, plan.replicas, gigabytes(plan.weight_bytes),
                     has_room ? gigabytes(plan.cache_bytes) : "-", gigabytes(plan.workspace_bytes),
                     has_room ? std::to_string(plan.at_once) : "no room",
                     rounded(plan.tokens_per_second), fmt::format("{:.1f}", each),
                     rounded(plan.prompt_per_second)) +
         "\n";
}

/// "1 client", "2 clients".
std::string counted(int64_t count, const char* thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

/// What follows from the rows.
std::string advice(const GpuPlanRequest& request, const GpuPlan* best, int64_t stages,
                   std::optional<int64_t> fitting) {
  if (best == nullptr) {
    std::string text = "no number of these GPUs has room\n";
    if (fitting.value_or(0) > 0) {
      text += line("one has room for the last {}: `--gpu-layers auto` leaves the others to the CPU",
                   counted(*fitting, "layer"));
    }
    return text;
  }
  std::string text = line("most tokens: {} on {} each", counted(best->replicas, "replica"),
                          counted(best->gpus, "GPU"));
  if (best->gpus > 1) {
    text += line("{:.1f} ms a step, of which {} take {:.1f} ms", 1e3 * best->step_seconds,
                 stages > 0 ? "borders of stages" : "sums over GPUs", 1e3 * best->exchange_seconds);
  }
  if (best->at_once < request.clients) {
    const int64_t waiting = request.clients - best->at_once;
    text += line("{} wait{} for others", counted(waiting, "client"), waiting == 1 ? "s" : "");
  }
  return text;
}

std::string as_text(const GpuPlanRequest& request, const std::vector<GpuPlan>& plans,
                    int64_t stages, std::optional<int64_t> fitting) {
  std::string text = line("{} x {}, {} with {} tokens each; figures of one {}, {}", request.gpus,
                          request.card->name, counted(request.clients, "client"), request.context,
                          request.card->name, request.card->date);
  text += line("GB of weights, cache and a step are of {}, tokens/s are expected",
               stages > 0 ? "the GPU that has most" : "each GPU");
  text = fitted(text, stdout, 2) + "\n";
  text += fmt::format(kColumns, "GPUs", "replicas", "weights", "cache", "step", "at once",
                      "tokens/s", "of each", "prompt/s") +
          "\n";
  for (const GpuPlan& plan : plans) text += row(plan);
  return text + "\n" + advice(request, best_of(plans), stages, fitting);
}

/// The layers that one GPU has room for, where none has room for all.
Result<std::optional<int64_t>> layers_for_one(const ModelFiles& files, Executor& host,
                                              const ModelSizes& sizes,
                                              const GpuPlanRequest& request,
                                              const std::vector<GpuPlan>& plans) {
  if (best_of(plans) != nullptr) return std::optional<int64_t>();
  SUBBYTE_TRY(const StepPlan plan, plan_of(files, host, gpu_matrix_bytes));
  return std::optional<int64_t>(layers_that_fit(sizes, plan, request));
}

Result<ModelSizes> read_sizes(const ModelFiles& files, Executor& host, int64_t stages) {
  SUBBYTE_TRY(ModelSizes sizes, sizes_of(files, host, gpu_matrix_bytes));
  if (stages == 0) return sizes;
  SUBBYTE_TRY(const StepPlan plan, plan_of(files, host, gpu_matrix_bytes));
  SUBBYTE_CHECK(add_stages(sizes, plan, static_cast<int>(stages)));
  return sizes;
}

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  GpuPlanRequest request = {.context = options.context,
                            .clients = options.clients,
                            .cache_type = kv_element(options.cache_type)};
  SUBBYTE_CHECK(read_gpus(options.gpus, request));
  if (options.stages > request.gpus) {
    return Error{"usage.gpus", fmt::format("--pipeline-parallel: {} stages want as many GPUs, "
                                           "expected --gpus {}x..., found {}",
                                           options.stages, options.stages, quote(options.gpus))};
  }
  SUBBYTE_TRY(const auto path, find_model(options.model));
  SUBBYTE_TRY(const auto host, create_host(invocation));
  const ModelFiles files(path);
  SUBBYTE_TRY(const ModelSizes sizes, read_sizes(files, *host, options.stages));
  SUBBYTE_TRY(const ModelConfig config, read_model_config(files));
  if (options.context > config.max_positions) {
    note(line("the model was made for {} tokens: `run` and `serve` refuse a context of {}",
              config.max_positions, options.context));
  }
  const auto plans = gpu_plans(sizes, request);
  SUBBYTE_TRY(const auto fitting, layers_for_one(files, *host, sizes, request, plans));
  print(stdout, options.json ? as_json(options, request, plans, fitting)
                             : as_text(request, plans, options.stages, fitting));
  return best_of(plans) == nullptr ? kProblemsFound : kOk;
}

}  // namespace

void add_plan(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "plan",
      "Say on how many GPUs a model fits, and how fast it is expected to be; exit code 3 when "
      "there "
      "is no room",
      "  subbyte plan Qwen/Qwen3-32B-AWQ --gpus 8xH200 --ctx-size 32768 --clients 200\n"
      "  subbyte plan ./model --gpus 4xH200 --pipeline-parallel 4\n"
      "  subbyte plan ./model --gpus H100 --kv-cache-type fp8 --json");
  auto options = std::make_shared<Options>();
  command.model(options->model);
  command
      .option("--gpus", options->gpus,
              fmt::format("how many of which card, such as 8xH200 ({})", card_names()))
      .required();
  command.option("-c,--ctx-size,--context", options->context, "tokens of each client")
      .between(1, 1 << 30)
      .shows_default();
  command.option("--clients", options->clients, "that are answered")
      .between(1, 1 << 20)
      .shows_default();
  command
      .option("--pipeline-parallel", options->stages,
              "stages with a GPU and some of the layers each, in place of ranks")
      .value("N")
      .between(1, 64);
  add_kv_cache_type(command, options->cache_type);
  command.flag("--json", options->json, "print one JSON object");
  command.shares(Shares::kThreads);
  command.run([options, &invocation] { return run(invocation, *options); });
  command.error_members([options] { return with_checkpoint(options->model); });
}

}  // namespace subbyte::app
