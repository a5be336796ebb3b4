#pragma once
// One model measured in a process of its own, so that its memory is its own.

#include <cstdint>
#include <filesystem>
#include <string>

#include "backends/backends.h"
#include "base/status.h"

namespace subbyte::bench {

struct ModelFigures {
  double read_bandwidth = 0;  // bytes/s, median over the rounds, 1 GiB in 2 MiB pages
  double decode_tokens = 0;   // per second, median
  double prefill_tokens = 0;  // per second, median
  double load_seconds = 0;
  double bytes_per_token = 0;   // weights, keys and values that one token reads
  double checkpoint_bytes = 0;  // of the files
  double kv_bytes = 0;
  double resident_bytes = 0;  // the most while loading and running (VmHWM)
};

struct ModelRun {
  std::filesystem::path directory;
  int threads = 0;
  DeviceOptions device = {};
  Element kv_type = Element::kF32;
  int head_bits = 16;  // as LoadOptions has it
  int rounds = 9;      // bandwidth, prefill and decode alternate this often
  int prompt = 512;    // tokens of the prefill
  int decode = 32;     // tokens of a decode
};

/// Forks, loads, measures, and brings the figures back through a pipe.
Result<ModelFigures> measure_model(const ModelRun& run);

}  // namespace subbyte::bench
