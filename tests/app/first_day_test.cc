// What new users type on their first day: texts, tokens, checkpoints that are not there, answers as
// JSON, targets.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "app/process.h"
#include "app/terminal.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

const std::string kModel = (fs::path(SUBBYTE_TEST_DATA) / "../../demo/model").string();

/// `run` of the demo model, greedily.
ProcessResult run_demo(Arguments more, const ProcessOptions& options = {}) {
  more.insert(more.begin(), {"run", kModel, "-n", "8", "--temp", "0"});
  return run_program(more, options);
}

void expect_error(const ProcessResult& result, int code, const std::string& said) {
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_NE(result.err.find(said), std::string::npos) << result.err;
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
}

TEST(Prompt, a_newline_at_the_end_of_a_file_or_a_pipe_is_not_the_text) {
  const TempDir folder;
  const std::string expected = run_demo({"-p", "Once upon a time"}).out;
  ASSERT_TRUE(expected.starts_with("Once upon a time")) << expected;
  EXPECT_EQ(run_demo({}, {.input = "Once upon a time\n"}).out, expected);
  EXPECT_EQ(run_demo({}, {.input = "Once upon a time"}).out, expected);
  EXPECT_EQ(run_demo({"-f", "-"}, {.input = "Once upon a time\r\n"}).out, expected);
  const std::string file = folder.write("a.txt", "Once upon a time\n").string();
  EXPECT_EQ(run_demo({"-f", file}).out, expected);
  const std::string two = run_demo({}, {.input = "Once upon a time\n\n"}).out;  // one is kept
  EXPECT_TRUE(two.starts_with("Once upon a time\n")) << two;
  EXPECT_EQ(run_demo({"-e", "-p", "Once upon a time\\n"}).out, two);
  EXPECT_EQ(run_demo({"-p", "Once\\n"}).out.substr(0, 6), "Once\\n");
}

/// Also of a text that is one token.
TEST(Stop, is_the_reason_that_was_given) {
  const auto run = [](const Arguments& more) {
    Arguments all = {"run", kModel, "-p", "It was", "-n", "60", "--temp", "0"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  };
  const ProcessResult whole = run({});
  EXPECT_NE(whole.err.find("(60 tokens, -n reached)"), std::string::npos) << whole.err;
  ASSERT_NE(whole.out.find('.'), std::string::npos) << whole.out;
  for (const std::string& stop : {std::string("."), whole.out.substr(20, 3)}) {
    const ProcessResult stopped = run({"--stop", stop});
    EXPECT_NE(stopped.err.find("tokens, --stop reached)"), std::string::npos) << stopped.err;
  }
}

TEST(Prompt, that_is_empty_or_cannot_be_read_says_why) {
  const TempDir folder;
  const std::string how = "the prompt is empty: give it with --prompt, --file or on standard input";
  expect_error(run_demo({"-p", ""}), 2, how);
  expect_error(run_demo({}), 2, how);
  expect_error(run_demo({"-f", folder.write("empty", "").string()}), 2, how);
  expect_error(run_demo({"-f", "nofile"}), 1, "nofile: cannot open: No such file or directory");
  expect_error(run_demo({"-f", folder.path().string()}), 1, ": cannot read: Is a directory");
  expect_error(run_program({"perplexity", kModel, "nofile"}), 1, "No such file or directory");
  expect_error(run_demo({"-p", "a", "--stop", ""}), 2,
               "--stop is a text with characters, found an empty one");
  expect_error(run_demo({"-e", "-p", "a\\q"}), 2, "--escape: expected ");
}

TEST(RunJson, has_the_text_its_tokens_and_how_they_were_chosen) {
  const ProcessResult text = run_demo({"-p", "It was", "--seed", "3"});
  const ProcessResult result = run_demo({"-p", "It was", "--seed", "3", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 1);
  const Json answer = Json::parse(result.out);
  const Json& choice = answer.at("choices").at(0);
  EXPECT_EQ("It was" + choice.at("text").get<std::string>() + "\n", text.out);
  EXPECT_EQ(choice.at("token_ids").size(), 8u);
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(answer.at("object"), "text_completion");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 8);
  EXPECT_EQ(answer.at("sampling").at("temperature"), 0);
  EXPECT_EQ(answer.at("sampling").at("seed"), 3);
  EXPECT_GT(answer.at("timings").at("completion_tokens_per_second"), 0);
  std::string ids;
  for (const Json& id : choice.at("token_ids")) ids += id.dump() + " ";
  EXPECT_EQ(run_program({"detokenize", kModel, ids}).out,
            choice.at("text").get<std::string>() + "\n");
}

/// Half of the layers of gpt-oss see 8 positions in this shape, and hold one page or two of 128.
TEST(RunJson, says_that_layers_with_a_window_hold_few_pages) {
  const TempDir folder;
  const std::string model = (folder / "model").string();
  ASSERT_EQ(run_program({"synth", model, "--arch", "gpt-oss", "--shape", "tiny"}).exit_code, 0);
  std::string prompt;
  for (int i = 0; i < 300; ++i) prompt += " ab";
  const ProcessResult result = run_program(
      {"run", model, "-p", prompt, "-n", "4", "--ignore-eos", "--device", "cpu", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json answer = Json::parse(result.out);
  const int64_t tokens = answer.at("usage").at("total_tokens");
  ASSERT_GT(tokens, 290);
  constexpr int64_t kPageOfLayer = 128 * 2 * 2 * 32 * 2;  // 2 heads of 32 numbers of f16
  const int64_t pages = (tokens + 127) / 128;
  const int64_t held = answer.at("cache").at("held_bytes");
  EXPECT_GE(held, 2 * (pages + 1) * kPageOfLayer);
  EXPECT_LE(held, 2 * (pages + 2) * kPageOfLayer);
  EXPECT_GE(answer.at("cache").at("total_bytes"), held);
}

TEST(RunJson, is_the_body_of_a_line_of_prompts) {
  const TempDir folder;
  const std::string in = folder
                             .write("in", R"({"prompt": "It was"})"
                                          "\n")
                             .string();
  const std::string out = (folder / "out").string();
  ASSERT_EQ(run_demo({"--batch-invariant", "--prompts", in, "-o", out}).exit_code, 0);
  const Json body = Json::parse(folder.read("out")).at("response").at("body");
  const ProcessResult alone = run_demo({"--batch-invariant", "-p", "It was", "--json"});
  const Json answer = Json::parse(alone.out);
  for (const auto& [key, value] : body.items()) {
    ASSERT_TRUE(answer.contains(key)) << key;
    if (key == "choices" || key == "seed" || key == "id") continue;
    EXPECT_EQ(answer.at(key), value) << key;
  }
  for (const auto& [key, value] : body.at("choices").at(0).items()) {
    EXPECT_EQ(answer.at("choices").at(0).at(key), value) << key;
  }
}

TEST(RunJson, of_chat_is_an_answer_with_its_role) {
  const ProcessResult result =
      run_program({"chat", kModel, "-p", "Hello", "-n", "4", "--temp", "0", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json answer = Json::parse(result.out);
  EXPECT_EQ(answer.at("object"), "chat.completion");
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("role"), "assistant");
  expect_error(run_program({"chat", kModel, "--json"}), 2, "--json is for --prompt TEXT");
}

TEST(Json, has_errors_too_where_it_was_asked_for) {
  const Arguments missing = {"inspect", "/no/such/model"};
  EXPECT_EQ(run_program(missing).out, "");
  for (Arguments arguments :
       {missing, {"run", kModel, "-n", "x"}, {"run", kModel, "-p", ""}, {"verify"}}) {
    arguments.push_back("--json");
    const ProcessResult result = run_program(arguments);
    const Json error = Json::parse(result.out).at("error");
    const std::string line = "subbyte: error: " + error.at("message").get<std::string>() + " [" +
                             error.at("code").get<std::string>() + "]\n";
    EXPECT_EQ(result.err, line);
    EXPECT_NE(result.exit_code, 0);
  }
}

TEST(Quiet, says_nothing_but_errors) {
  const ProcessResult loud = run_demo({"-p", "It was"});
  EXPECT_NE(loud.err.find("tokens/s"), std::string::npos);
  for (const char* option : {"-q", "--quiet", "--no-perf"}) {
    const ProcessResult result = run_demo({"-p", "It was", option});
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.out, loud.out);
  }
  expect_error(run_program({"run", "/no/such/model", "-q"}), 1, "/no/such/model");
}

TEST(Sampling, is_said_where_tokens_are_chosen) {
  EXPECT_NE(run_demo({"-p", "a"}).err.find("\nsampled greedy (temperature 0)\n"),
            std::string::npos);
  const ProcessResult result = run_program({"run", kModel, "-p", "a", "-n", "2", "--top-k", "7",
                                            "--temp", "0.5", "--top-p", "0.75", "--min-p", "0"});
  EXPECT_NE(result.err.find("\nsampled temperature 0.5, top-k 7, top-p 0.75, min-p 0, seed 0\n"),
            std::string::npos)
      << result.err;
}

TEST(Tokens, go_in_and_out_in_every_form) {
  const std::string ids = run_program({"tokenize", kModel, "It was so."}).out;
  EXPECT_EQ(run_program({"tokenize", kModel, "It", "was", "so."}).out, ids);
  EXPECT_EQ(run_program({"tokenize", kModel}, {.input = "It was so.\n"}).out, ids);
  const Json json = Json::parse(run_program({"tokenize", kModel, "--json", "It was so."}).out);
  EXPECT_EQ(json.at("count"), json.at("ids").size());
  const auto text_of = [](const Arguments& more, const std::string& input = "") {
    Arguments arguments = {"detokenize", kModel};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, {.input = input}).out;
  };
  Arguments apart;
  for (const Json& id : json.at("ids")) apart.push_back(id.dump());
  EXPECT_EQ(text_of(apart), "It was so.\n");
  EXPECT_EQ(text_of({}, ids), "It was so.\n");
  EXPECT_EQ(text_of({}, json.dump()), "It was so.\n");
  EXPECT_EQ(text_of({}, json.at("ids").dump(2)), "It was so.\n");
  EXPECT_EQ(text_of({" "}), "\n");
  for (const char* wrong :
       {"1,", ",1", "1,,2", "1x", "-1", "[1, -2]", "{\"a\": [1]}", "[1", "1;2"}) {
    expect_error(run_program({"detokenize", kModel, "--", wrong}), 2, "");
  }
}

TEST(Gguf, is_opened_by_every_command_that_takes_a_model) {
  const TempDir folder;
  const std::string file = (fs::path(kTestData) / "gguf/qwen3/model.gguf").string();
  const std::string directory = fs::path(file).parent_path().string();
  const std::string text = folder.write("text", "the inn and the inn").string();
  const std::string messages =
      folder.write("messages", R"([{"role": "user", "content": "the"}])").string();
  for (const std::string& model : {file, directory}) {
    const std::string target = (folder / fs::path(model).filename().string()).string();
    for (const Arguments& arguments : std::vector<Arguments>{
             {"run", model, "-p", "the", "-n", "2"},
             {"chat", model, "-p", "the", "-n", "2"},
             {"logits", model, "--ids", "1", "-o", (folder / "logits").string(), "--force"},
             {"perplexity", model, text, "--window", "64"},
             {"tokenize", model, "the"},
             {"template", model, "--messages", messages},
             {"inspect", model},
             {"verify", model},
             {"diff", model, file},
             {"bench", model, "-p", "8", "-n", "4", "-r", "1", "--no-warmup"},
             {"convert", model, target, "--to", "bf16", "--allow-lossy"},
             {"convert", model, target + ".gguf", "--to", "gguf"},
             {"quantize", model, target + "-4", "--format", "compressed-tensors", "--group-size",
              "16"}}) {
      SCOPED_TRACE(arguments[0]);
      const ProcessResult result = run_program(arguments);
      EXPECT_EQ(result.exit_code, 0) << result.err;
    }
  }
}

TEST(Gguf, that_is_damaged_is_named_by_every_command) {
  const TempDir folder;
  const std::string file = folder.write("m/model-q4.gguf", "GGUF\x03").string();
  for (const Arguments& arguments :
       std::vector<Arguments>{{"run", file, "-p", "a"},
                              {"chat", file, "-p", "a"},
                              {"logits", file, "--ids", "1", "-o", (folder / "x").string()},
                              {"perplexity", file, file},
                              {"tokenize", file, "a"},
                              {"convert", file, (folder / "x").string(), "--to", "awq"},
                              {"quantize", file, (folder / "x").string()},
                              {"diff", file, kModel},
                              {"inspect", file}}) {
    SCOPED_TRACE(arguments[0]);
    expect_error(run_program(arguments), 1, "model-q4.gguf: expected at least 24 bytes, found 5");
  }
  const ProcessResult verified = run_program({"verify", file});
  EXPECT_EQ(verified.exit_code, 3) << verified.out << verified.err;
  EXPECT_NE(verified.out.find("gguf.truncated"), std::string::npos) << verified.out;
}

TEST(Tokens, have_pieces) {
  const ProcessResult text = run_program({"tokenize", kModel, "--pieces", "so \xE2\x82\xAC"});
  EXPECT_NE(text.out.find("  \"so\"\n"), std::string::npos) << text.out;
  const ProcessResult result =
      run_program({"tokenize", kModel, "--pieces", "--json", "so \xE2\x82\xAC"});
  const Json json = Json::parse(result.out);
  ASSERT_EQ(json.at("pieces").size(), json.at("count"));
  std::string bytes;
  for (const Json& piece : json.at("pieces")) {
    if (piece.is_string()) bytes += piece.get<std::string>();
    for (const Json& byte : piece.is_array() ? piece : Json::array()) {
      bytes += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_EQ(bytes, "so \xE2\x82\xAC");
}

TEST(List, shows_the_models_of_the_cache_and_what_they_lack) {
  const TempDir cache;
  const fs::path snapshot = cache / "models--org--demo/snapshots/main";
  fs::create_directories(snapshot.parent_path());
  fs::copy(kModel, snapshot);
  cache.write("models--org--part/snapshots/main/config.json", R"({"model_type": "qwen3"})");
  cache.write("models--org--part/blobs/ab.incomplete", "x");
  const ProcessOptions here = {.environment = {{"HF_HUB_CACHE", cache.path().string()}}};
  const ProcessResult text = run_program({"list"}, here);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("org/demo ")) << text.out;
  EXPECT_NE(text.out.find("MB  qwen3 awq\n"), text.out.npos) << text.out;
  const Json json = Json::parse(run_program({"list", "--json"}, here).out);
  EXPECT_EQ(json.at("cache"), cache.path().string());
  ASSERT_EQ(json.at("models").size(), 2u);
  EXPECT_EQ(json.at("models").at(0).at("problem"), "");
  const std::string problem = json.at("models").at(1).at("problem");
  EXPECT_NE(problem.find("\"ab.incomplete\" is left of a download"), problem.npos) << problem;
  expect_error(run_program({"run", "org/part", "-p", "a"}, here), 1, "[model.unfinished]");
  EXPECT_EQ(run_program({"run", "org/demo", "-p", "a", "-n", "1"}, here).exit_code, 0);
  expect_error(run_program({"run", "Org/Demo", "-p", "a"}, here), 1, "; the cache has org/demo");
  expect_error(run_program({"run", "org/none", "-p", "a"}, here), 1,
               "; `hf download org/none` fetches it");
}

TEST(List, names_the_files_of_a_repository_of_ggufs) {
  const TempDir cache;
  const fs::path snapshot = cache / "models--org--ggufs/snapshots/main";
  fs::create_directories(snapshot);
  const fs::path file = fs::path(kTestData) / "gguf/qwen3/model.gguf";
  fs::copy(file, snapshot / "m-Q4_0.gguf");
  const ProcessOptions here = {.environment = {{"HF_HUB_CACHE", cache.path().string()}}};
  const ProcessResult one = run_program({"list"}, here);
  EXPECT_NE(one.out.find("MB  qwen3 "), one.out.npos) << one.out;
  fs::copy(file, snapshot / "m-Q8_0.gguf");
  const Json json = Json::parse(run_program({"list", "--json"}, here).out);
  const std::string problem = json.at("models").at(0).at("problem");
  EXPECT_NE(problem.find("expected one GGUF file, found \"m-Q4_0.gguf\", \"m-Q8_0.gguf\""),
            problem.npos)
      << problem;
}

TEST(Interrupt, ends_the_line_of_a_text_with_its_rates) {
  const TempDir folder;  // the text has no end
  const std::string model = (folder / "m").string();
  ASSERT_EQ(run_program({"synth", model, "--shape", "tiny"}).exit_code, 0);
  Json config = Json::parse(folder.read("m/config.json"));
  config["max_position_embeddings"] = 1 << 20;
  folder.write("m/config.json", config.dump());
  Terminal terminal({"run", model, "-p", "Say much.", "-n", "-1", "-c", "1000000", "--ignore-eos"});
  terminal.read_until("Say much.");
  terminal.read_until("e");
  terminal.type("\x03");
  const std::string rest = terminal.read_to_end();
  EXPECT_EQ(terminal.exit_code(), 130);
  const std::size_t at = rest.find("\r\n(stopped after ");
  ASSERT_NE(at, rest.npos) << rest;
  EXPECT_NE(rest.find("tokens/s)", at), rest.npos) << rest;
}

TEST(Target, may_be_below_new_folders_or_an_empty_directory) {
  const TempDir folder;
  const std::string model = (folder / "m").string();
  fs::create_directory(model);
  ASSERT_EQ(run_program({"synth", model, "--shape", "tiny"}).exit_code, 0);
  const std::string deep = (folder / "new/dir/x").string();
  const ProcessResult made = run_program({"convert", model, deep, "--to", "GPTQ"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_TRUE(fs::exists(deep + "/config.json"));
  // What cannot be converted leaves what was there.
  const std::string other = (folder / "other/y").string();
  EXPECT_EQ(run_program({"convert", model, other, "--to", "nf4"}).exit_code, 1);
  EXPECT_FALSE(fs::exists(folder / "other"));
  fs::create_directories(folder / "empty");
  EXPECT_EQ(run_program({"convert", model, (folder / "empty").string(), "--to", "nf4"}).exit_code,
            1);
  EXPECT_TRUE(fs::is_empty(folder / "empty"));
  // A directory that is not empty stays as it is.
  const ProcessResult full = run_program({"convert", model, deep, "--to", "gptq"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_NE(full.err.find("[file.exists]"), std::string::npos) << full.err;
}

TEST(Formats, are_taken_by_their_usual_names_and_lead_in_no_circle) {
  const TempDir folder;
  const std::string model = (folder / "m").string();
  const auto target = [&](const char* name) { return (folder / name).string(); };
  ASSERT_EQ(run_program({"synth", model, "--shape", "tiny", "--format", "bf16"}).exit_code, 0);
  for (const std::string format : {"mxfp4", "nvfp4", "nf4", "gptq", "w4a16"}) {
    const ProcessResult result = run_program({"convert", model, target("a"), "--to", format});
    const std::string named = format == "w4a16" ? "compressed-tensors" : format;
    expect_error(result, 1, "`subbyte quantize SRC DST --format " + named + "` rounds");
    const ProcessResult made =
        run_program({"quantize", model, target(format.c_str()), "--format", format});
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }
  expect_error(run_program({"convert", model, target("a"), "--to", "pack_quantized_lanes"}), 1,
               "`subbyte quantize SRC DST --format compressed-tensors` rounds, and convert makes "
               "this one of that");
  expect_error(run_program({"quantize", model, target("a"), "--format", "nf5"}), 2,
               "did you mean nf4");
  const ProcessResult made = run_program({"quantize", model, target("q"), "--to", "AWQ", "--json"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(Json::parse(made.out).at("format"), "awq");
  const ProcessResult same = run_program({"convert", target("q"), target("p"), "--to", "w4a16"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  expect_error(run_program({"convert", model, target("a"), "--to", "gptk"}), 2,
               "did you mean gptq");
}

TEST(Synth, defaults_follow_the_architecture_in_both_spellings) {
  const TempDir folder;
  for (const char* arch : {"gpt-oss", "gpt_oss", "qwen3_moe", "qwen3-moe"}) {
    const ProcessResult made =
        run_program({"synth", (folder / arch).string(), "--arch", arch, "--json"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const Json json = Json::parse(made.out);
    EXPECT_EQ(json.at("shape"), "tiny");
    EXPECT_EQ(json.at("format"), arch[0] == 'g' ? "mxfp4" : "awq");
  }
}

/// Every key in the JSON of every command.
void expect_snake_case(const Json& value, const std::string& command) {
  if (value.is_object()) {
    for (const auto& [key, element] : value.items()) {
      if (key != "sha256") {
        EXPECT_EQ(key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), key.npos)
            << command << " " << key;
        expect_snake_case(element, command);
      }
    }
  } else if (value.is_array()) {
    for (const Json& element : value) expect_snake_case(element, command);
  }
}

TEST(Json, has_keys_in_snake_case_and_one_word_for_a_thing) {
  const TempDir folder;
  const std::string model = (folder / "m").string();
  const auto target = [&](const char* name) { return (folder / name).string(); };
  ASSERT_EQ(run_program({"synth", model, "--shape", "tiny", "--format", "bf16"}).exit_code, 0);
  const std::string text = folder.write("a.txt", "It was so. It was so.").string();
  std::map<std::string, Json> all;
  for (Arguments arguments :
       std::vector<Arguments>{{"synth", target("s"), "--shape", "tiny"},
                              {"quantize", model, target("q")},
                              {"convert", target("q"), target("g"), "--to", "gptq"},
                              {"diff", target("q"), target("g")},
                              {"inspect", model},
                              {"verify", model},
                              {"perplexity", model, text},
                              {"tokenize", model, "a"},
                              {"detokenize", model, "1"},
                              {"devices"},
                              {"list"},
                              {"run", model, "-p", "a", "-n", "1"}}) {
    arguments.push_back("--json");
    const ProcessResult result = run_program(arguments);
    all[arguments[0]] = Json::parse(result.out);
    expect_snake_case(all[arguments[0]], arguments[0]);
    EXPECT_FALSE(all[arguments[0]].contains("error")) << result.out;
  }
  for (const char* key : {"destination", "format", "result_bytes", "seconds"}) {
    for (const char* command : {"synth", "quantize", "convert"}) {
      EXPECT_TRUE(all[command].contains(key)) << command << " " << key;
    }
  }
  for (const char* key : {"modules", "kept_tensors", "source_bytes", "signal_to_noise_db"}) {
    for (const char* command : {"quantize", "convert"}) {
      EXPECT_TRUE(all[command].contains(key)) << command << " " << key;
    }
  }
  EXPECT_EQ(all["synth"].at("architecture"), all["inspect"].at("architecture"));
  EXPECT_EQ(all["diff"].at("verdict"), "same_values");
}

}  // namespace
}  // namespace subbyte
