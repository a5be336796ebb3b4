#pragma once
// Time of launches on a GPU: captured into a graph, replayed, medians.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace subbyte::bench {

/// A benchmark that goes on after an error measures nothing.
inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "subbyte_gpu_bench: %s: %s\n", what, cudaGetErrorString(error));
  std::_Exit(1);  // other threads may be at work
}

/// Microseconds of one of `calls` launches, each made by launch(i): the median of `replays` replays
/// of a graph of them all.
inline double time_calls(int calls, int replays, cudaStream_t stream,
                         const std::function<void(int)>& launch) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < calls; ++i) launch(i);
  must(cudaStreamEndCapture(stream, &graph), "capture");
  must(cudaGraphInstantiate(&executable, graph, 0), "graph");
  cudaEvent_t begin;
  cudaEvent_t end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < replays + 2; ++i) {  // two to warm up
    must(cudaEventRecord(begin, stream), "event");
    must(cudaGraphLaunch(executable, stream), "graph");
    must(cudaEventRecord(end, stream), "event");
    must(cudaEventSynchronize(end), "launch");
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    if (i >= 2) times.push_back(milliseconds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return 1e3 * times[times.size() / 2] / calls;
}

}  // namespace subbyte::bench
