#include "cuda_backend/step_graphs.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

namespace subbyte {
namespace {

constexpr std::size_t kMostKnown = 32;  // a graph of 36 layers takes some 1 MB

Error graph_error(cudaError_t error) {
  return cuda_error("cuda.launch", "a graph of a step", error);
}

}  // namespace

StepGraphs::~StepGraphs() {
  for (const Known& known : known_) {
    if (known.graph != nullptr) cudaGraphExecDestroy(known.graph);
  }
}

StepGraphs::Known& StepGraphs::add(StepShapeKey key) {
  if (known_.size() < kMostKnown) {
    known_.emplace_back();
    known_.back().key = std::move(key);
    return known_.back();
  }
  Known& oldest = *std::ranges::min_element(known_, {}, &Known::last_step);
  if (oldest.graph != nullptr) cudaGraphExecDestroy(oldest.graph);
  oldest = {};
  oldest.key = std::move(key);
  return oldest;
}

Status StepGraphs::begin(StepShapeKey key) {
  mode_ = Mode::kLaunches;
  const auto found = std::ranges::find(known_, key, &Known::key);
  const bool is_new = found == known_.end();
  current_ = is_new ? &add(std::move(key)) : &*found;
  current_->last_step = ++num_steps_;
  if (is_new) return {};
  mode_ = current_->graph == nullptr ? Mode::kCaptures : Mode::kReplays;
  if (mode_ == Mode::kReplays) return {};
  // What other threads do meanwhile is their own.
  const cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed);
  if (error == cudaSuccess) return {};
  mode_ = Mode::kLaunches;
  return graph_error(error);
}

Status StepGraphs::end(StepResults& results) {
  if (mode_ == Mode::kLaunches) return {};
  if (mode_ == Mode::kCaptures) {
    cudaGraph_t graph = nullptr;
    cudaError_t error = cudaStreamEndCapture(stream_, &graph);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&current_->graph, graph, 0);
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (error != cudaSuccess) return graph_error(error);
    current_->results = results;
  }
  results = current_->results;
  const cudaError_t error = cudaGraphLaunch(current_->graph, stream_);
  return error == cudaSuccess ? Status() : graph_error(error);
}

void StepGraphs::abandon() {
  if (mode_ != Mode::kCaptures) return;
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream_, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();  // of a capture that had failed
}

}  // namespace subbyte
