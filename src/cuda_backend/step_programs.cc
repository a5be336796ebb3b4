#include "cuda_backend/step_programs.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda/planning.h"
#include "kernels/cuda/step/step.h"

namespace subbyte {
namespace {

using Kind = cuda::StepInput::Kind;

constexpr int64_t kCounterBytes = 4096;           // of splits, of kStepTokens tokens
constexpr int64_t kWordBytes = int64_t{2} << 20;  // of tagged floats
constexpr int64_t kTablesBegin = kCounterBytes + kWordBytes;

template <class T>
void append(std::vector<std::byte>& to, const std::vector<T>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// Writes the tables of programs, given where everything lies.
class Binder {
 public:
  Binder(const StepPlan& plan, const ValueSlots& slots, const SlotPointers& pointers,
         std::byte* words, const CudaAttention& attention)
      : plan_(plan), slots_(slots), pointers_(pointers), words_(words), attention_(attention) {}

  cuda::StepOperation bind(const ProgramProduct& p) const {
    const cuda::WeightArguments& weights = p.matrix->arguments();
    cuda::StepOperation operation = {};
    cuda::StepProduct& product = operation.product;
    product.weights = weights;
    product.one_group = cuda::pair_is_one_group(p.matrix->format()) ? 1 : 0;
    product.activation = p.activation;
    product.bias = p.matrix->bias.data();
    product.x = input(p.x, p.norm != nullptr ? Kind::kFloats : Kind::kNumbers);
    product.x.in_twos = plan_.value(p.x.value).cols % 2 == 0 && weights.gather == nullptr ? 1 : 0;
    if (p.norm != nullptr) {
      product.norm = floats_of(p.norm->weight);
      product.eps = p.norm->eps;
      product.per_col = 1.0f / static_cast<float>(p.matrix->cols());
    }
    const bool adds = p.residual != kNoValue;
    const int64_t cols = plan_.value(adds ? p.residual : p.y).cols;
    if (adds) {
      product.residual = reinterpret_cast<float*>(at(p.residual));
    } else {
      product.y = reinterpret_cast<uint16_t*>(at(p.y)) + p.first;
    }
    product.y_stride = cols;
    product.result = result(p.result, p.first, cols);
    return operation;
  }

  cuda::StepOperation bind(const ProgramAttention& a) const {
    const auto& rotate = *plan_.as<RotateOp>(a.rotate);
    const auto& attend = *plan_.as<AttendOp>(a.attend);
    cuda::StepOperation operation = {};
    operation.is_attention = 1;
    operation.attention = attention_.of_program(rotate, reinterpret_cast<float*>(at(rotate.cos)),
                                                reinterpret_cast<float*>(at(rotate.sin)),
                                                2 * plan_.value(rotate.cos).cols);
    operation.attention.qkv = input(a.qkv, Kind::kNumbers);
    operation.attention.y = at(a.y);
    operation.attention.sinks = floats_of(attend.sinks);
    operation.attention.result = result(a.result, 0, plan_.value(a.y).cols);
    return operation;
  }

 private:
  using Place = std::optional<cuda::StepTensors::Place>;

  std::byte* at(ValueId id) const { return pointers_[slots_.slot_of[id]]; }

  uint32_t* tagged(const Place& place) const {
    return reinterpret_cast<uint32_t*>(words_) + place->begin;
  }

  /// `kind` where it was not written in this program.
  cuda::StepInput input(const ProgramInput& from, Kind kind) const {
    const int64_t stride = plan_.value(from.value).cols;
    if (from.tagged) return {tagged(from.tagged), stride, Kind::kTagged, from.tagged->tag, 0};
    return {at(from.value), stride, kind, 0, 0};
  }

  cuda::StepResult result(const Place& place, int64_t first, int64_t stride) const {
    if (!place) return {};
    return {tagged(place) + first, stride, place->tag};
  }

  const StepPlan& plan_;
  const ValueSlots& slots_;
  const SlotPointers& pointers_;
  std::byte* words_;
  const CudaAttention& attention_;
};

}  // namespace

ProgramLimits StepPrograms::limits() {
  ProgramLimits limits;
  limits.words = kWordBytes / int64_t{sizeof(uint32_t)};
  limits.bytes = kMemoryBytes - kTablesBegin;
  limits.kv_heads = kCounterBytes / (4 * int64_t{cuda::kStepTokens});
  limits.max_inputs = 8192;  // with more, launches are faster (docs/cuda_backend.md)
  return limits;
}

int64_t StepPrograms::partial_bytes(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  return int64_t{cuda::kStepTokens} * kv_heads * cuda::kMaxStepSplits *
         cuda::step_partial_floats(static_cast<int>(heads / kv_heads), static_cast<int>(head_dim)) *
         static_cast<int64_t>(sizeof(float));
}

Status StepPrograms::reserve() {
  if (memory_.size() > 0) return {};
  SUBBYTE_CHECK(memory_.grow(kMemoryBytes));
  const cudaError_t error = cudaMemsetAsync(memory_.data(), 0, kTablesBegin, stream_);
  if (error == cudaSuccess) return {};
  memory_ = CudaBuffer();
  return cuda_error("cuda.copy", "counters", error);
}

Status StepPrograms::bind(const Schedule& schedule, const StepPlan& plan, const ValueSlots& slots,
                          const SlotPointers& pointers, const CudaAttention& attention) {
  SUBBYTE_CHECK(reserve());
  const Binder binder(plan, slots, pointers, memory_.data() + kCounterBytes, attention);
  tables_.clear();
  std::vector<std::byte> bytes;
  for (const auto& item : schedule.items) {
    const auto* const program = std::get_if<ScheduledProgram>(&item);
    if (program == nullptr) continue;
    std::vector<cuda::StepOperation> operations;
    std::vector<cuda::StepWeights> weights;
    for (const auto& op : program->ops) {
      operations.push_back(std::visit([&](const auto& one) { return binder.bind(one); }, op));
      if (const auto* const product = std::get_if<ProgramProduct>(&op)) {
        const CudaMatrix& matrix = *product->matrix;
        weights.push_back(program->layout.weights(matrix.format(), matrix.arguments()));
      }
    }
    const std::size_t begin = bytes.size();
    append(bytes, operations);
    tables_.push_back({begin, bytes.size()});
    append(bytes, weights);
    SUBBYTE_CHECK(partials_.grow(program->partial_bytes));
  }
  if (bytes.size() <= written_.size() &&
      std::memcmp(bytes.data(), written_.data(), bytes.size()) == 0) {
    return {};
  }
  written_ = std::move(bytes);
  const cudaError_t error = cudaMemcpyAsync(memory_.data() + kTablesBegin, written_.data(),
                                            written_.size(), cudaMemcpyHostToDevice, stream_);
  if (error == cudaSuccess) return {};
  written_.clear();  // whatever lies there
  return cuda_error("cuda.copy", "copy to the GPU", error);
}

Status StepPrograms::run(const ScheduledProgram& program, std::size_t index, const CudaStep& step) {
  const cuda::StepTags::Base base = tags_.begin_program(program.tags);
  if (base.clears) {
    std::byte* const words = memory_.data() + kCounterBytes;
    const cudaError_t error = cudaMemsetAsync(words, 0, kWordBytes, stream_);
    if (error != cudaSuccess) return cuda_error("cuda.copy", "words", error);
  }
  const std::byte* const tables = memory_.data() + kTablesBegin;
  cuda::StepProgram call = {};
  call.operations =
      reinterpret_cast<const cuda::StepOperation*>(tables + tables_[index].operations);
  call.weights = reinterpret_cast<const cuda::StepWeights*>(tables + tables_[index].weights);
  call.num_operations = static_cast<int32_t>(program.ops.size());
  call.num_products = program.num_products;
  call.m = static_cast<int32_t>(step.num_tokens());
  call.max_splits = program.layout.max_splits(program.kv_heads);
  if (step.num_groups() > 0) {  // attention of a program is over the only one
    call.places = step.places(0);
    call.pages = step.pages(0);
  }
  call.base_tag = base.tag;
  call.partials = reinterpret_cast<float*>(partials_.data());
  call.arrived_splits = reinterpret_cast<uint32_t*>(memory_.data());
  call.shared = program.layout.shared();
  return cuda::run_step(call, program.layout.format(), number_, device_, stream_);
}

}  // namespace subbyte
