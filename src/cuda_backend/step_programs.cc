#include "cuda_backend/step_programs.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "kernels/cuda/planning.h"
#include "kernels/cuda/step/step.h"

namespace subbyte {
namespace {

constexpr int64_t kCounterBytes = 4096;  // of splits, of kStepTokens tokens
constexpr int64_t kMostKvHeads = kCounterBytes / (4 * static_cast<int64_t>(cuda::kStepTokens));
constexpr int64_t kWordBytes = int64_t{2} << 20;  // of tagged floats
constexpr int64_t kProgramsBegin = kCounterBytes + kWordBytes;
/// Of several tokens: with more, launches are faster (docs/cuda_backend.md).
constexpr int64_t kMostInputs = 8192;
constexpr std::size_t kMostPrograms = StepPrograms::kMemoryBytes - kProgramsBegin;

template <class T>
void append(std::vector<std::byte>& to, const std::vector<T>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// Whether the rows of the weight are as the activation needs them.
bool is_served(const CudaWeight& weight, cuda::Activation activation) {
  return activation == cuda::Activation::kNone ||
         (weight.parts.size() == 1 &&
          weight.parts.front().format.row_order == cuda::RowOrder::kGateAboveUp);
}

}  // namespace

StepPrograms::StepPrograms(const cuda::Device& device, cuda::Number number, int most_tokens,
                           CudaBuffer& partials, cuda::Stream stream)
    : device_(device),
      number_(number),
      most_tokens_(most_tokens),
      partials_(partials),
      stream_(stream),
      tensors_(kWordBytes / static_cast<int64_t>(sizeof(uint32_t))) {}

Status StepPrograms::begin(const Batch& batch, const CudaStep& step) {
  step_ = &step;
  operations_.clear();
  weights_.clear();
  layout_.reset();
  norm_.reset();
  is_attention_open_ = false;
  last_result_ = nullptr;
  open_ = {};
  used_ = 0;
  have_run_ = false;
  const bool single_tokens =
      std::ranges::all_of(batch.parts, [](const Part& part) { return part.tokens.size() == 1; });
  const int64_t tokens = std::ssize(batch.parts);
  is_active_ = single_tokens && longest_row_ > 0 && !has_experts_ && tokens <= most_tokens_ &&
               (tokens == 1 || tokens * longest_row_ <= kMostInputs) &&
               cuda::StepLayout::serves(device_, tokens);
  return is_active_ ? reserve() : Status{};
}

void StepPrograms::see(const CudaWeight& weight) {
  for (const CudaMatrix& part : weight.parts) {
    if (part.is_packed) longest_row_ = std::max(longest_row_, part.cols);
  }
}

bool StepPrograms::add_norm(const Tensor& y, const Tensor& x, const Tensor& delta,
                            const Norm& norm) {
  norm_.reset();
  if (!is_active_) return false;
  if (delta.data != nullptr) {
    if (operations_.empty() || delta.data != last_result_) return false;
    operations_.back().product.residual = static_cast<float*>(x.data);
    open_.data = x.data;
    last_result_ = nullptr;
  }
  norm_ = KeptNorm{y, x, &norm};
  return true;
}

std::optional<KeptNorm> StepPrograms::take_norm(const Tensor& x) {
  if (!norm_ || norm_->y.data != x.data) return {};
  return std::exchange(norm_, {});
}

/// Before the layout of the first operation of a program.
void StepPrograms::begin_operation() {
  if (!operations_.empty()) return;
  clears_words_ = tensors_.begin_program() || clears_words_;
}

/// Says where readers find the result of the last operation. False: nowhere, so it is the last of
/// this program.
bool StepPrograms::close_result() {
  const OpenResult open = std::exchange(open_, {});
  if (open.data == nullptr) return true;
  const auto place = tensors_.write(open.data, open.words, open.first == 0);
  if (!place) return false;
  auto* const words = reinterpret_cast<uint32_t*>(memory_.data() + kCounterBytes) + place->begin;
  cuda::StepOperation& operation = operations_[open.operation];
  cuda::StepResult& result =
      operation.is_attention != 0 ? operation.attention.result : operation.product.result;
  result = {words + open.first, open.stride, place->tag};
  return true;
}

/// `kind` where it was not written in this program.
cuda::StepInput StepPrograms::input(const void* data, int64_t stride, cuda::StepInput::Kind kind,
                                    bool in_twos, bool reads_all) {
  cuda::StepInput input = {data, stride, kind, 0, in_twos ? 1 : 0};
  if (const auto place = tensors_.read(data, reads_all)) {
    input.data = reinterpret_cast<uint32_t*>(memory_.data() + kCounterBytes) + place->begin;
    input.kind = cuda::StepInput::Kind::kTagged;
    input.tag = place->tag;
  }
  return input;
}

bool StepPrograms::add_product(const ProductCall& call) {
  last_result_ = nullptr;
  if (!is_active_ || !has_room() || !is_served(*call.weight, call.activation)) return false;
  auto layout = layout_ ? layout_ : cuda::StepLayout(device_, static_cast<int>(call.x.rows));
  for (const CudaMatrix& part : call.weight->parts) {
    if (part.is_packed && layout) layout = layout->with_product(part.format, part.arguments);
    if (!part.is_packed || !layout) return false;
  }
  begin_operation();
  if (!close_result()) return false;
  layout_ = layout;
  int64_t first = 0;
  for (const CudaMatrix& part : call.weight->parts) {
    add_part(call, part, first);
    first += part.rows;
    // Of parts that are written side by side all can be tagged if the first can.
    if (&part != &call.weight->parts.back()) close_result();
  }
  const bool in_order = call.weight->parts.size() == 1 &&
                        call.weight->parts.front().format.row_order == cuda::RowOrder::kNatural;
  if (in_order && call.activation == cuda::Activation::kNone) last_result_ = call.y.data;
  return true;
}

void StepPrograms::add_part(const ProductCall& call, const CudaMatrix& part, int64_t first) {
  using Kind = cuda::StepInput::Kind;
  cuda::StepOperation operation = {};
  cuda::StepProduct& product = operation.product;
  product.weights = part.arguments;
  product.one_group = cuda::pair_is_one_group(part.format) ? 1 : 0;
  product.activation = call.activation;
  product.bias = part.bias.data();
  product.y = static_cast<uint16_t*>(call.y.data) + first;
  product.y_stride = call.y.cols;
  const bool in_twos = call.x.cols % 2 == 0 && part.arguments.gather == nullptr;
  if (norm_ && norm_->y.data == call.x.data) {
    product.x = input(norm_->x.data, norm_->x.cols, Kind::kFloats, in_twos);
    product.norm = floats_of(norm_->norm->weight);
    product.eps = norm_->norm->eps;
    product.per_col = 1.0f / static_cast<float>(part.cols);
  } else {
    product.x = input(call.x.data, call.x.cols, Kind::kNumbers, in_twos);
  }
  open_ = {call.y.data, call.y.rows * call.y.cols, call.y.cols, first, operations_.size()};
  operations_.push_back(operation);
  weights_.push_back(layout_->weights(part.format, part.arguments));
}

bool StepPrograms::add_attention(const cuda::StepAttention& attention) {
  last_result_ = nullptr;
  if (!is_active_ || !has_room() || operations_.empty()) return false;
  const bool same_type = attention.cache.element == cuda::element_of(number_);
  if (!same_type || attention.kv_heads > kMostKvHeads ||
      !cuda::StepLayout::serves(attention.heads, attention.kv_heads, attention.head_dim)) {
    return false;
  }
  const int q_per_kv = attention.heads / attention.kv_heads;
  const auto larger = layout_->with_attention(q_per_kv, attention.head_dim);
  if (!larger || !close_result()) return false;
  layout_ = larger;
  partial_bytes_ = std::max(partial_bytes_,
                            partial_bytes(attention.heads, attention.kv_heads, attention.head_dim));
  kv_heads_ = std::max<int64_t>(kv_heads_, attention.kv_heads);
  cuda::StepOperation operation = {};
  operation.is_attention = 1;
  operation.attention = attention;
  operation.attention.qkv = input(attention.qkv.data, attention.qkv.stride,
                                  cuda::StepInput::Kind::kNumbers, false, false);
  operations_.push_back(operation);
  is_attention_open_ = true;
  return true;
}

bool StepPrograms::end_attention(const Tensor& y, const float* sinks) {
  if (!std::exchange(is_attention_open_, false)) return false;
  operations_.back().attention.y = y.data;
  operations_.back().attention.sinks = sinks;
  open_ = {y.data, y.rows * y.cols, y.cols, 0, operations_.size() - 1};
  return true;
}

/// For one more operation, with the weights of all its parts.
bool StepPrograms::has_room() const {
  constexpr std::size_t kOne = 8 * (sizeof(cuda::StepOperation) + sizeof(cuda::StepWeights));
  return used_ + operations_.size() * sizeof(cuda::StepOperation) +
             weights_.size() * sizeof(cuda::StepWeights) + kOne <=
         kMostPrograms;
}

int64_t StepPrograms::partial_bytes(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  return int64_t{cuda::kStepTokens} * kv_heads * cuda::kMostStepSplits *
         cuda::step_partial_floats(static_cast<int>(heads / kv_heads), static_cast<int>(head_dim)) *
         static_cast<int64_t>(sizeof(float));
}

Status StepPrograms::reserve() {
  if (memory_.size() > 0) return {};
  SUBBYTE_CHECK(memory_.grow(kMemoryBytes));
  const cudaError_t error = cudaMemsetAsync(memory_.data(), 0, kProgramsBegin, stream_);
  if (error == cudaSuccess) return {};
  memory_ = CudaBuffer();
  return cuda_error("cuda.copy", "counters", error);
}

/// To the next place of the memory, unless the same lies there from a step before.
Result<const std::byte*> StepPrograms::upload(const std::vector<std::byte>& bytes) {
  const std::size_t begin = used_;
  std::byte* const to = memory_.data() + kProgramsBegin + begin;
  used_ += bytes.size();
  written_.resize(std::max(written_.size(), used_));
  const auto place = written_.begin() + static_cast<std::ptrdiff_t>(begin);
  if (std::equal(bytes.begin(), bytes.end(), place)) return to;
  std::ranges::copy(bytes, place);
  const cudaError_t error =
      cudaMemcpyAsync(to, &*place, bytes.size(), cudaMemcpyHostToDevice, stream_);
  if (error == cudaSuccess) return to;
  written_.resize(begin);  // whatever lies there
  return cuda_error("cuda.copy", "copy to the GPU", error);
}

Status StepPrograms::run() {
  if (operations_.empty()) return {};
  open_ = {};  // nobody reads it here
  if (clears_words_) {
    std::byte* const words = memory_.data() + kCounterBytes;
    const cudaError_t error = cudaMemsetAsync(words, 0, kWordBytes, stream_);
    if (error != cudaSuccess) return cuda_error("cuda.copy", "words", error);
    clears_words_ = false;
  }
  SUBBYTE_CHECK(partials_.grow(partial_bytes_));
  std::vector<std::byte> bytes;
  append(bytes, operations_);
  const auto weights_at = std::ssize(bytes);
  append(bytes, weights_);
  SUBBYTE_TRY(const std::byte* const memory, upload(bytes));
  cuda::StepProgram program = {};
  program.operations = reinterpret_cast<const cuda::StepOperation*>(memory);
  program.weights = reinterpret_cast<const cuda::StepWeights*>(memory + weights_at);
  program.num_operations = static_cast<int32_t>(operations_.size());
  program.num_products = static_cast<int32_t>(weights_.size());
  program.m = static_cast<int32_t>(step_->num_tokens());
  program.most_splits = layout_->most_splits(kv_heads_);
  program.places = step_->places();
  program.pages = step_->pages();
  program.base_tag = tensors_.base_tag();
  program.partials = reinterpret_cast<float*>(partials_.data());
  program.arrived_splits = reinterpret_cast<uint32_t*>(memory_.data());
  program.shared = layout_->shared();
  const cuda::PackedFormat& format = layout_->format();
  have_run_ = have_run_ || !weights_.empty();
  operations_.clear();
  weights_.clear();
  Status status = cuda::run_step(program, format, number_, device_, stream_);
  layout_.reset();
  last_result_ = nullptr;
  return status;
}

}  // namespace subbyte
