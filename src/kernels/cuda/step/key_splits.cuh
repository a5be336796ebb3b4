#pragma once
// How the keys of a token are divided among CTAs in a step.

#include "kernels/cuda/attention/key_run.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// Keys that a token sees, and how they are split: not where all warps of a CTA have one run, since
/// adding splits takes as long as a second one; then into so many that one token has many CTAs.
struct KeySplits {
  int first, last;  // keys
  int begin;        // first, at a run of 16
  int keys;         // of a split
  int count;

  __device__ KeySplits(int position, int window, int most, int tokens)
      : first(window > 0 ? max(0, position - window + 1) : 0),
        last(position),
        begin(first / kRunKeys * kRunKeys) {
    const int all = last + 1 - begin;
    const int least = tokens > 1                     ? kLeastSplitKeysOfMany
                      : all <= kStepWarps * kRunKeys ? kStepWarps * kRunKeys
                                                     : kLeastSplitKeys;
    const int share = (all + most - 1) / most;
    keys = max(least, (share + kRunKeys - 1) / kRunKeys * kRunKeys);
    count = (all + keys - 1) / keys;
  }
};

}  // namespace subbyte::cuda
