#pragma once
// How the keys of a token are divided among CTAs in a step.

#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

inline constexpr int kRunKeys = 16;  // that a warp takes at a time

/// Keys that a token sees, and how they are split. It depends on the token alone.
struct KeySplits {
  int first, last;  // keys
  int begin;        // first, at a run of 16
  int keys;         // of a split
  int count;

  __device__ KeySplits(int position, int window, int most)
      : first(window > 0 ? max(0, position - window + 1) : 0),
        last(position),
        begin(first / kRunKeys * kRunKeys) {
    const int all = last + 1 - begin;
    const int share = (all + most - 1) / most;
    keys = max(kLeastSplitKeys, (share + kRunKeys - 1) / kRunKeys * kRunKeys);
    count = (all + keys - 1) / keys;
  }
};

}  // namespace subbyte::cuda
