#pragma once
// How fast a checkpoint is loaded from the page cache, beside copying as many bytes.

#include <cstdint>
#include <filesystem>

#include "base/status.h"

namespace subbyte::bench {

struct LoadFigures {
  double repacked_bytes = 0;  // read and written while loading; the others are only mapped
  double mapped_bytes = 0;
  // Medians over the rounds, bytes per second of repacked_bytes.
  double load_rate = 0;  // all of load_model
  // memcpy with the same threads: from memory into memory that was written before, from memory
  // into memory that has no pages yet, and from the mapped file into such memory, whose pages a
  // loader cannot do without either.
  double copy_warm_rate = 0;
  double copy_fresh_rate = 0;
  double copy_file_rate = 0;
  double resident_bytes = 0;   // the most while loading, beyond what was resident before
  double allocated_bytes = 0;  // of repacked weights, what must stay resident
};

struct LoadRun {
  std::filesystem::path directory;
  int threads = 0;
  int rounds = 9;  // loading and the copies alternate this often, after one that is not counted
};

/// Codes: those of load_model.
Result<LoadFigures> measure_load(const LoadRun& run);

}  // namespace subbyte::bench
