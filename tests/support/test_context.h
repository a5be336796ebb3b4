#pragma once
// Models on a backend, and one conversation with them, for tests that want logits.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backends.h"
#include "models/model.h"
#include "support/isa_of.h"
#include "support/value_of.h"

namespace subbyte::testing {

inline std::unique_ptr<Backend> make_test_backend(int threads, std::string_view isa = {}) {
  return value_of(make_backend({.device = "cpu", .num_threads = threads, .isa = std::string(isa)}));
}

/// A sequence with a pool of its own.
class TestContext {
 public:
  TestContext(const Model& model, Backend& backend, int64_t positions, Element type = Element::kF32)
      : model_(model),
        backend_(backend),
        pool_(value_of(model.make_kv_pool(backend, type, {positions}))),
        sequence_(pool_, positions) {}
  TestContext(const TestContext&) = delete;
  TestContext& operator=(const TestContext&) = delete;

  Sequence& sequence() { return sequence_; }
  KvPool& pool() { return pool_; }

  /// Appends `tokens` in one step: the logits of each, [tokens][vocabulary].
  std::vector<float> forward(std::span<const int32_t> tokens, StepObserver* observer = nullptr) {
    Logits logits;
    const Part part = {&sequence_, tokens, std::ssize(tokens)};
    value_of(model_.forward(backend_, {{&part, 1}, observer}, logits));
    return logits.values;
  }

 private:
  const Model& model_;
  Backend& backend_;
  KvPool pool_;
  Sequence sequence_;
};

/// The logits of each of `tokens` from an empty context on, in one step.
inline std::vector<float> logits_of(const Model& model, Backend& backend,
                                    std::span<const int32_t> tokens, Element type = Element::kF32) {
  return TestContext(model, backend, std::ssize(tokens), type).forward(tokens);
}

}  // namespace subbyte::testing
