#include "cuda_backend/step_graphs.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

namespace subbyte {
namespace {

constexpr std::size_t kMaxKnown = 32;

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
  if (known_.size() < kMaxKnown) {
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
  begin_without();
  if (is_off_) return {};
  const auto found = std::ranges::find(known_, key, &Known::key);
  current_ = found == known_.end() ? &add(std::move(key)) : &*found;
  current_->last_step = ++num_steps_;
  if (!current_->has_run) return {};
  mode_ = current_->graph == nullptr ? Mode::kCaptures : Mode::kReplays;
  if (mode_ == Mode::kReplays) return {};
  epoch_ = memory_epoch();
  // What other threads do meanwhile is their own.
  const cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed);
  if (error == cudaSuccess) return {};
  mode_ = Mode::kLaunches;
  return graph_error(error);
}

void StepGraphs::capture() {
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamEndCapture(stream_, &graph);
  const bool has_moved = memory_epoch() != epoch_;  // of another model of the process, it may be
  if (error == cudaSuccess && !has_moved) error = cudaGraphInstantiate(&current_->graph, graph, 0);
  if (error != cudaSuccess) {
    current_->graph = nullptr;
    is_off_ = true;
    cudaGetLastError();  // the step goes on without it
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
}

Result<bool> StepGraphs::end(StepResults& results) {
  if (mode_ == Mode::kLaunches) {
    if (current_ != nullptr) current_->has_run = true;
    return true;
  }
  if (mode_ == Mode::kCaptures) {
    capture();
    current_->results = results;
  }
  if (current_->graph == nullptr) {
    mode_ = Mode::kLaunches;
    return false;
  }
  results = current_->results;
  const cudaError_t error = cudaGraphLaunch(current_->graph, stream_);
  if (error == cudaSuccess) return true;
  is_off_ = true;
  cudaGetLastError();  // told here
  return graph_error(error);
}

void StepGraphs::abandon() {
  if (mode_ != Mode::kCaptures) return;
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream_, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();  // of a capture that had failed
}

}  // namespace subbyte
