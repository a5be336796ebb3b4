#pragma once
// ./dev gpu-bench model: whole models with random weights on the GPU, beside its read bandwidth,
// cuBLAS and the targets of the project, in one process.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace subbyte::bench {

struct ModelSuite {
  std::vector<std::string> models;  // shapes that `subbyte synth` has
  std::vector<int64_t> batches = {8, 16, 64, 256};
  int64_t context = 16384;  // of the stream with a long one
  int rounds = 5;
  bool no_cublas = false;
  std::string folder = "build/bench-models";  // where the models are kept; 8b takes 6 GB
  int step_tokens = 8;                        // steps of at most so many are one kernel
  bool no_graphs = false;                     // steps are one kernel or launches
  int in_flight = 2;                          // steps on their way at once
  std::string json;                           // a file for the figures; empty: none
};

/// Prints a table for each model. Codes: those of synthesize, make_backend, load_model and of the
/// steps; bench.json when the file cannot be written.
Status run_model_suite(const ModelSuite& suite);

}  // namespace subbyte::bench
