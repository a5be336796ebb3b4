// subbyte inspect: what is in a checkpoint.

#include "verify/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "app/checkpoint_json.h"
#include "app/command.h"
#include "app/output.h"
#include "app/tensor_table.h"
#include "app/terminal.h"
#include "app/wrap.h"
#include "backends/divisions.h"
#include "backends/matrix_bytes.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/model_path.h"
#include "models/memory_need.h"
#include "models/model.h"
#include "models/tensor_spec.h"
#include "parallel/rank_sizes.h"
#include "parallel/stages.h"
#include "verify/report_json.h"
#include "verify/tensor_kinds.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string path;
  bool json = false;
  bool tensors = false;
  int ranks = 0;
  int stages = 0;
};

double megabytes(uint64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

/// "layers        28 of ...", in lines that fit the screen.
std::string fact(std::string_view name, const std::string& text) {
  constexpr std::size_t kIndent = 14;
  return wrap(line("{:<{}}{}", name, kIndent, text), columns_of(stdout), kIndent);
}

/// Heads, experts and what a run takes, of an architecture that this version runs.
std::string model_lines(const Inspection& inspection, const ModelConfig& model) {
  std::string text =
      fact("layers",
           fmt::format("{} of width {}, {} heads of {}, {} of keys and values", model.num_layers,
                       model.hidden_size, model.num_heads, model.head_dim, model.num_kv_heads));
  const auto plan = plan_of(model);
  const auto nets = plan.ok() ? ops_of<DeltaNetOp>(*plan) : std::vector<const DeltaNetOp*>();
  if (!nets.empty()) {
    text += fact("states", fmt::format("{} of the layers are gated delta nets of {} heads",
                                       nets.size(), nets.front()->shape.value_heads));
  }
  if (const auto stack = expert_stack_of(model)) {
    text += fact("experts", fmt::format("{} a layer, {} of them for a token", stack->experts,
                                        stack->use.per_token));
  }
  text += fact("vocabulary", fmt::format("{} tokens", model.vocab_size));
  text += fact("context", fmt::format("{} positions", model.max_positions));
  const auto position = static_cast<double>(cache_position_bytes(cache_of(model), Element::kF16));
  text += fact("cache", fmt::format("{:.1f} kB a position, in f16", position / 1e3));
  return text + fact("memory", fmt::format("about {:.1f} MB, {:.1f} MB with a full context",
                                           megabytes(weight_bytes(inspection)),
                                           megabytes(full_context_bytes(inspection, model))));
}

/// Types of tensors and the tokenizer of a GGUF file.
std::string gguf_lines(const InspectedGguf& gguf) {
  std::string types;
  for (const InspectedGguf::Type& type : gguf.types) {
    types += fmt::format("{}{} {} ({:.1f} MB)", types.empty() ? "" : ", ", type.name, type.tensors,
                         megabytes(type.bytes));
  }
  std::string tokenizer = "none";
  if (!gguf.tokenizer.empty()) {
    tokenizer =
        fmt::format("{}{}, {} tokens", gguf.tokenizer,
                    gguf.pre_tokenizer.empty() ? "" : " (" + gguf.pre_tokenizer + ")", gguf.tokens);
  }
  return fact("GGUF", gguf.architecture) + fact("types", types) + fact("tokenizer", tokenizer);
}

std::string summary(const Inspection& inspection) {
  std::string text;
  if (!inspection.architecture.empty()) {
    text += fact("architecture", inspection.architecture);
    text += fact("quantization", inspection.quantization);
  }
  const std::size_t files = inspection.files.size();
  const std::string size = fmt::format("{:.1f} MB in {} file{}", megabytes(inspection.bytes), files,
                                       files == 1 ? "" : "s");
  if (inspection.knows_weights()) {
    text += fact("parameters",
                 fmt::format("{:.3f} M", static_cast<double>(inspection.parameters) / 1e6));
    text +=
        fact("size", fmt::format("{}, {:.3f} bits a weight", size, inspection.bits_per_weight()));
  } else {
    text += fact("size", size + "; there are integers, and no config says what is packed in them");
  }
  if (inspection.gguf) text += gguf_lines(*inspection.gguf);
  if (inspection.model) text += model_lines(inspection, *inspection.model);
  if (inspection.gguf) {
    text += fact("run", inspection.is_run_here() ? "takes it" : "refuses it, see below");
  }
  if (inspection.unread > 0) {
    text += fact("not read", fmt::format("{} tensors of parts that see or draft, beside the text",
                                         inspection.unread));
  }
  return text;
}

double cache_kilobytes(const CacheLayout& cache) {
  return static_cast<double>(cache_position_bytes(cache, Element::kF16)) / 1e3;
}

/// Parts of ranks, and what each has as a whole.
std::string rank_lines(const GroupSizes& sizes) {
  const auto by_bytes = [](const RankSizes& rank) { return rank.weight_bytes; };
  const RankSizes& most = *std::ranges::max_element(sizes.ranks, {}, by_bytes);
  std::string whole;
  for (const WholeMatrices& one : sizes.whole) {
    whole += fmt::format("{}{} ({}{:.1f} MB)", whole.empty() ? "" : ", ", one.name,
                         one.count > 1 ? fmt::format("{}, ", one.count) : "",
                         megabytes(static_cast<uint64_t>(one.bytes)));
  }
  return fact("ranks",
              fmt::format("{}, each with at most {:.1f} MB of weights, {:.1f} MB of them whole, "
                          "and {:.1f} kB of cache a position, in f16",
                          sizes.ranks.size(), megabytes(static_cast<uint64_t>(most.weight_bytes)),
                          megabytes(static_cast<uint64_t>(most.whole_bytes)),
                          cache_kilobytes(most.cache))) +
         fact("whole", whole.empty() ? "norms and biases alone" : whole + ", norms and biases");
}

Json json_of(const GroupSizes& sizes) {
  Json ranks = Json::array();
  for (const RankSizes& rank : sizes.ranks) {
    ranks.push_back({{"weight_bytes", rank.weight_bytes},
                     {"whole_bytes", rank.whole_bytes},
                     {"cache_bytes", cache_position_bytes(rank.cache, Element::kF16)}});
  }
  Json whole = Json::array();
  for (const WholeMatrices& one : sizes.whole) {
    whole.push_back({{"name", one.name}, {"count", one.count}, {"bytes", one.bytes}});
  }
  return {{"ranks", std::move(ranks)}, {"whole", std::move(whole)}};
}

/// A stage with what it has.
struct StageOf {
  Stage stage;
  StageParts parts;
};

std::string stage_lines(const std::vector<StageOf>& stages) {
  std::string text;
  for (const auto& [stage, parts] : stages) {
    text += fact(text.empty() ? "stages" : "",
                 fmt::format("{}: {:.1f} MB of weights and {:.1f} kB of cache a position, in f16",
                             to_string(stage), megabytes(static_cast<uint64_t>(parts.weight_bytes)),
                             cache_kilobytes(parts.cache)));
  }
  return text;
}

Json json_of(const std::vector<StageOf>& stages) {
  Json list = Json::array();
  for (const auto& [stage, parts] : stages) {
    const int64_t last = stage.has_head() ? stage.num_layers - 1 : stage.last_layer;
    list.push_back({{"first_layer", stage.first_layer},
                    {"layers", last - stage.first_layer + 1},
                    {"has_head", stage.has_head()},
                    {"weight_bytes", parts.weight_bytes},
                    {"cache_bytes", cache_position_bytes(parts.cache, Element::kF16)}});
  }
  return {{"stages", std::move(list)}};
}

std::vector<TensorKind> kinds_of(const Inspection& inspection, bool all_tensors) {
  if (!all_tensors) return find_tensor_kinds(inspection.weights);
  std::vector<TensorKind> kinds;
  for (const InspectedWeight& weight : inspection.weights) kinds.push_back({weight});
  std::ranges::sort(kinds, comes_before, [](const TensorKind& kind) { return kind.weight.name; });
  return kinds;
}

std::string as_page(const Inspection& inspection, const std::optional<GroupSizes>& ranks,
                    const std::vector<StageOf>& stages, bool all_tensors) {
  std::string text = summary(inspection) + (ranks ? rank_lines(*ranks) : "") + stage_lines(stages) +
                     "\n" + tensor_table(kinds_of(inspection, all_tensors), columns_of(stdout));
  if (!inspection.reads_scales) {
    text += fitted(line("scales of {:.1f} MB were not looked at: `subbyte verify` does",
                        megabytes(inspection.scale_bytes)),
                   stdout, 2);
  }
  if (!inspection.problems.empty() || !inspection.notes.empty()) text += "\n";
  for (const std::string& note : inspection.notes) {
    text += fitted(line("note: {}", note), stdout, 2);
  }
  for (const std::string& problem : inspection.problems) {
    text += fitted(styled(Style::kError, "problem:", stdout) + line(" {}", problem), stdout, 2);
  }
  return text;
}

/// Of a model that loads; nullopt where nobody asks for ranks, and its files are not opened again.
Result<std::optional<GroupSizes>> sizes_of_ranks(const std::filesystem::path& path, Backend& host,
                                                 int ranks) {
  if (ranks == 0) return std::optional<GroupSizes>();
  SizingBackend backend(host, ranks);
  SUBBYTE_CHECK(check_loading(path, backend, Reads::kHeaders));
  return std::optional<GroupSizes>(backend.sizes());
}

/// The same of stages; none where nobody asks.
Result<std::vector<StageOf>> parts_of_stages(const std::filesystem::path& path, Executor& host,
                                             int count) {
  std::vector<StageOf> all;
  if (count == 0) return all;
  SUBBYTE_TRY(const StepPlan plan, plan_of(ModelFiles(path), host, host_matrix_bytes));
  SUBBYTE_TRY(const std::vector<Stage> stages, even_stages(plan, count));
  for (const Stage& stage : stages) all.push_back({stage, parts_of(plan, stage)});
  return all;
}

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_CHECK(check_divisions(
      {.tensor_parallel_size = options.ranks, .pipeline_parallel_size = options.stages}));
  SUBBYTE_TRY(const auto path, find_checkpoint(options.path));
  SUBBYTE_TRY(const auto backend, host_backend(invocation));
  SUBBYTE_TRY(const Inspection inspection, inspect(path, backend->host(), backend.get()));
  SUBBYTE_TRY(const auto ranks, sizes_of_ranks(path, *backend, options.ranks));
  SUBBYTE_TRY(const auto stages, parts_of_stages(path, backend->host(), options.stages));
  std::string text;
  if (options.json) {
    Json root = to_json(inspection);
    if (ranks) root["tensor_parallel"] = json_of(*ranks);
    if (!stages.empty()) root["pipeline_parallel"] = json_of(stages);
    text = json_text(with_checkpoint(options.path, std::move(root)));
  } else {
    text = as_page(inspection, ranks, stages, options.tensors);
  }
  print(stdout, text);
  return inspection.problems.empty() ? kOk : kProblemsFound;
}

}  // namespace

void add_inspect(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "inspect",
      "Show architecture, formats, bits per weight and sizes; exit code 3 when there are problems",
      "  subbyte inspect demo/model\n"
      "  subbyte inspect Qwen/Qwen3-8B-AWQ --json\n"
      "  subbyte inspect ./model --tensor-parallel 4\n"
      "  subbyte inspect model-00001-of-00002.safetensors");
  auto options = std::make_shared<Options>();
  command.model(options->path,
                "directory, GGUF, .safetensors, ak42, ak47 or ak48 file, or "
                "org/name[@revision]");
  command.flag("--tensors", options->tensors, "a line for each tensor, not for each kind");
  command
      .option("--tensor-parallel", options->ranks,
              "show what each of so many ranks has, and what all have as a whole")
      .value("N")
      .between(1, 64);
  command.option("--pipeline-parallel", options->stages, "show what each of so many stages has")
      .value("N")
      .between(1, 64);
  command.flag("--json", options->json, "print one JSON object");
  command.shares(Shares::kThreads);
  command.run([options, &invocation] { return run(invocation, *options); });
  command.error_members([options] { return with_checkpoint(options->path); });
}

}  // namespace subbyte::app
