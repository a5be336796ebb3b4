#pragma once
// What the tests of importers share: tensors go into a file, come back as matrices, and every
// weight is compared with the test's own formula.

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "base/thread_pool.h"
#include "checkpoints/flavour.h"
#include "checkpoints/importer.h"
#include "json/strict_json.h"
#include "support/temp_dir.h"
#include "support/test_tensors.h"

namespace subbyte {

class ImportFixture : public ::testing::Test {
 protected:
  /// Writes the tensors and opens the file; `config` stays what it is.
  void open(const std::vector<TestTensor>& tensors) {
    source_.reset();
    const Status written = write_tensors(dir_ / "model.safetensors", tensors);
    ASSERT_TRUE(written.ok()) << written.error().message;
    open_file();
  }

  /// The same with the data at odd addresses.
  void open_misaligned(const std::vector<TestTensor>& tensors, std::size_t remainder) {
    source_.reset();
    dir_.write("model.safetensors", tensor_file(tensors, remainder));
    open_file();
  }

  /// Lets config_ be what a section of config.json says.
  void say(const json::Value& section) {
    said_ = {{"quantization_config", section}};
    const auto object = json::Object::of(said_, "config.json");
    auto config = read_quantization_config(*object, {});
    ASSERT_TRUE(config.ok()) << config.error().message;
    config_ = std::move(config).value();
  }
  /// The same with another value of one key.
  void say(const char* key, const json::Value& value) {
    json::Value section = said_["quantization_config"];
    section[key] = value;
    say(section);
  }
  /// What config_ says, in the words of a flavour; made anew where it is of another.
  template <typename State>
  State& said_by(const Flavour& flavour) {
    if (config_.flavour != &flavour) {
      config_ = {};
      config_.flavour = &flavour;
      config_.state = std::make_shared<State>();
    }
    return const_cast<State&>(*config_.says<State>());
  }

  ImportContext context() { return {*source_, config_, pool_}; }

  /// The code of the refusal, "" when there is none.
  std::string code(std::string_view module = "m") {
    const auto matrices = import_experts(context(), module);
    return matrices.ok() ? "" : std::string(matrices.error().code);
  }
  std::string code_of(const std::vector<TestTensor>& tensors) {
    open(tensors);
    return source_ ? code() : "not opened";
  }
  /// The same with one of them in the place of that of its name.
  std::string code_of(std::vector<TestTensor> tensors, const TestTensor& other) {
    for (TestTensor& one : tensors) {
      if (one.name == other.name) one = other;
    }
    return code_of(tensors);
  }
  std::string message() {
    const auto matrices = import_experts(context(), "m");
    return matrices.ok() ? "" : matrices.error().message;
  }

  /// Imports "m" and compares all weights: weight(n, k), k an input, must be exactly what
  /// the canonical matrix says.
  void expect_weights(int64_t rows, int64_t cols,
                      const std::function<double(int64_t n, int64_t k)>& weight) {
    matrix_ = {};
    auto matrix = import_matrix(context(), "m");
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    matrix_ = std::move(matrix).value();
    expect_equal(matrix_.view, rows, cols, weight);
  }

  /// The same of tensors of which the first has the codes: these are used where the file has them,
  /// and wherever the data lie, the weights are the same.
  void expect_in_place(const std::vector<TestTensor>& tensors, int64_t rows, int64_t cols,
                       const std::function<double(int64_t n, int64_t k)>& weight) {
    open(tensors);
    expect_weights(rows, cols, weight);
    EXPECT_EQ(matrix_.view.codes.data(), source_->find(tensors[0].name)->bytes.data());
    open_misaligned(tensors, 1);
    expect_weights(rows, cols, weight);
  }

  static void expect_equal(const MatrixView& view, int64_t rows, int64_t cols,
                           const std::function<double(int64_t n, int64_t k)>& weight) {
    ASSERT_EQ(view.rows, rows);
    ASSERT_EQ(view.cols, cols);
    int64_t wrong = 0;
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t i = 0; i < cols; ++i) {
        const int64_t k = view.input_order.empty() ? i : view.input_order[i];
        const double expected = weight(n, k);
        const double found = weight_at(view, n, i);
        if (found != expected && wrong++ == 0) {
          ADD_FAILURE() << "output " << n << ", input " << k << ": expected " << expected
                        << ", found " << found;
        }
      }
    }
    EXPECT_EQ(wrong, 0);
  }

  TempDir dir_;
  ThreadPool pool_{2};
  QuantizationConfig config_;
  std::optional<TensorSource> source_;
  Matrix matrix_;

 private:
  json::Value said_;

  void open_file() {
    auto source = TensorSource::open(dir_ / "model.safetensors");
    ASSERT_TRUE(source.ok()) << source.error().message;
    source_ = std::move(source).value();
  }
};

}  // namespace subbyte
