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

/// What a group of the cache has of a batch, and where it lies in a packet.
struct GroupOfBatch {
  std::vector<cuda::AttentionPart> parts;
  std::vector<cuda::RowPlace> places;
  std::vector<int32_t> pages;
  std::size_t longest = 1;  // table of a sequence
  std::vector<cuda::StatePart> states;
  std::size_t places_at = 0, pages_at = 0, states_at = 0;

  GroupOfBatch(const Batch& batch, int32_t group, bool is_state) {
    int32_t first_token = 0;
    for (const Part& part : batch.parts) {
      const Sequence& sequence = *part.sequence;
      const auto num_tokens = static_cast<int32_t>(part.tokens.size());
      if (is_state) {
        states.push_back(
            {first_token, num_tokens, sequence.state(group), sequence.next_state(group)});
      } else {
        add_pages(sequence, group, first_token, num_tokens);
      }
      first_token += num_tokens;
    }
    // Both grow seldom, and what lies after the pages seldom moves.
    pages.resize(std::bit_ceil(pages.size()));
    longest = std::bit_ceil(longest);
  }

  void add_to(Packet& packet, StepShapeKey& key) {
    places_at = packet.add(places);
    pages_at = packet.add(pages);
    states_at = packet.add(states);
    key.insert(key.end(), {std::ssize(pages), static_cast<int64_t>(longest)});
  }

 private:
  void add_pages(const Sequence& sequence, int32_t group, int32_t first_token, int32_t num_tokens) {
    const std::span<const int32_t> table = sequence.pages(group);
    const auto position = static_cast<int32_t>(sequence.length());
    parts.push_back({first_token, num_tokens, position, static_cast<int32_t>(pages.size())});
    pages.insert(pages.end(), table.begin(), table.end());
    longest = std::max(longest, table.size());
    for (int32_t t = position; t < position + num_tokens; ++t) {
      places.push_back({t, table[t / kPagePositions], parts.back().pages_begin});
    }
  }
};

/// The tasks of a kind of attention, and where they lie in a packet.
struct PlacedTasks {
  PlacedTasks(const AttentionKind& of_kind, DividedAttention divided, Packet& packet)
      : kind(of_kind),
        has_wgmma(divided.has_wgmma),
        tasks(std::move(divided.tasks)),
        prompts(std::move(divided.prompts)),
        expanded(cuda::expanded_tasks(prompts, kind.latents).prompt),
        prompt_at(packet.add(tasks.prompt)),
        split_at(packet.add(tasks.split)),
        merge_at(packet.add(tasks.merge)),
        expanded_at(packet.add(expanded)),
        pages_at(packet.add(prompts.pages)) {}

  StepTasks in(const std::byte* memory) && {
    return {kind,
            array_at<cuda::AttentionTask>(memory, prompt_at),
            array_at<cuda::AttentionTask>(memory, split_at),
            array_at<cuda::MergeTask>(memory, merge_at),
            std::ssize(tasks.prompt),
            has_wgmma,
            std::move(tasks.slices),
            tasks.num_partials,
            {array_at<cuda::AttentionTask>(memory, expanded_at),
             array_at<cuda::ExpandedPage>(memory, pages_at), std::ssize(expanded),
             std::ssize(prompts.pages), std::move(prompts.rows)}};
  }

  void add_to(StepShapeKey& key) const {
    key.insert(key.end(), {std::ssize(tasks.prompt), tasks.num_partials, std::ssize(tasks.slices)});
    for (const cuda::AttentionSlice& slice : tasks.slices) {
      key.insert(key.end(), {slice.num_split, slice.num_merge});
    }
  }

  AttentionKind kind;
  bool has_wgmma;
  cuda::AttentionTasks tasks;
  cuda::ExpandedParts prompts;
  std::vector<cuda::AttentionTask> expanded;
  std::size_t prompt_at, split_at, merge_at, expanded_at, pages_at;
};

}  // namespace

bool has_single_tokens(const Batch& batch) {
  return std::ranges::all_of(batch.parts, [](const Part& part) { return part.tokens.size() == 1; });
}

Result<std::byte*> StepBuffers::take(int64_t bytes) {
  const auto size = static_cast<int64_t>(round_up(std::max<int64_t>(bytes, 1), kAlignment));
  if (size <= reserve_.size() - reserve_used_) {
    reserve_used_ += size;
    return reserve_.data() + reserve_used_ - size;
  }
  if (used_ == buffers_.size()) buffers_.emplace_back(*memory_);
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

Status CudaStep::begin(const Batch& batch, std::span<const std::byte> choices,
                       std::span<const AttentionKind> kinds) {
  device_.clear();
  std::swap(pinned_, pinned_before_);
  pinned_.clear();
  tasks_.clear();
  groups_.clear();
  pool_ = &batch.parts.front().sequence->pool();
  std::vector<int32_t> tokens;
  std::vector<int32_t> head_rows;
  std::vector<uint8_t> are_long;  // of each token whether its text is, where that decides
  for (const Part& part : batch.parts) {
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    if (pool_->layout().long_after > 0) are_long.resize(tokens.size(), part.sequence->is_long());
    for (int64_t rows = part.num_head_rows(); rows > 0; --rows) {
      head_rows.push_back(static_cast<int32_t>(std::ssize(tokens) - rows));
    }
  }
  num_parts_ = std::ssize(batch.parts);
  num_tokens_ = std::ssize(tokens);
  num_head_rows_ = std::ssize(head_rows);
  shape_key_ = {num_parts_, num_tokens_, num_head_rows_, std::ssize(choices)};
  Packet packet;
  const std::size_t tokens_at = packet.add(tokens);
  std::vector<GroupOfBatch> groups;
  for (const KvGroup& group : pool_->groups()) {
    const auto index = static_cast<int32_t>(groups.size());
    groups.emplace_back(batch, index, group.layout().is_state()).add_to(packet, shape_key_);
  }
  const std::size_t rows_at = packet.add(head_rows);
  const std::size_t long_at = packet.add(are_long);
  const std::size_t choices_at = packet.add(choices);
  const TaskRules rules = {
      batch_invariant_, batch.observer != nullptr, element_, pool_->type(), split_ctas_, gpu_};
  std::vector<PlacedTasks> placed;
  for (const AttentionKind& kind : kinds) {
    const GroupOfBatch& group = groups[kind.group];
    placed.emplace_back(kind, divide_attention({group.parts, group.pages}, kind, rules), packet)
        .add_to(shape_key_);
  }
  SUBBYTE_TRY(const std::byte* const memory, upload(packet.bytes()));
  tokens_ = array_at<int32_t>(memory, tokens_at);
  head_rows_ = array_at<int32_t>(memory, rows_at);
  are_long_ = array_at<uint8_t>(memory, long_at);
  choices_ = memory + choices_at;
  for (const GroupOfBatch& group : groups) {
    groups_.push_back({array_at<cuda::RowPlace>(memory, group.places_at),
                       array_at<int32_t>(memory, group.pages_at),
                       array_at<cuda::StatePart>(memory, group.states_at),
                       static_cast<int64_t>(group.longest)});
  }
  for (PlacedTasks& one : placed) tasks_.push_back(std::move(one).in(memory));
  return {};
}

const cuda::RowPlace* CudaStep::positions() const {
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    if (!pool_->groups()[group].layout().is_state()) return groups_[group].places;
  }
  return nullptr;
}

const StepTasks& CudaStep::tasks(const AttentionKind& kind) const {
  return *std::ranges::find(tasks_, kind, &StepTasks::kind);
}

std::vector<cuda::ExpandedRows> CudaStep::expanded_rows(const cuda::ExpandedSizes& latents) const {
  const auto known = std::ranges::find_if(
      tasks_, [&](const StepTasks& tasks) { return tasks.kind.latents == latents; });
  if (latents.heads > 0 && known != tasks_.end()) return known->expansion.rows;
  return {{.first = 0, .count = num_tokens_, .are_expanded = false}};
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
