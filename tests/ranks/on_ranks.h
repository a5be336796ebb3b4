#pragma once
// Golden models on machines, ranks that are threads of the CPU among them.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoints/containers/tensor_source.h"
#include "engine/generate.h"
#include "models/model.h"
#include "support/goldens.h"
#include "support/test_context.h"

namespace subbyte::testing {

/// Folders of all models that there are references of.
inline std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> found;
  for (const Golden& golden : kGoldenModels) {
    if ((golden.uses & kRefused) == 0) found.push_back(golden_folder(golden.name));
  }
  for (const char* const name : kGgufGoldens) {
    found.push_back(std::filesystem::path(kTestData) / "gguf" / name);
  }
  return found;
}

inline std::vector<int32_t> prompt_of(const std::filesystem::path& folder) {
  const auto source = TensorSource::open(folder / "reference.safetensors");
  if (!source.ok()) return {};
  const FileTensor& tensor = *source->find("prompt2.ids");
  std::vector<int32_t> ids(tensor.bytes.size() / sizeof(int32_t));
  std::memcpy(ids.data(), tensor.bytes.data(), tensor.bytes.size());
  return ids;
}

/// Options for the processors of this machine.
inline DeviceOptions on_cpu(int threads) {
  const char* const isa = std::getenv("SUBBYTE_ISA");
  return {.device = "cpu", .num_threads = threads, .isa = isa == nullptr ? "" : isa};
}

/// A model on a machine.
class OnMachine {
 public:
  OnMachine(const std::filesystem::path& folder, Result<std::unique_ptr<Backend>> backend) {
    if (!backend.ok()) {
      fail(backend.error());
      return;
    }
    backend_ = std::move(backend).value();
    const std::filesystem::path file = folder / "model.gguf";
    auto model = load_model(std::filesystem::exists(file) ? file : folder, *backend_);
    if (model.ok()) {
      model_ = std::move(model).value();
    } else {
      fail(model.error());
    }
  }

  const std::string& error() const { return error_; }
  Backend& backend() { return *backend_; }
  const Model& model() const { return *model_; }

  /// The logits of each token.
  std::vector<float> logits(const std::vector<int32_t>& tokens) {
    return logits_of(*model_, *backend_, tokens);
  }

  /// What follows, until options.max_tokens.
  std::vector<int32_t> tokens(const std::vector<int32_t>& prompt, GenerateOptions options) {
    TestContext context(*model_, *backend_, std::ssize(prompt) + options.max_tokens);
    std::vector<int32_t> found;
    options.stop_tokens = {};
    const auto stats =
        generate(*model_, *backend_, context.sequence(), prompt, options, [&](int32_t token) {
          found.push_back(token);
          return true;
        });
    EXPECT_TRUE(stats.ok()) << stats.error().message;
    return found;
  }

 private:
  void fail(const Error& error) { error_ = std::string(error.code) + ": " + error.message; }

  std::string error_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

/// The same on so many ranks.
class OnRanks : public OnMachine {
 public:
  OnRanks(const std::filesystem::path& folder, int ranks)
      : OnMachine(folder, make_backend(options(ranks))) {}

 private:
  static DeviceOptions options(int ranks) {
    DeviceOptions options = on_cpu(ranks);
    options.tensor_parallel_size = ranks;
    return options;
  }
};

}  // namespace subbyte::testing
