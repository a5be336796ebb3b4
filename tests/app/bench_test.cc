// subbyte bench: its tests, its formats, and what it refuses.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "app/process.h"

namespace subbyte {
namespace {

using Json = nlohmann::json;
using Names = std::vector<std::string>;

/// `subbyte bench MODEL ...` of a tiny model on the CPU.
ProcessResult run_bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"bench", golden("qwen3-awq"), "--device", "cpu"});
  return run_program(arguments);
}

Names lines_of(const std::string& text) {
  std::istringstream stream(text);
  Names lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The cells of a row of the table.
Names cells_of(const std::string& row) {
  std::istringstream stream(row.substr(1));
  Names cells;
  for (std::string cell; std::getline(stream, cell, '|');) {
    const std::size_t begin = std::min(cell.find_first_not_of(' '), cell.size());
    cells.push_back(cell.substr(begin, cell.find_last_not_of(' ') + 1 - begin));
  }
  return cells;
}

Names names_of(const Json& results) {
  Names names;
  for (const Json& result : results) names.push_back(result["test"]);
  return names;
}

TEST(Bench, prints_a_table_with_the_columns_of_llama_bench) {
  const ProcessResult result =
      run_bench({"-p", "8", "-n", "4", "--pg", "8,4", "-d", "0,16", "-r", "2", "-t", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Names lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 8u) << result.out;
  EXPECT_EQ(cells_of(lines[0]), (Names{"model", "size", "params", "backend", "threads", "test",
                                       "t/s", "read GB/s", "share"}));
  const Names names = {"pp8", "tg4", "pp8+tg4", "pp8 @ d16", "tg4 @ d16", "pp8+tg4 @ d16"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Names cells = cells_of(lines[i + 2]);
    ASSERT_EQ(cells.size(), 9u);
    EXPECT_EQ(cells[0], "qwen3 awq");
    EXPECT_EQ(cells[3], "CPU");
    EXPECT_EQ(cells[4], "1");
    EXPECT_EQ(cells[5], names[i]);
    EXPECT_GT(std::stod(cells[6]), 0);
    EXPECT_NE(cells[6].find(" \u00b1 "), std::string::npos);
  }
}

/// Of a step of all streams the weights are read once.
TEST(Bench, streams_generate_together) {
  const ProcessResult result =
      run_bench({"-p", "8", "-n", "4", "-npl", "1,3", "-d", "16", "-r", "1", "-t", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json results = Json::parse(result.out);
  ASSERT_EQ(names_of(results), (Names{"pp8 @ d16", "tg4 @ d16", "tg4 x 3 @ d16"}));
  EXPECT_EQ(results[1]["n_parallel"], 1);
  EXPECT_EQ(results[2]["n_parallel"], 3);
  const double rate = results[2]["samples_ts"][0];
  const double nanoseconds = results[2]["samples_ns"][0];
  EXPECT_NEAR(rate * nanoseconds, 3 * 4 * 1e9, 1e6);
  const double one = results[1]["bytes_per_token"];
  EXPECT_GT(results[2]["bytes_per_token"].get<double>(), one / 3);
  EXPECT_LT(results[2]["bytes_per_token"].get<double>(), one);
}

TEST(Bench, more_streams_than_tokens_of_the_vocabulary_begin_with_them_again) {
  const ProcessResult result = run_bench({"-p", "0", "-n", "1", "-npl", "600", "-r", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("tg1 x 600"), std::string::npos) << result.out;
}

TEST(Bench, takes_the_name_of_llama_bench) {
  const ProcessResult result =
      run_bench({"-p", "0", "-n", "0", "-pg", "8,4", "-r", "1", "-o", "csv"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("\"pp8+tg4\""), std::string::npos) << result.out;
}

TEST(Bench, objects_have_the_keys_of_llama_bench_and_agree_with_their_samples) {
  const ProcessResult result = run_bench({"-p", "8", "-n", "4", "-r", "3", "-t", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json results = Json::parse(result.out);
  ASSERT_EQ(names_of(results), (Names{"pp8", "tg4"}));
  for (const Json& one : results) {
    for (const char* key :
         {"build_commit", "cpu_info",       "gpu_info",  "backends", "model_filename", "model_type",
          "model_size",   "model_n_params", "n_threads", "type_k",   "type_v",         "n_prompt",
          "n_gen",        "n_depth",        "test_time", "avg_ns",   "stddev_ns",      "avg_ts",
          "stddev_ts",    "samples_ns",     "samples_ts"}) {
      EXPECT_TRUE(one.contains(key)) << key;
    }
    const auto nanoseconds = one["samples_ns"].get<std::vector<double>>();
    ASSERT_EQ(nanoseconds.size(), 3u);
    const double tokens = one["n_prompt"].get<double>() + one["n_gen"].get<double>();
    std::vector<double> rates;
    for (const double ns : nanoseconds) rates.push_back(1e9 * tokens / ns);
    const double mean = std::accumulate(rates.begin(), rates.end(), 0.0) / 3;
    double squares = 0;
    for (const double rate : rates) squares += (rate - mean) * (rate - mean);
    EXPECT_NEAR(one["avg_ts"].get<double>(), mean, 1e-4 * mean);
    EXPECT_NEAR(one["stddev_ts"].get<double>(), std::sqrt(squares / 2), 1e-4 * mean);
    std::ranges::sort(rates);
    EXPECT_NEAR(one["median_ts"].get<double>(), rates[1], 1e-4 * mean);
  }
  // Keys and values of 2 positions in the mean, in 16 bits.
  EXPECT_GT(results[1]["bytes_per_token"].get<int64_t>(), 0);
  EXPECT_EQ(results[0]["bytes_per_token"], 0);
}

TEST(Bench, every_combination_of_lists_is_a_test) {
  const std::vector<std::string> lists = {
      "-p", "4-8+4", "-n", "0", "-d", "0,8", "-t", "1-2", "-r", "1", "--kv-cache-type", "f16,fp8"};
  const auto with = [&](const std::string& format) {
    std::vector<std::string> arguments = lists;
    arguments.insert(arguments.end(), {"-o", format});
    const ProcessResult result = run_bench(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const Json results = Json::parse(with("json"));
  ASSERT_EQ(results.size(), 16u);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(results[i]["n_threads"], i < 8 ? 1 : 2);
    EXPECT_EQ(results[i]["type_k"], i / 4 % 2 == 0 ? "f16" : "fp8");
    EXPECT_EQ(results[i]["n_depth"], i / 2 % 2 == 0 ? 0 : 8);
    EXPECT_EQ(results[i]["n_prompt"], i % 2 == 0 ? 4 : 8);
  }
  const Names objects = lines_of(with("jsonl"));
  ASSERT_EQ(objects.size(), 16u);
  EXPECT_EQ(Json::parse(objects[3])["test"], "pp8 @ d8");
  const Names rows = lines_of(with("csv"));
  ASSERT_EQ(rows.size(), 17u);
  EXPECT_TRUE(rows[0].starts_with("build_commit,cpu_info,"));
  EXPECT_NE(rows[4].find(",\"pp8 @ d8\","), std::string::npos) << rows[4];
  EXPECT_NE(lines_of(with("md"))[0].find("| kv "), std::string::npos);
}

TEST(Bench, says_what_is_wrong_with_its_arguments) {
  struct Mistake {
    std::vector<std::string> arguments;
    int exit_code;
    std::string message;
  };
  const Mistake mistakes[] = {
      {{"-p", "many"}, 2, "--n-prompt: expected numbers from 0 to"},
      {{"-p", "1,,2"}, 2, "found \"\" [usage.numbers]"},
      {{"-n", "8-4"}, 2, "found \"8-4\" [usage.numbers]"},
      {{"-d", "0-8*2"}, 2, "found \"0-8*2\" [usage.numbers]"},
      {{"-t", "1,0"}, 2, "--threads: expected numbers from 1 to 1024"},
      {{"-n", "0-9223372036854775807"}, 2, "[usage.numbers]"},
      {{"-p", "0-2000"}, 2, "--n-prompt: more than 1000 numbers"},
      {{"-d", "0-999", "-n", "1-1000"}, 2, "make 1001000 tests, expected at most 10000"},
      {{"-p", "0", "-n", "0"}, 2, "no test: --n-prompt and --n-gen are 0"},
      {{"-p", "8", "-n", "0", "--parallel", "1,4"}, 2, "--parallel is for tests of generated"},
      {{"--pg", "4,4", "-n", "0", "-p", "0", "-npl", "8"}, 2, "expected --n-gen above 0"},
      {{"--pg", "512"}, 2, "--pg: expected a prompt and what is generated, such as 512,128"},
      {{"--kv-cache-type", "f16,q8_0"}, 2, "found \"q8_0\" [usage.kv_cache_type]"},
      {{"-d", "1000000"}, 2, "[usage.context]"},
  };
  for (const Mistake& mistake : mistakes) {
    const ProcessResult result = run_bench(mistake.arguments);
    EXPECT_EQ(result.exit_code, mistake.exit_code) << mistake.message;
    EXPECT_NE(result.err.find(mistake.message), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
  const ProcessResult both = run_bench({"--json", "-o", "csv"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_NE(both.err.find("--json and --output cannot be given together"), std::string::npos);
  const ProcessResult missing = run_program({"bench", "/no/such/model"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("[model.not_found]"), std::string::npos);
}

}  // namespace
}  // namespace subbyte
