#include "bench/cuda/suite_options.h"

#include <memory>
#include <type_traits>

#include "bench/command_line.h"
#include "bench/cuda/blocks_suite.h"
#include "bench/cuda/calls_suite.h"
#include "bench/cuda/delta_net_suite.h"
#include "bench/cuda/group_suite.h"
#include "bench/cuda/model_suite.h"
#include "bench/cuda/moe_suite.h"
#include "bench/cuda/shapes_suite.h"
#include "bench/cuda/step_suite.h"

namespace subbyte::bench {
namespace {

constexpr int64_t kMaxSize = 65536;

template <class Value>
void sized(app::Command& command, const char* names, Value& value, const char* help,
           int64_t least = 1, int64_t most = kMaxSize) {
  command.option(names, value, help).between(least, most).shows_default();
}

void add_replays(app::Command& command, int& replays) {
  sized(command, "--replays", replays, "of which the median is taken", 1, 1000);
}

void add_cublas(app::Command& command, bool& no_cublas) {
  command.flag("--no-cublas", no_cublas, "without the vendor's library");
}

/// What the command does: a function that returns nothing or a Status.
template <class Suite, class Done>
void runs(app::Command& command, const std::shared_ptr<Suite>& suite, Done (*run)(const Suite&)) {
  command.run([suite, run]() -> Result<app::ExitCode> {
    if constexpr (std::is_void_v<Done>) {
      run(*suite);
    } else {
      SUBBYTE_CHECK(run(*suite));
    }
    return app::kOk;
  });
}

void add_model_suite(app::Program& program) {
  auto suite = std::make_shared<ModelSuite>();
  suite->step_tokens = std::atoi(variable("SUBBYTE_STEP_TOKENS", "8").c_str());
  app::Command command = program.add_command(
      "model", "Whole models with random weights: decode, batches, prefill, beside the limits",
      "  ./dev gpu-bench model --model 8b --batches 16,64 --json figures.json");
  command.option("--model", suite->models,
                 "shapes of Qwen3: 0.6b 1.7b 4b 8b 14b 32b, with experts 30b-a3b; of gpt-oss: "
                 "oss-20b oss-120b; of Qwen3.5: 3.5-27b 3.5-35b-a3b; with :16 the first 16 layers; "
                 "may be given several times (default: 8b and 0.6b)");
  sized(command, "--batches", suite->batches, "numbers of sequences that are decoded together", 1,
        1024);
  sized(command, "--context", suite->context, "tokens before the decode with a long context", 1,
        40000);
  sized(command, "--rounds", suite->rounds, "of which the median is taken", 1, 1000);
  command.option("--folder", suite->folder, "where the models are kept (8b: 6 GB)").shows_default();
  sized(command, "--step-tokens", suite->step_tokens,
        "steps of at most so many single tokens as one kernel; 0: none (SUBBYTE_STEP_TOKENS)", 0,
        8);
  sized(command, "--in-flight", suite->in_flight,
        "steps on their way at once; 1: the host waits for the tokens of each", 1, 2);
  command.flag("--no-graphs", suite->no_graphs, "without CUDA graphs of steps that repeat");
  command.option("--json", suite->json, "a file for the figures");
  add_cublas(command, suite->no_cublas);
  command.run([suite]() -> Result<app::ExitCode> {
    if (suite->models.empty()) suite->models = {"8b", "0.6b"};
    SUBBYTE_CHECK(run_model_suite(*suite));
    return app::kOk;
  });
}

void add_blocks_suite(app::Program& program) {
  auto suite = std::make_shared<BlocksSuite>();
  app::Command command = program.add_command(
      "blocks", "Quantizing to MXFP8, MXFP4 and NVFP4, and dequantizing, beside a copy",
      "  ./dev gpu-bench blocks");
  sized(command, "--rows", suite->rows, "outputs of the matrix");
  sized(command, "--cols", suite->cols, "its inputs, in 256s", 256);
  runs(command, suite, run_blocks_suite);
}

void add_calls_suite(app::Program& program) {
  auto suite = std::make_shared<CallsSuite>();
  app::Command command = program.add_command(
      "calls", "Host time of products through the C interface, beside a bare launch",
      "  ./dev gpu-bench calls --m 1,64");
  sized(command, "--m", suite->m, "numbers of tokens");
  sized(command, "--rows", suite->rows, "outputs of the matrix");
  sized(command, "--cols", suite->cols, "its inputs, in 128s", 128);
  runs(command, suite, run_calls_suite);
}

void add_delta_net_suite(app::Program& program) {
  auto suite = std::make_shared<DeltaNetSuite>();
  app::Command command = program.add_command(
      "delta-net", "Gated delta nets of Qwen3.5: single tokens beside the bytes of states, prompts",
      "  ./dev gpu-bench delta-net --value-heads 32");
  sized(command, "--key-heads", suite->key_heads, "heads of keys", 1, 256);
  sized(command, "--value-heads", suite->value_heads, "a multiple of the key heads", 1, 1024);
  sized(command, "--sequences", suite->sequences, "with a token each");
  sized(command, "--prompts", suite->prompts, "tokens of one sequence");
  add_replays(command, suite->replays);
  command.flag("--bf16", suite->bf16, "bf16 activations (default: f16)");
  command.flag("--recurrent", suite->recurrent, "token after token, never in chunks");
  runs(command, suite, run_delta_net_suite);
}

void add_moe_suite(app::Program& program) {
  auto suite = std::make_shared<MoeSuite>();
  app::Command command = program.add_command(
      "moe", "A mixture of experts of MXFP4, beside the limit and cuBLAS on the same routes",
      "  ./dev gpu-bench moe --experts 32 --tokens 1,16,256");
  sized(command, "--experts", suite->experts, "numbers of experts", 1, 4096);
  sized(command, "--tokens", suite->tokens, "numbers of tokens");
  sized(command, "--hidden", suite->hidden, "width of a token", 32);
  sized(command, "--intermediate", suite->intermediate, "width inside an expert", 32);
  sized(command, "--top-k", suite->top_k, "experts of a token", 1, 32);
  add_replays(command, suite->replays);
  command.flag("--mxfp8", suite->mxfp8, "activations in MXFP8 (W4A8)");
  add_cublas(command, suite->no_cublas);
  runs(command, suite, run_moe_suite);
}

void add_group_suite(app::Program& program) {
  auto suite = std::make_shared<GroupSuite>();
  app::Command command =
      program.add_command("group", "FlashInfer's group GEMM, MXFP8 by MXFP4, beside cuBLAS",
                          "  ./dev gpu-bench group --groups 128 --m 1024,8192");
  sized(command, "--groups", suite->groups, "groups of rows", 1, 4096);
  sized(command, "--n", suite->n, "outputs, in 8s", 8);
  sized(command, "--k", suite->k, "inputs, in 32s", 32);
  sized(command, "--m", suite->m, "rows of all groups, in 4s", 4, 1 << 20);
  add_replays(command, suite->replays);
  add_cublas(command, suite->no_cublas);
  runs(command, suite, run_group_suite);
}

void add_step_suite(app::Program& program) {
  auto suite = std::make_shared<StepSuite>();
  app::Command command = program.add_command(
      "step", "Where the time of a step that is one kernel goes, of a Qwen3 with AWQ weights",
      "  ./dev gpu-bench step --hidden 1024 --intermediate 3072 --heads 16");
  sized(command, "--layers", suite->layers, "layers of the model", 4, 40);
  sized(command, "--hidden", suite->hidden, "width of a token");
  sized(command, "--intermediate", suite->intermediate, "width inside a block");
  sized(command, "--heads", suite->heads, "heads of queries");
  sized(command, "--kv-heads", suite->kv_heads, "heads of keys and values");
  sized(command, "--head-dim", suite->head_dim, "width of a head");
  sized(command, "--tokens", suite->tokens, "single tokens of a step", 1, 8);
  sized(command, "--gpus", suite->gpus, "GPUs among which each layer is divided", 1, 8);
  sized(command, "--keys", suite->keys, "keys of each", 1, 40000);
  runs(command, suite, run_step_suite);
}

void add_shapes_suite(app::Program& program) {
  auto suite = std::make_shared<ShapesSuite>();
  app::Command command = program.add_command(
      "shapes", "Products at shapes that a seed draws, beside cuBLAS, Marlin and the limit",
      "  ./dev gpu-bench shapes --seed 12345678");
  command.option("--seed", suite->seed, "of the shapes").required();
  sized(command, "--count", suite->count, "shapes", 1, 1000);
  sized(command, "--m", suite->m, "numbers of tokens", 1, 4096);
  command.option("--format", suite->formats,
                 "int4, or one that is measured at every fourth shape: mxfp4 nvfp4 fp8 kbit2 kbit3 "
                 "q4_k q6_k u5; may be given several times (default: all)");
  command.option("--marlin", suite->marlin, "Marlin as a shared library (docs/benchmarks)");
  add_replays(command, suite->replays);
  command.flag("--sweep", suite->sweep, "time all plans, and what the best of them would give");
  add_cublas(command, suite->no_cublas);
  runs(command, suite, run_shapes_suite);
}

}  // namespace

void add_suites(app::Program& program) {
  add_model_suite(program);
  add_blocks_suite(program);
  add_calls_suite(program);
  add_delta_net_suite(program);
  add_moe_suite(program);
  add_group_suite(program);
  add_shapes_suite(program);
  add_step_suite(program);
}

}  // namespace subbyte::bench
