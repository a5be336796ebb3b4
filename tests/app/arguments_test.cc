// The command line as people type it who come from other programs, or who mistype.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "app/process.h"
#include "support/paths.h"

namespace subbyte {
namespace {

using Arguments = std::vector<std::string>;

const std::string kModel = (std::filesystem::path(SUBBYTE_TEST_DATA) / "../../demo/model").string();

struct Mistake {
  Arguments arguments;
  std::string said;  // the end of the message
};

class Mistakes : public testing::TestWithParam<Mistake> {};

/// One line, which names what was typed and says what to do.
TEST_P(Mistakes, are_named_as_typed) {
  const ProcessResult result = run_program(GetParam().arguments);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_TRUE(result.err.starts_with("subbyte: error: ")) << result.err;
  EXPECT_NE(result.err.find(GetParam().said + " [usage."), std::string::npos) << result.err;
}

const std::string kGpuLayers =
    ": --gpu-layers N puts the last layers on a GPU, and leaves the others to the CPU";
const std::string kOneGpu =
    ": a model runs on one GPU (--device cuda:N), or --tensor-parallel divides it among several";

INSTANTIATE_TEST_SUITE_P(
    OfOtherPrograms, Mistakes,
    testing::Values(
        Mistake{{"run", "D", "-p", "Hi", "-ncmoe", "9"}, "run: no option -ncmoe" + kGpuLayers},
        Mistake{{"run", "D", "--cpu_offload_gb=4"}, "run: no option --cpu-offload-gb" + kGpuLayers},
        Mistake{{"run", "D", "-p", "Hi", "-ngl", "some"},
                "--gpu-layers: expected a number of layers, all or auto, found \"some\""},
        Mistake{{"run", "-hf", "Qwen/Qwen3-8B", "-p", "Hi"},
                "run: no option -hf: MODEL may be org/name of what is in the Hugging Face cache "
                "already, and `hf download org/name` fetches it"},
        Mistake{{"run", "D", "-ctk", "q8_0"},
                "run: no option -ctk: keys and values have one type: --kv-cache-type f16, bf16, "
                "f32 or fp8"},
        Mistake{{"run", "D", "-ts", "3,1"}, "run: no option -ts" + kOneGpu},
        Mistake{{"run", "D", "--split-mode", "--temp", "0"},
                "run: no option --split-mode" + kOneGpu},
        Mistake{{"run", "D", "-sm", "row"}, "run: no option -sm" + kOneGpu},
        Mistake{{"bench", "D", "--split-mode=tensor"}, "bench: no option --split-mode" + kOneGpu},
        Mistake{{"run", "D", "--enable-lora"},
                "run: no option --enable-lora: adapters are not read; merge them into the model "
                "first"},
        Mistake{{"run", "D", "--max_logprobs=50"},
                "run: no option --max-logprobs: 20 alternatives are the most"},
        Mistake{{"run", "D", "--no-trust-remote-cod"},
                "run: no option --no-trust-remote-cod; `subbyte run --help` lists them"},
        Mistake{{"run", "D", "-ub"},
                "run: no option -ub: the size of a step follows from the model and the device; "
                "leave it out"},
        Mistake{{"run", "D", "-np", "4"},
                "--parallel and the size of a cache are for --prompts FILE --output FILE"},
        Mistake{{"run", "D", "-p", "a", "--state-cache-memory-bytes", "9"},
                "--parallel and the size of a cache are for --prompts FILE --output FILE"},
        Mistake{{"run", "D", "-sys", "x"}, "run: no option -sys here; chat (as --system) has it"},
        Mistake{
            {"clean", "D", "--device", "cpu"},
            "clean: no option --device here; run, chat, serve, logits, perplexity and bench have "
            "it"},
        Mistake{
            {"--activations", "int8", "synth", "x"},
            "synth: no option --activations here; run, chat, serve, logits, perplexity and bench "
            "have it"},
        Mistake{{"-m", "D", "-p", "Hi"},
                "a command comes before -m: `subbyte run MODEL -p TEXT` continues a text, "
                "`subbyte chat MODEL` talks, `subbyte help` lists the others"},
        Mistake{
            {"server", "D", "--port", "8000"},
            "no command \"server\": `subbyte serve MODEL` answers requests of OpenAI's form over "
            "HTTP"},
        Mistake{{"pull", "org/name"},
                "no command \"pull\": `hf download org/name` fetches a model into the cache that "
                "subbyte reads"},
        Mistake{{"convert", "D", "x", "--to", "awq", "--w_bit", "4"},
                "convert: no option --w-bit here; quantize (as --bits) has it"},
        Mistake{{"quantize", "D", "x", "--calib", "text"},
                "quantize: no option --calib: weights are rounded to nearest, without calibration: "
                "no texts are read for it (of a mean of --bits, --text FILE says which matrices "
                "matter)"},
        Mistake{{"quantize", "D", "x", "--overwrite"},
                "quantize: no option --overwrite: a directory is never written over; remove it, or "
                "give another one"},
        Mistake{{"quantize", "D", "x", "Q4_K_M"},
                "quantize: \"Q4_K_M\" was not expected after DST; --format gives the format"},
        Mistake{{"perplexity", "D", "-f", "x"},
                "perplexity: no option -f: the text is the second word: `subbyte perplexity MODEL "
                "FILE`"},
        Mistake{{"perplexity", "D", "x", "-c", "128"},
                "perplexity: no option -c: --window says how many tokens are predicted from one "
                "beginning"},
        Mistake{{"convert", "D", "x", "--to", "awq", "-f", "y"},
                "convert: no option -f here; run has it"},
        Mistake{{"run", "D", "-p", "a", "-o", "x"},
                "--output is for the answers to --prompts FILE; the text of one prompt goes to "
                "standard output: > FILE"},
        Mistake{{"quantize", "D", "x", "--scheme", "W4A16"},
                "quantize: no option --scheme: --format says what is written"},
        Mistake{{"benchmark", "D"},
                "no command \"benchmark\": `subbyte bench MODEL` has llama-bench's tests and "
                "columns"},
        Mistake{{"-v"}, "no option -v: there is no log; -q says less, --version tells the version"},
        Mistake{{"./model", "-p", "Hi"},
                "no command \"./model\"; `subbyte run MODEL -p TEXT` continues a text"}));

INSTANTIATE_TEST_SUITE_P(
    Mistyped, Mistakes,
    testing::Values(
        Mistake{{"rnu", "D"}, "no command \"rnu\"; did you mean run?"},
        Mistake{{"help", "enviroment"},
                "no command and no topic \"enviroment\"; did you mean environment?"},
        Mistake{{"run", "D", "--promt", "Hi"}, "run: no option --promt; did you mean --prompt?"},
        Mistake{{"run", "D", "-prompt", "Hi"}, "run: no option -prompt; did you mean --prompt?"},
        Mistake{{"run", "D", "-f", "x", "--foo", "1"},
                "run: no option --foo; `subbyte run --help` lists them"},
        Mistake{{"run", "D", "-pHi"},
                "run: no option -pHi; a value of -p stands apart from it or after ="},
        Mistake{{"run", "D", "-p", "--temp", "0"},
                "run: -p needs a value (TEXT), found the option --temp; -p=--temp means the text"},
        Mistake{{"run", "D", "-n"}, "run: -n needs a value (N)"},
        Mistake{{"run", "D", "-n", "abc"},
                "run: -n: expected a whole number, -1 and up, found \"abc\""},
        Mistake{{"run", "D", "-n", "1e3"},
                "run: -n: expected a whole number, -1 and up, found \"1e3\""},
        Mistake{{"plan", "D", "--gpus", "H200", "--context", "99999999999"},
                "plan: --context: expected a whole number, 1 to 1073741824, found \"99999999999\""},
        Mistake{{"run", "D", "--threads", "-2"},
                "run: --threads: expected a whole number, 1 to 1024, found \"-2\""},
        Mistake{{"run", "D", "--temp", "0,5"},
                "run: --temp: expected a number such as 0.5, found \"0,5\""},
        Mistake{{"run", "D", "--kv-cache-type", "bf61"},
                "run: --kv-cache-type: expected one of bf16, f16, f32, fp8, fp8_e4m3, found "
                "\"bf61\"; did you mean bf16?"},
        Mistake{{"run", "D", "--special=yes"}, "run: --special takes no value"},
        Mistake{{"run", "D", "Hi"},
                "run: \"Hi\" was not expected after MODEL; --prompt gives a text"},
        Mistake{{"run", "D", "-p", "a", "-f", "b"},
                "run: --file and --prompt cannot be given together"},
        Mistake{{"logits", "D", "-o", "x"},
                "logits: --ids is required: token ids, separated by commas"}));

TEST(Spellings, of_one_call_are_the_same) {
  const ProcessResult expected = run_program({"run", kModel, "--prompt", "It was", "--predict", "4",
                                              "--temperature", "0", "--top-k", "5"});
  ASSERT_EQ(expected.exit_code, 0) << expected.err;
  for (const Arguments& arguments : std::vector<Arguments>{
           {"run", "-m", kModel, "-p", "It was", "-n", "4", "--temp", "0"},
           {"run", "-p=It was", "--model=" + kModel, "-n4", "--temp=0"},
           {"-t", "1", "run", "--temp", "0", "--max-tokens", "4", "-p", "It was", "--", kModel},
           {"run", kModel, "-p", "other", "-p", "It was", "--max_new_tokens=4", "--temp", "0"}}) {
    const ProcessResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, expected.out) << testing::PrintToString(arguments);
  }
}

/// What people type for vLLM and llama.cpp, where it is what happens here anyway.
TEST(Spellings, of_nothing_change_nothing) {
  const Arguments call = {"run", kModel, "-p", "It was", "-n", "4", "--temp", "0"};
  const std::string expected = run_program(call).out;
  for (const Arguments& more : std::vector<Arguments>{
           {"--tensor-parallel-size", "1", "-pp", "1", "--data_parallel_size=1"},
           {"--trust-remote-code", "--enforce-eager", "--no-enable-lora", "--load-in-4bit=false"},
           {"--dtype", "auto", "--load-format=safetensors", "--gpu-memory-utilization", "0.90"},
           {"-fa", "on", "-fa", "1", "-fa", "-fa=auto", "-ngl", "-1", "-b", "2048", "-ub", "512",
            "--no-mmap"},
           {"--enable-prefix-caching", "--no-enable-chunked-prefill", "--max-num-batched-tokens",
            "8192", "--hf-overrides", "{}", "--swap-space", "4.0", "-cb"},
           {"--disable-log-stats", "--distributed-executor-backend", "mp", "--max-logprobs", "20",
            "--language-model-only", "--scheduling-policy", "fcfs", "--seed", "0"},
           {"--cudagraph-capture-sizes", "1", "2", "4", "--ignore-patterns", "*.pt", "*.bin",
            "--seed", "0", "--allowed-media-domains", "a.org", "b.org"},
           {"--jinja", "--no-context-shift", "-O3", "--disable-fastapi-docs", "--api-server-count",
            "1", "--response-role", "assistant", "--cuda-graph-sizes", "512"}}) {
    Arguments typed = call;
    typed.insert(typed.end(), more.begin(), more.end());
    const ProcessResult result = run_program(typed);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, expected) << testing::PrintToString(more);
  }
}

TEST(Spellings, of_something_are_refused_with_what_helps) {
  for (const auto& [typed, expected] : std::vector<std::pair<Arguments, const char*>>{
           {{"--no-jinja"}, "the model's own chat template is always used"},
           {{"--context-shift"}, "a text ends where its context is full"},
           {{"--api-server-count", "2"}, "there is one process"},
           {{"--cache-positions", "1"},
            "expected at least the 1024 tokens that a request may take, "
            "found 1; a shorter one (--ctx-size) wants less"},
           {{"--headless"}, "each server answers over HTTP"},
           {{"--embeddings"}, "texts are generated, and no more"},
           {{"--uvicorn-log-level", "info"}, "--log text, json or none"},
           {{"--served-model-name", "a", "b"}, "--served-model-name is given again for each NAME"},
           {{"--api-key", "a", "b"}, "--api-key is given again for each KEY"}}) {
    Arguments command = {"serve", kModel, "--device", "cpu"};
    command.insert(command.end(), typed.begin(), typed.end());
    const ProcessResult result = run_program(command);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(expected), std::string::npos) << result.err;
  }
}

TEST(Spellings, of_the_version_are_three) {
  const std::string expected = run_program({"--version"}).out;
  EXPECT_TRUE(expected.starts_with("subbyte ")) << expected;
  for (const Arguments& arguments : std::vector<Arguments>{{"-V"}, {"version"}, {"run", "-V"}}) {
    const ProcessResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, expected);
  }
}

TEST(Help, names_the_options_that_a_command_takes) {
  for (const char* command : {"clean", "man", "completion", "help"}) {
    const std::string help = run_program({command, "--help"}).out;
    for (const char* option : {"--device", "--activations", "--threads", "--pin"}) {
      EXPECT_EQ(help.find(option), std::string::npos) << command << " " << option;
    }
  }
  const std::string synth = run_program({"synth", "--help"}).out;
  EXPECT_NE(synth.find("--threads"), std::string::npos);
  EXPECT_EQ(synth.find("--device"), std::string::npos);
  EXPECT_NE(run_program({"chat", "--help"}).out.find("--device"), std::string::npos);
}

}  // namespace
}  // namespace subbyte
