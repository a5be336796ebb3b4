#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <vector>

#include "session/session.h"
#include "support/open_session.h"
#include "support/paths.h"
#include "support/refusing_gpu.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

const fs::path kModel = fs::path(SUBBYTE_TEST_DATA) / "../../demo/model";

/// A copy of the model of which files may be changed.
class SessionOpen : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const fs::directory_entry& file : fs::directory_iterator(kModel)) {
      fs::copy(file, folder_ / file.path().filename().string());
    }
    options_.device = {.device = "cpu", .num_threads = 1};
    options_.max_sequences = 1;
  }

  std::string refusal() {
    const auto session = Session::open(folder_.path(), options_);
    return session.ok() ? "" : std::string(session.error().code);
  }

  TempDir folder_;
  SessionOptions options_;
};

TEST_F(SessionOpen, names_a_tokenizer_in_another_form) {
  fs::remove(folder_ / "tokenizer.json");
  folder_.write("tokenizer.model", "");
  const auto session = Session::open(folder_.path(), options_);
  ASSERT_FALSE(session.ok());
  EXPECT_NE(session.error().message.find("found tokenizer.model, which is not read"),
            std::string::npos)
      << session.error().message;
}

TEST_F(SessionOpen, has_the_context_of_the_model_where_that_is_short) {
  options_.max_sequences = 2;
  const auto session = Session::open(folder_.path(), options_);
  ASSERT_TRUE(session.ok()) << session.error().message;
  EXPECT_EQ(session->context(), 1024);
  EXPECT_EQ(session->cache().max_positions(), 2048);
  EXPECT_EQ(session->cache().type(), Element::kF16);
  EXPECT_GT(session->ready().load_seconds, 0);
}

TEST_F(SessionOpen, samples_as_the_caller_wants_then_as_the_model_does) {
  folder_.write("generation_config.json", R"({"temperature": 0.3, "top_k": 7})");
  options_.sampling.temperature = 0.9;
  options_.sampling.seed = 11;
  const auto session = Session::open(folder_.path(), options_);
  ASSERT_TRUE(session.ok()) << session.error().message;
  const SamplingOptions sampling = session->text().sampling.alone;
  EXPECT_EQ(sampling.temperature, 0.9);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.seed, 11u);
}

TEST_F(SessionOpen, tells_how_far_loading_is) {
  uint64_t last = 0;
  uint64_t all = 0;
  options_.progress = [&](uint64_t done, uint64_t total) { last = done, all = total; };
  EXPECT_EQ(refusal(), "");
  EXPECT_GT(all, 0u);
  EXPECT_EQ(last, all);
}

TEST_F(SessionOpen, refuses_by_code) {
  options_.cache_positions = 500;  // less than a context, which is 1024
  EXPECT_EQ(refusal(), "session.size");
  options_.context = 1025;
  options_.cache_positions = 0;
  EXPECT_EQ(refusal(), "usage.context");
  options_.context = -1;
  options_.cache_positions = 0;
  EXPECT_EQ(refusal(), "session.size");
  options_.context = 0;
  options_.max_sequences = 0;
  EXPECT_EQ(refusal(), "session.size");
  options_.max_sequences = int64_t{1} << 60;
  EXPECT_EQ(refusal(), "session.size");
  options_.max_sequences = 1;
  for (const double slowdown : {0.5, 1.0, -2.0, std::numeric_limits<double>::quiet_NaN()}) {
    options_.max_slowdown = slowdown;
    EXPECT_EQ(refusal(), "session.slowdown");
  }
  options_.max_slowdown = 0;
  options_.head_bits = 5;
  EXPECT_EQ(refusal(), "model.head_bits");
  options_.head_bits = 16;
  options_.device.device = "abacus";
  EXPECT_EQ(refusal(), "device.unknown");
  options_.device.device = "cpu";
  folder_.write("generation_config.json", "{");
  EXPECT_EQ(refusal(), "json.syntax");
  fs::remove(folder_ / "generation_config.json");
  fs::remove(folder_ / "tokenizer.json");
  EXPECT_EQ(refusal(), "tokenizer.missing");
  fs::remove(folder_ / "config.json");
  EXPECT_EQ(refusal(), "model.not_found");
  EXPECT_EQ(Session::open(folder_ / "none").error().code, "model.not_found");
}

TEST_F(SessionOpen, has_a_cache_of_a_context_at_least) {
  options_.context = 100;
  options_.cache_positions = 100;
  EXPECT_EQ(refusal(), "");
  options_.context = 129;
  options_.cache_positions = 128;
  EXPECT_EQ(refusal(), "session.size");
}

TEST_F(SessionOpen, has_no_cache_that_memory_cannot_hold) {
  options_.context = 100;
  options_.cache_positions = int64_t{1} << 40;
  const auto session = Session::open(folder_.path(), options_);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.error().code, "usage.cache_memory");
  const std::string& message = session.error().message;
  const std::string_view before = "which is enough for ";
  const std::size_t at = message.find(before);
  ASSERT_NE(at, std::string::npos) << message;
  // As many are taken, where the memory is still free.
  options_.cache_positions = std::stoll(message.substr(at + before.size())) / 64;
  EXPECT_GT(options_.cache_positions, 1000);
  EXPECT_EQ(refusal(), "");
}

/// As of Mistral, which are read by its own software alone.
TEST_F(SessionOpen, has_a_cache_beside_the_weights_and_not_beside_files_that_it_does_not_read) {
  folder_.write("consolidated.safetensors", "");
  fs::resize_file(folder_ / "consolidated.safetensors", uintmax_t{1} << 42);  // sparse
  options_.context = 100;
  options_.cache_positions = 4096;
  EXPECT_EQ(refusal(), "");
}

TEST_F(SessionOpen, goes_to_the_cpu_where_the_gpu_does_not_take_the_model_or_its_cache) {
  for (const auto asked : {testing::Asked::kRoom, testing::Asked::kCache}) {
    std::vector<std::string> choices;
    options_.device.device = "auto";
    AutoDevice machines;
    machines.find_gpu = [] { return 0; };
    machines.on_choice = [&](const std::string& one) { choices.push_back(one); };
    machines.make = [&](DeviceOptions device) -> Result<std::unique_ptr<Backend>> {
      const bool is_gpu = device.device != "cpu";
      device.device = "cpu";
      SUBBYTE_TRY(std::unique_ptr<Backend> cpu, make_backend(device));
      if (!is_gpu) return cpu;
      const Error error = {asked == testing::Asked::kRoom ? "memory.device" : "kv.memory", "full"};
      return std::unique_ptr<Backend>(
          std::make_unique<testing::RefusingGpu>(std::move(cpu), asked, error));
    };
    const auto session = testing::open_session(folder_.path(), options_, machines);
    ASSERT_TRUE(session.ok()) << session.error().message;
    EXPECT_EQ(session->ready().backend->memory(), nullptr);
    EXPECT_EQ(choices, std::vector<std::string>{"takes the CPU: full"});
    options_.cache_positions = int64_t{1} << 40;
    const auto none = testing::open_session(folder_.path(), options_, machines);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, "usage.cache_memory");
    options_.cache_positions = 0;
    options_.device.device = "cuda:0";
    EXPECT_EQ(testing::open_session(folder_.path(), options_, machines).error().code,
              asked == testing::Asked::kRoom ? "memory.device" : "kv.memory");
  }
}

/// f16 has no room for squares; what is asked for stays.
TEST(ReadyModels, that_square_activations_have_bf16_on_gpus) {
  std::vector<Activations> made;
  AutoDevice machines;
  machines.make = [&](const DeviceOptions& options) -> Result<std::unique_ptr<Backend>> {
    made.push_back(options.activations);
    return Error{"cuda.device", "no GPU"};
  };
  for (const char* const name : {"nemotron-bf16", "llama3-bf16"}) {
    const fs::path model = fs::path(SUBBYTE_TEST_DATA) / "goldens" / name;
    for (const Activations activations : {Activations::kF32, Activations::kMxfp8}) {
      const DeviceOptions device = {.device = "cuda:1", .activations = activations};
      EXPECT_FALSE(ReadyModel::open(model.native(), device, machines).ok());
    }
  }
  EXPECT_EQ(made, (std::vector<Activations>{Activations::kWide, Activations::kMxfp8,
                                            Activations::kF32, Activations::kMxfp8}));
}

}  // namespace
}  // namespace subbyte
