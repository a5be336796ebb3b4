#pragma once
// Decoders by themselves, as fast as the GPU runs them: every multiprocessor full of warps that
// read codes from shared memory, decode, and join the registers by exclusive or. No device memory.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

namespace subbyte::bench {

constexpr int kDecodeThreads = 512;
constexpr int kDecodeBlocks = 2;  // of a multiprocessor, all of them resident
constexpr int kDecodeTileWeights = 1024;

struct DecodeCall {
  int tiles;        // that each warp decodes
  int64_t* cycles;  // that each block took
  uint32_t* sink;   // a word
  uint32_t seed;    // nothing is known when it is compiled
};

struct TimedDecoder {
  const char* name;
  int bits;
  bool is_loop;  // reads the codes and joins them, and decodes nothing
  void (*launch)(int blocks, const DecodeCall& call, cudaStream_t stream);
};

/// Those of the loop are first.
std::vector<TimedDecoder> timed_decoders();

}  // namespace subbyte::bench
