#include "bench/cuda/suite_options.h"

namespace subbyte::bench {

CLI::App* add_model_suite(CLI::App& app, ModelSuite& suite) {
  CLI::App* command = app.add_subcommand(
      "model", "Whole models with random weights: decode, batches, prefill, beside the limits");
  command
      ->add_option(
          "--model", suite.models,
          "Shapes of Qwen3: 0.6b 1.7b 4b 8b 14b 32b, with experts 30b-a3b; of gpt-oss: "
          "oss-20b oss-120b; of Qwen3.5: 3.5-27b 3.5-35b-a3b; with :16 the first 16 layers")
      ->capture_default_str();
  command->add_option("--batches", suite.batches, "Numbers of sequences that are decoded together")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--context", suite.context, "Tokens before the decode with a long context")
      ->capture_default_str()
      ->check(CLI::Range(1, 40000));
  command->add_option("--rounds", suite.rounds, "Of which the median is taken")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--folder", suite.folder, "Where the models are kept (8b: 6 GB)")
      ->capture_default_str();
  command
      ->add_option("--step-tokens", suite.step_tokens,
                   "Steps of at most so many single tokens as one kernel; 0: none")
      ->capture_default_str()
      ->envname("SUBBYTE_STEP_TOKENS")
      ->check(CLI::Range(0, 8));
  command
      ->add_option("--in-flight", suite.in_flight,
                   "Steps on their way at once; 1: the host waits for the tokens of each")
      ->capture_default_str()
      ->check(CLI::Range(1, 2));
  command->add_flag("--no-graphs", suite.no_graphs, "Without CUDA graphs of steps that repeat");
  command->add_option("--json", suite.json, "A file for the figures");
  command->add_flag("--no-cublas", suite.no_cublas, "Without the vendor's library");
  command->footer(
      "example:\n  ./dev gpu-bench model --model 8b --batches 16 64 --json figures.json");
  return command;
}

CLI::App* add_blocks_suite(CLI::App& app, BlocksSuite& suite) {
  CLI::App* command = app.add_subcommand(
      "blocks", "Quantizing to MXFP8, MXFP4 and NVFP4, and dequantizing, beside a copy");
  command->add_option("--rows", suite.rows)->capture_default_str()->check(CLI::Range(1, 65536));
  command->add_option("--cols", suite.cols, "In 256s")
      ->capture_default_str()
      ->check(CLI::Range(256, 65536));
  command->footer("example:\n  ./dev gpu-bench blocks");
  return command;
}

CLI::App* add_calls_suite(CLI::App& app, CallsSuite& suite) {
  CLI::App* command = app.add_subcommand(
      "calls", "Host time of products through the C interface, beside a bare launch");
  command->add_option("--m", suite.m, "Numbers of tokens")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  command->add_option("--rows", suite.rows)->capture_default_str()->check(CLI::Range(1, 65536));
  command->add_option("--cols", suite.cols, "In 128s")
      ->capture_default_str()
      ->check(CLI::Range(128, 65536));
  command->footer("example:\n  ./dev gpu-bench calls --m 1 64");
  return command;
}

CLI::App* add_delta_net_suite(CLI::App& app, DeltaNetSuite& suite) {
  CLI::App* command = app.add_subcommand(
      "delta-net",
      "Gated delta nets of Qwen3.5: single tokens beside the bytes of states, prompts");
  command->add_option("--key-heads", suite.key_heads)
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command->add_option("--value-heads", suite.value_heads, "A multiple of the key heads")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--sequences", suite.sequences, "With a token each")->capture_default_str();
  command->add_option("--prompts", suite.prompts, "Tokens of one sequence")->capture_default_str();
  command->add_option("--replays", suite.replays, "Of which the median is taken")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_flag("--bf16", suite.bf16, "bf16 activations (default: f16)");
  command->add_flag("--recurrent", suite.recurrent, "Token after token, never in chunks");
  command->footer("example:\n  ./dev gpu-bench delta-net --value-heads 32");
  return command;
}

CLI::App* add_moe_suite(CLI::App& app, MoeSuite& suite) {
  CLI::App* command = app.add_subcommand(
      "moe", "A mixture of experts of MXFP4, beside the limit and cuBLAS on the same routes");
  command->add_option("--experts", suite.experts)
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--tokens", suite.tokens)->capture_default_str()->check(CLI::Range(1, 65536));
  command->add_option("--hidden", suite.hidden)
      ->capture_default_str()
      ->check(CLI::Range(32, 65536));
  command->add_option("--intermediate", suite.intermediate)
      ->capture_default_str()
      ->check(CLI::Range(32, 65536));
  command->add_option("--top-k", suite.top_k)->capture_default_str()->check(CLI::Range(1, 32));
  command->add_option("--replays", suite.replays, "Of which the median is taken")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_flag("--mxfp8", suite.mxfp8, "Activations in MXFP8 (W4A8)");
  command->add_flag("--no-cublas", suite.no_cublas, "Without the vendor's library");
  command->footer("example:\n  ./dev gpu-bench moe --experts 32 --tokens 1 16 256");
  return command;
}

CLI::App* add_group_suite(CLI::App& app, GroupSuite& suite) {
  CLI::App* command =
      app.add_subcommand("group", "FlashInfer's group GEMM, MXFP8 by MXFP4, beside cuBLAS");
  command->add_option("--groups", suite.groups)->capture_default_str()->check(CLI::Range(1, 4096));
  command->add_option("--n", suite.n, "In 8s")->capture_default_str()->check(CLI::Range(8, 65536));
  command->add_option("--k", suite.k, "In 32s")
      ->capture_default_str()
      ->check(CLI::Range(32, 65536));
  command->add_option("--m", suite.m, "Rows of all groups, in 4s")
      ->capture_default_str()
      ->check(CLI::Range(4, 1 << 20));
  command->add_option("--replays", suite.replays, "Of which the median is taken")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_flag("--no-cublas", suite.no_cublas, "Without the vendor's library");
  command->footer("example:\n  ./dev gpu-bench group --groups 128 --m 1024 8192");
  return command;
}

CLI::App* add_step_suite(CLI::App& app, StepSuite& suite) {
  CLI::App* command = app.add_subcommand(
      "step", "Where the time of a step that is one kernel goes, of a Qwen3 with AWQ weights");
  command->add_option("--layers", suite.layers)->capture_default_str()->check(CLI::Range(4, 40));
  command->add_option("--hidden", suite.hidden)->capture_default_str();
  command->add_option("--intermediate", suite.intermediate)->capture_default_str();
  command->add_option("--heads", suite.heads)->capture_default_str();
  command->add_option("--kv-heads", suite.kv_heads)->capture_default_str();
  command->add_option("--head-dim", suite.head_dim)->capture_default_str();
  command->add_option("--tokens", suite.tokens)->capture_default_str()->check(CLI::Range(1, 8));
  command->add_option("--keys", suite.keys)->capture_default_str()->check(CLI::Range(1, 40000));
  command->footer("example:\n  ./dev gpu-bench step --hidden 1024 --intermediate 3072 --heads 16");
  return command;
}

}  // namespace subbyte::bench
