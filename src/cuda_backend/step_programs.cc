#include "cuda_backend/step_programs.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cuda_backend/experts.h"
#include "kernels/cuda/attention/attend_tokens.h"
#include "kernels/cuda/exchange/peer_sum.h"
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
         std::byte* words, const CudaAttention& attention, const CudaDeltaNets& delta_nets)
      : plan_(plan),
        slots_(slots),
        pointers_(pointers),
        words_(words),
        attention_(attention),
        delta_nets_(delta_nets) {}

  cuda::StepOperation bind(const ProgramProduct& p) const {
    cuda::StepOperation operation = {};
    cuda::StepProduct& product = operation.product;
    product.weights = p.stacked().all_of(p.arguments());
    product.one_group = cuda::pair_is_one_group(p.format()) ? 1 : 0;
    product.activation = p.activation;
    product.swiglu = p.swiglu;
    if (p.matrix != nullptr) product.bias = p.matrix->bias.data();
    product.x = input(p.x, p.norm != nullptr ? Kind::kFloats : Kind::kNumbers);
    product.x.in_twos = product.x.stride % 2 == 0 && product.weights.gather == nullptr ? 1 : 0;
    if (p.norm != nullptr) {
      product.norm = floats_of(p.norm->weight);
      product.eps = p.norm->eps;
      product.per_col = 1.0f / static_cast<float>(product.weights.cols);
    }
    const bool adds = p.residual != kNoValue;
    const ValueId to = adds ? p.residual : p.y;
    const int64_t cols = to == kNoValue ? 0 : plan_.value(to).cols;
    if (adds) {
      product.residual = reinterpret_cast<float*>(at(p.residual));
    } else if (to != kNoValue) {
      product.y = reinterpret_cast<uint16_t*>(at(p.y)) + p.first;
    }
    product.y_stride = cols;
    product.exchange = p.exchange;
    product.result = result(p.result, p.first, cols);
    if (p.experts && p.experts->stacked.order == cuda::StackedExperts::Order::kRows) {
      product.experts = experts(*p.experts);
    }
    return operation;
  }

  cuda::StepOperation bind(const ProgramRouter& r) const {
    cuda::StepOperation operation = {};
    operation.kind = cuda::StepOperation::Kind::kRouter;
    cuda::StepRouter& router = operation.router;
    const device::PackedMatrix& weights = *r.matrix->weights;
    router.x = input(r.x, Kind::kFloats);
    router.norm = floats_of(r.norm->weight);
    router.eps = r.norm->eps;
    router.per_col = 1.0f / static_cast<float>(r.matrix->cols());
    router.weights = weights.memory().data();
    router.bias = reinterpret_cast<const float*>(r.matrix->bias.data());
    router.element = weights.element();
    router.rows = static_cast<int32_t>(r.matrix->rows());
    if (r.gate != nullptr) {
      router.last = r.gate->weights->memory().data();
      ++router.rows;
    }
    router.cols = static_cast<int32_t>(r.matrix->cols());
    router.first_cta = static_cast<int32_t>(r.first_cta);
    router.result = result(r.result, 0, router.rows);
    return operation;
  }

  cuda::StepOperation bind(const ProgramDeltaNet& d) const {
    cuda::StepOperation operation = {};
    operation.kind = cuda::StepOperation::Kind::kDeltaNet;
    cuda::StepDeltaNet& made = operation.delta_net;
    made.net = delta_nets_.of_program(*plan_.as<DeltaNetOp>(d.op));
    made.net.y = at(d.y);
    made.qkvz = input(d.qkvz, Kind::kNumbers);
    made.ba = input(d.ba, Kind::kNumbers);
    made.result = result(d.result, 0, plan_.value(d.y).cols);
    return operation;
  }

  cuda::StepOperation bind(const ProgramAttention& a) const {
    const auto& rotate = *plan_.as<RotateOp>(a.rotate);
    const auto& attend = *plan_.as<AttendOp>(a.attend);
    cuda::StepOperation operation = {};
    operation.kind = cuda::StepOperation::Kind::kAttention;
    operation.attention = attention_.of_program(rotate, reinterpret_cast<float*>(at(rotate.cos)),
                                                reinterpret_cast<float*>(at(rotate.sin)),
                                                2 * plan_.value(rotate.cos).cols);
    operation.attention.is_gated = a.is_gated ? 1 : 0;
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

  /// What gate and up have besides, whose factors those of down are among.
  cuda::StepExperts experts(const ProgramExperts& e) const {
    const auto& op = *plan_.as<ExpertsOp>(e.op);
    const auto& mixture = *static_cast<const CudaExperts*>(op.experts.storage.get());
    const int64_t experts = mixture.down.weights->count();
    cuda::StepExperts made = {};
    made.choice = {experts, mixture.top_k, op.router.rule, floats_of(op.router.biases),
                   floats_of(op.router.factors)};
    made.logits = {tagged(e.logits), experts, Kind::kTagged, e.logits->tag, 0};
    cuda::ExpertsCall gate_up;
    cuda::ExpertsCall down;
    mixture.gate_up.weights->set(gate_up);
    mixture.down.weights->set(down);
    made.gains = gate_up.gains;
    made.up_gains = gate_up.up_gains != nullptr ? gate_up.up_gains : gate_up.gains;
    made.down_gains = down.gains;
    if (e.shared.gate_up != nullptr) {
      const cuda::WeightArguments& of_shared = e.shared.gate_up->arguments();
      made.shared = {0, static_cast<int32_t>(experts), of_shared.gain, of_shared.up_gain};
      made.shared_down_gain = e.shared.down->arguments().gain;
      made.has_gate = e.shared.gate != nullptr ? 1 : 0;
    }
    made.per_strips = cuda::per_of(static_cast<uint32_t>(e.matrices->format().strips));
    return made;
  }

  /// `kind` where it was not written in this program. What is no value of the plan was.
  cuda::StepInput input(const ProgramInput& from, Kind kind) const {
    const int64_t stride = from.value == kNoValue ? 0 : plan_.value(from.value).cols;
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
  const CudaDeltaNets& delta_nets_;
};

}  // namespace

ProgramLimits StepPrograms::limits() {
  ProgramLimits limits;
  limits.words = kWordBytes / int64_t{sizeof(uint32_t)};
  limits.bytes = kMemoryBytes - kTablesBegin;
  limits.kv_heads = kCounterBytes / (4 * int64_t{cuda::kStepTokens});
  limits.max_inputs = 8192;  // with more, launches are faster (docs/cuda_backend.md)
  limits.max_summed = cuda::PeerLayout::kStepNumbers;
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
                          const SlotPointers& pointers, const CudaAttention& attention,
                          const CudaDeltaNets& delta_nets) {
  SUBBYTE_CHECK(reserve());
  const Binder binder(plan, slots, pointers, memory_.data() + kCounterBytes, attention, delta_nets);
  tables_.clear();
  std::vector<std::byte> bytes;
  for (const auto& item : schedule.items) {
    const auto* const program = std::get_if<ScheduledProgram>(&item);
    if (program == nullptr) continue;
    std::vector<cuda::StepOperation> operations;
    std::vector<cuda::StepWeights> weights;
    int num_choices = 0;
    for (const auto& op : program->ops) {
      operations.push_back(std::visit([&](const auto& one) { return binder.bind(one); }, op));
      if (const auto* const product = std::get_if<ProgramProduct>(&op)) {
        weights.push_back(
            program->layout.weights(product->format(), product->arguments(), product->stacked()));
        if (weights.back().chooses != 0) weights.back().chooses += num_choices++ % 2;
      }
    }
    const std::size_t begin = bytes.size();
    append(bytes, operations);
    tables_.push_back({begin, bytes.size()});
    append(bytes, weights);
    SUBBYTE_CHECK(partials_.grow(program->partial_bytes));
    SUBBYTE_CHECK(cuda::load_step(program->layout.format(), number_, program->layout.is_full()));
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

/// No rank has words of the others to read while its own are filled, and none sends some before
/// all are: a sum before that and one after it, of counters that are zero between programs.
Result<uint32_t> StepPrograms::begin_rounds(uint32_t rounds) {
  const cuda::StepRounds::Base base = rounds_.begin_program(rounds);
  if (!base.fill) return base.round;
  const cuda::PeerSumCall zeros = {memory_.data(), memory_.data(), 4, Element::kF32};
  cuda::run_peer_sum(zeros, peers_, stream_);
  const int64_t begin = cuda::PeerLayout::sums(0, 0, peers_.ranks);
  const auto bytes = static_cast<std::size_t>(cuda::PeerLayout::bytes(peers_.ranks) - begin);
  const cudaError_t error =
      cudaMemsetAsync(peers_.memory[peers_.rank] + begin, *base.fill, bytes, stream_);
  if (error != cudaSuccess) return cuda_error("cuda.copy", "words of ranks", error);
  cuda::run_peer_sum(zeros, peers_, stream_);
  return base.round;
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
  if (program.key_group >= 0) {
    call.places = step.places(program.key_group);
    call.pages = step.pages(program.key_group);
  }
  if (program.state_group >= 0) call.state = step.states(program.state_group);
  call.base_tag = base.tag;
  call.partials = reinterpret_cast<float*>(partials_.data());
  call.arrived_splits = reinterpret_cast<uint32_t*>(memory_.data());
  call.peers = peers_;
  SUBBYTE_TRY(call.base_round, begin_rounds(program.exchanges));
  call.shared = program.layout.shared();
  call.is_full = program.layout.is_full() ? 1 : 0;
  return cuda::run_step(call, program.layout.format(), number_, device_, stream_);
}

Status StepPrograms::attend(const cuda::StepAttention& attention, int32_t group,
                            const CudaStep& step) {
  SUBBYTE_CHECK(reserve());
  const int kv_heads = attention.kv_heads;
  const int q_per_kv = attention.heads / kv_heads;
  SUBBYTE_CHECK(partials_.grow(partial_bytes(attention.heads, kv_heads, attention.head_dim)));
  const cuda::StepLayout layout(device_, static_cast<int>(step.num_tokens()));
  cuda::StepProgram call = {};
  call.m = static_cast<int32_t>(step.num_tokens());
  call.max_splits = layout.max_splits(kv_heads);
  call.places = step.places(group);
  call.pages = step.pages(group);
  call.partials = reinterpret_cast<float*>(partials_.data());
  call.arrived_splits = reinterpret_cast<uint32_t*>(memory_.data());
  call.shared = layout.with_attention(q_per_kv, attention.head_dim)->shared();
  cuda::run_attend_tokens(call, attention, cuda::element_of(number_), device_.multiprocessors,
                          stream_);
  return {};
}

}  // namespace subbyte
