#pragma once
// The memory of a machine that has its own, such as a GPU: what a model will take of it is known
// from the headers of its files, before anything is read or allocated.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "formats/weight_format.h"
#include "ops/step_plan.h"

namespace subbyte {

/// A matrix that was not read yet, as its importer describes it.
struct MatrixShape {
  WeightFormat format;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t experts = 1;
  bool act_order = false;
  bool is_of_moe = false;  // some of the experts of a layer, or all of them
};

/// The largest step that is to run without allocating.
struct StepSize {
  int64_t tokens = 0;
  int64_t sequences = 1;
  int64_t logits = 1;     // rows, to read or to choose from
  int64_t positions = 0;  // of the caches of all sequences
};

/// Bytes of the machine's memory.
struct MemoryNeed {
  int64_t weights = 0;
  int64_t cache = 0;
  int64_t workspace = 0;  // of a step
  int64_t staging = 0;    // while weights are loaded; given back before there is a cache

  /// Bytes that are held once a model is loaded.
  int64_t sum() const { return weights + cache + workspace; }
  /// The most that is held at any time.
  int64_t peak() const { return staging > cache ? weights + workspace + staging : sum(); }
};

class MachineMemory {
 public:
  virtual ~MachineMemory() = default;

  /// "GPU 0"
  virtual std::string name() const = 0;
  virtual Result<int64_t> free_bytes() const = 0;

  /// Bytes that uploads take. Code linear.unsupported for what the machine does not serve.
  virtual Result<int64_t> matrix_bytes(const MatrixShape& shape) const = 0;
  virtual int64_t vector_bytes(int64_t size) const = 0;
  /// For steps of a plan, whose weights need not be there, up to `size`.
  virtual int64_t workspace_bytes(const StepPlan& plan, const StepSize& size) const = 0;

  /// Allocates weights, staging and that workspace: uploads of so many bytes and such steps
  /// allocate nothing afterwards. Code memory.device when `need` is more than is free; the message
  /// has the numbers, and nothing was allocated.
  virtual Status reserve(const MemoryNeed& need, const StepPlan& plan, const StepSize& size) = 0;
  /// Waits for the uploads and gives back what they needed on the way.
  virtual Status finish_loading() = 0;
  /// Memory that is allocated now.
  virtual MemoryNeed held() const = 0;
};

}  // namespace subbyte
