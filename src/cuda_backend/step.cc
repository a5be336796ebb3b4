#include "cuda_backend/step.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/checked.h"

namespace subbyte {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr int64_t kMostKnownLayers = 4;  // a model has one or two kinds

/// Arrays that travel in one copy, each at a multiple of kAlignment.
class Packet {
 public:
  std::size_t add(std::span<const std::byte> added) {
    const std::size_t at = bytes_.size();
    bytes_.insert(bytes_.end(), added.begin(), added.end());
    bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment);
    return at;
  }
  template <class T>
  std::size_t add(const std::vector<T>& values) {
    return add(std::as_bytes(std::span(values)));
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

template <class T>
const T* array_at(const std::byte* packet, std::size_t at) {
  return reinterpret_cast<const T*>(packet + at);
}

/// The tasks of a kind of layers, and where they lie in a packet.
struct PlacedTasks {
  PlacedTasks(const cuda::AttentionLayers& of_layers, cuda::AttentionTasks of_step, Packet& packet)
      : layers(of_layers),
        tasks(std::move(of_step)),
        prompt_at(packet.add(tasks.prompt)),
        split_at(packet.add(tasks.split)),
        merge_at(packet.add(tasks.merge)) {}

  StepTasks in(const std::byte* memory) && {
    return {layers,
            array_at<cuda::AttentionTask>(memory, prompt_at),
            array_at<cuda::AttentionTask>(memory, split_at),
            array_at<cuda::MergeTask>(memory, merge_at),
            std::ssize(tasks.prompt),
            std::move(tasks.slices),
            tasks.num_partials};
  }

  cuda::AttentionLayers layers;
  cuda::AttentionTasks tasks;
  std::size_t prompt_at, split_at, merge_at;
};

void append(StepShapeKey& key, const PlacedTasks& placed) {
  const auto& [layers, tasks, prompt_at, split_at, merge_at] = placed;
  key.insert(key.end(), {layers.q_per_kv, layers.kv_heads, layers.window, std::ssize(tasks.prompt),
                         tasks.num_partials, std::ssize(tasks.slices)});
  for (const cuda::AttentionSlice& slice : tasks.slices) {
    key.insert(key.end(), {slice.num_split, slice.num_merge});
  }
}

bool has_single_tokens(const std::vector<cuda::AttentionPart>& parts) {
  return std::ranges::all_of(parts,
                             [](const cuda::AttentionPart& part) { return part.num_tokens == 1; });
}

}  // namespace

Result<std::byte*> StepBuffers::take(int64_t bytes) {
  const auto size = static_cast<int64_t>(round_up(std::max<int64_t>(bytes, 1), kAlignment));
  if (size <= reserve_.size() - reserve_used_) {
    reserve_used_ += size;
    return reserve_.data() + reserve_used_ - size;
  }
  if (used_ == buffers_.size()) buffers_.emplace_back(place_);
  CudaBuffer& buffer = buffers_[used_++];
  SUBBYTE_CHECK(buffer.grow(std::max<int64_t>(bytes, 1)));
  return buffer.data();
}

int64_t StepBuffers::size() const {
  int64_t bytes = reserve_.size();
  for (const CudaBuffer& buffer : buffers_) bytes += buffer.size();
  return bytes;
}

Result<const std::byte*> CudaStep::upload(std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  SUBBYTE_TRY(std::byte* const pinned, pinned_.take(size));
  SUBBYTE_TRY(std::byte* const to, device_.take(size));
  std::memcpy(pinned, bytes.data(), bytes.size());
  const cudaError_t error =
      cudaMemcpyAsync(to, pinned, bytes.size(), cudaMemcpyHostToDevice, stream_);
  if (error != cudaSuccess) return cuda_error("cuda.copy", "copy to the GPU", error);
  return static_cast<const std::byte*>(to);
}

Status CudaStep::begin(const Batch& batch, std::span<const std::byte> choices, bool has_tasks) {
  device_.clear();
  std::swap(pinned_, pinned_before_);
  pinned_.clear();
  parts_.clear();
  tasks_.clear();
  pool_ = &batch.parts.front().sequence->pool();
  std::vector<int32_t> tokens;
  std::vector<cuda::RowPlace> places;
  std::vector<int32_t> pages;
  std::vector<int32_t> head_rows;
  for (const Part& part : batch.parts) {
    const std::span<const int32_t> table = part.sequence->pages();
    const auto first_token = static_cast<int32_t>(tokens.size());
    const auto num_tokens = static_cast<int32_t>(part.tokens.size());
    const auto position = static_cast<int32_t>(part.sequence->length());
    parts_.push_back({first_token, num_tokens, position, static_cast<int32_t>(pages.size())});
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    pages.insert(pages.end(), table.begin(), table.end());
    for (int32_t t = 0; t < num_tokens; ++t) {
      places.push_back(
          {position + t, table[(position + t) / kKvPagePositions], parts_.back().pages_begin});
    }
    const auto num_head_rows = static_cast<int32_t>(part.num_head_rows());
    for (int32_t t = num_tokens - num_head_rows; t < num_tokens; ++t) {
      head_rows.push_back(first_token + t);
    }
  }
  num_tokens_ = std::ssize(tokens);
  num_head_rows_ = std::ssize(head_rows);
  pages.resize(std::bit_ceil(pages.size()));  // it grows, and what lies after it seldom moves
  Packet packet;
  const std::size_t tokens_at = packet.add(tokens);
  const std::size_t places_at = packet.add(places);
  const std::size_t pages_at = packet.add(pages);
  const std::size_t rows_at = packet.add(head_rows);
  const std::size_t choices_at = packet.add(choices);
  shape_key_ = {num_tokens_, num_head_rows_, std::ssize(pages), std::ssize(choices)};
  std::vector<PlacedTasks> placed;
  for (const cuda::AttentionLayers& layers : known_layers_) {
    if (!has_tasks) break;
    append(shape_key_, placed.emplace_back(layers, divide(layers), packet));
  }
  SUBBYTE_TRY(const std::byte* const memory, upload(packet.bytes()));
  tokens_ = array_at<int32_t>(memory, tokens_at);
  places_ = array_at<cuda::RowPlace>(memory, places_at);
  pages_ = array_at<int32_t>(memory, pages_at);
  head_rows_ = array_at<int32_t>(memory, rows_at);
  choices_ = memory + choices_at;
  for (PlacedTasks& one : placed) tasks_.push_back(std::move(one).in(memory));
  return {};
}

cuda::AttentionTasks CudaStep::divide(const cuda::AttentionLayers& layers) const {
  cuda::AttentionTasks tasks = batch_invariant_
                                   ? cuda::invariant_attention_tasks(parts_, layers)
                                   : cuda::attention_tasks(parts_, layers, split_ctas_);
  if (has_single_tokens(parts_)) cuda::round_up_tasks(tasks);
  return tasks;
}

Result<const StepTasks*> CudaStep::tasks(const cuda::AttentionLayers& layers) {
  for (const StepTasks& known : tasks_) {
    if (known.layers == layers) return &known;
  }
  Packet packet;
  PlacedTasks placed(layers, divide(layers), packet);
  SUBBYTE_TRY(const std::byte* const memory, upload(packet.bytes()));
  tasks_.push_back(std::move(placed).in(memory));
  if (std::ranges::find(known_layers_, layers) == known_layers_.end()) {
    if (std::ssize(known_layers_) == kMostKnownLayers) known_layers_.clear();  // of other models
    known_layers_.push_back(layers);
  }
  return &tasks_.back();
}

Result<const double*> CudaStep::frequencies(std::span<const double> inv_freq) {
  for (const Frequencies& known : frequencies_) {
    if (std::ranges::equal(known.on_host, inv_freq)) {
      return reinterpret_cast<const double*>(known.on_device.data());
    }
  }
  Frequencies made = {{inv_freq.begin(), inv_freq.end()}, CudaBuffer()};
  const std::size_t bytes = inv_freq.size_bytes();
  SUBBYTE_CHECK(made.on_device.grow(static_cast<int64_t>(bytes)));
  const cudaError_t error = cudaMemcpyAsync(made.on_device.data(), made.on_host.data(), bytes,
                                            cudaMemcpyHostToDevice, stream_);
  if (error != cudaSuccess) return cuda_error("cuda.copy", "copy to the GPU", error);
  frequencies_.push_back(std::move(made));
  return reinterpret_cast<const double*>(frequencies_.back().on_device.data());
}

}  // namespace subbyte
