#include "cuda_backend/step_runner.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/float16.h"
#include "cuda_backend/kv_memory.h"
#include "kernels/cuda/attention/latent.h"
#include "kernels/cuda/elementwise/columns.h"
#include "kernels/cuda/elementwise/embed.h"
#include "kernels/cuda/elementwise/gates.h"

namespace subbyte {
namespace {

static_assert(pending_token(1) == -3, "as cuda::EmbedCall has it");

/// Tells caches apart; nullptr of one that keeps nothing.
const KvMemory* memory_of(const KvPool& pool) {
  return pool.groups().empty() ? nullptr : &pool.groups().front().memory();
}

const uint32_t* lost_flag(const cuda::PeerGroup& peers) {
  if (peers.ranks == 1) return nullptr;
  return reinterpret_cast<const uint32_t*>(peers.memory[peers.rank] + cuda::PeerLayout::kLost);
}

Error unsupported(const Op& op, std::string_view message) {
  return {"linear.unsupported", op.name + ": " + std::string(message)};
}

/// The operation that puts the logits of all ranks together; nullptr: each has all.
const AllGatherOp* head_gather(const StepPlan& plan) {
  const auto* const gather = plan.as<AllGatherOp>(std::ssize(plan.ops) - 2);
  const auto* const last = std::get_if<LogitsOp>(&plan.ops.back().what);
  const bool is_of_head = gather != nullptr && last != nullptr && gather->y == last->logits;
  return is_of_head ? gather : nullptr;
}

}  // namespace

const Schedule& CudaCompiledStep::programs(int64_t tokens, bool attends,
                                           const cuda::Device& device) const {
  const auto key = std::pair(tokens, attends);
  auto known = programs_.find(key);
  if (known == programs_.end()) {
    Schedule made =
        schedule_programs(plan(), slots_, tokens, attends, device, StepPrograms::limits());
    known = programs_.emplace(key, std::move(made)).first;
  }
  return known->second;
}

CudaStepRunner::CudaStepRunner(const cuda::Device& device, cuda::Number number,
                               const StepRunnerOptions& options, cuda::Stream stream)
    : device_(device),
      number_(number),
      options_(options),
      stream_(stream),
      step_(stream, cuda::element_of(number), options.batch_invariant,
            int64_t{2} * device.multiprocessors,
            {device.compute_capability == 90, device.multiprocessors}, options.peers.rank),
      products_(number, {options.batch_invariant, options.fp8_activations}, stream),
      moe_(device, number, options.batch_invariant, options.mxfp8_experts, stream),
      attention_(element(), step_, partials_, expansion_, stream),
      delta_nets_(device, element(), step_, stream),
      programs_(device, number, options.peers, partials_, stream),
      graphs_(stream) {}

Status CudaStepRunner::check_operations(const StepPlan& plan) {
  for (const Op& op : plan.ops) {
    const auto* const attend = std::get_if<AttendOp>(&op.what);
    const int64_t values = attend == nullptr ? 0 : attend->shape.values_in_keys;
    if (values % 16 != 0 || values > cuda::kMaxLatentValue) {
      return unsupported(op, "values of latents that are no multiples of 16 up to 512");
    }
    const auto* const select = std::get_if<SelectOp>(&op.what);
    if (select != nullptr && !CudaAttention::supports(*select)) {
      return unsupported(op,
                         "more than 128 heads that select, or of other than multiples of 16 "
                         "numbers up to 128");
    }
    const auto* const net = std::get_if<DeltaNetOp>(&op.what);
    const Status supported = net == nullptr ? Status() : CudaDeltaNets::check(net->shape);
    if (!supported.ok()) return unsupported(op, supported.error().message);
  }
  return {};
}

Status CudaStepRunner::check(const StepPlan& plan) const {
  SUBBYTE_CHECK(check_operations(plan));
  for (const Op& op : plan.ops) {
    SUBBYTE_CHECK(check_exchange(plan, op));
    const auto* const heads = std::get_if<HeadsLinearOp>(&op.what);
    if (heads && !is_one_dense(heads->weight)) return unsupported(op, "expected a dense matrix");
    if (const auto* embed = std::get_if<EmbedOp>(&op.what)) {
      const std::vector<CudaMatrix>& parts = cuda_weight(embed->table).parts;
      if (parts.size() != 1) return unsupported(op, "expected a table of one matrix");
      const CudaMatrix& table = parts.front();
      if (!table.is_dense() && !cuda::is_embeddable(table.format().decoder)) {
        return unsupported(op,
                           "the GPU looks up rows of integers, nf4, kbit, vq, f32, f16 and "
                           "bf16, not of " +
                               to_string(table.format().source));
      }
    }
  }
  return {};
}

Status CudaStepRunner::reserve(const CudaWorkspace& workspace) {
  SUBBYTE_CHECK(step_.reserve(workspace.tensors));
  SUBBYTE_CHECK(products_.reserve(workspace.products, workspace.results));
  SUBBYTE_CHECK(partials_.grow(workspace.partials));
  SUBBYTE_CHECK(expansion_.grow(workspace.expansion));
  SUBBYTE_CHECK(programs_.reserve());
  SUBBYTE_CHECK(delta_nets_.reserve(workspace.delta_nets));
  return moe_.reserve(workspace.experts);
}

int64_t CudaStepRunner::device_bytes() const {
  return step_.device_bytes() + products_.device_bytes() + programs_.device_bytes() +
         moe_.device_bytes() + partials_.size() + expansion_.size() + delta_nets_.device_bytes();
}

std::string CudaStepRunner::last_step() const {
  if (num_programs_run_ > 0) return "one kernel";
  if (has_expanded_) return "launches, latents expanded";
  const std::string way = graphs_.is_graph() ? "a graph" : "launches";
  return attends_at_once_ ? way + ", attention at once" : way;
}

Status CudaStepRunner::prepare(const CudaCompiledStep& step, const Batch& batch, bool by_programs) {
  compiled_ = &step;
  plan_ = &step.plan();
  slots_ = &step.slots();
  batch_ = &batch;
  results_ = {nullptr, plan_->vocab_size(), nullptr, lost_flag(options_.peers)};
  num_programs_run_ = 0;
  has_expanded_ = false;
  graphs_.begin_without();
  const AllGatherOp* const head = head_gather(*plan_);
  choices_.begin(batch, head == nullptr ? 1 : options_.peers.ranks, batch.observer != nullptr);
  schedule_ = by_programs                 ? &programs_of(step, batch)
              : batch.observer != nullptr ? &step.observed()
                                          : &step.launches();
  attends_at_once_ =
      !step.kinds().empty() && attends_tokens() && !schedule_->launches_attention(*plan_);
  SUBBYTE_CHECK(step_.begin(batch, choices_.packet(),
                            attends_at_once_ ? std::vector<AttentionKind>() : step.kinds()));
  SUBBYTE_CHECK(take_values());
  const int rank = options_.peers.rank;
  SUBBYTE_CHECK(choices_.prepare(step_, plan_->vocab_size(),
                                 head == nullptr ? ColumnRange() : head->parts[rank].front(),
                                 rank));
  SUBBYTE_CHECK(receive(batch));
  SUBBYTE_CHECK(take_sent());
  return schedule_->has_programs() ? bind_programs(step, *schedule_) : Status();
}

Status CudaStepRunner::launch(StepResults& results) {
  const bool may_repeat = options_.step_graphs && batch_->observer == nullptr &&
                          !schedule_->has_programs() && has_single_tokens(*batch_);
  if (may_repeat) SUBBYTE_CHECK(begin_graph(*compiled_));
  Status status = graphs_.replays() ? Status() : run_items(*schedule_);
  if (!status.ok()) {
    graphs_.abandon();
    return status;
  }
  SUBBYTE_TRY(const bool is_launched, graphs_.end(results_));
  if (!is_launched) SUBBYTE_CHECK(run_items(*schedule_));
  results = results_;
  results.sent = sent();
  return {};
}

/// The kernel of a step does not round inputs of experts to MXFP8.
bool CudaStepRunner::may_have_programs(const Batch& batch) const {
  return batch.observer == nullptr && has_single_tokens(batch) &&
         std::ssize(batch.parts) <= options_.step_kernel_tokens && !options_.batch_invariant &&
         !options_.mxfp8_experts;
}

int64_t CudaStepRunner::exchanges_of_programs(const CudaCompiledStep& step,
                                              const Batch& batch) const {
  return programs_of(step, batch).exchanges();
}

const Schedule& CudaStepRunner::programs_of(const CudaCompiledStep& step,
                                            const Batch& batch) const {
  return step.programs(std::ssize(batch.parts), attends(step, batch), device_);
}

/// Whether the kernel of a step has the attention of the plan: over one group of keys, in the type
/// of activations.
bool CudaStepRunner::attends(const CudaCompiledStep& step, const Batch& batch) const {
  const Element type = batch.parts.front().sequence->pool().type();
  const auto& groups = step.plan().cache.groups;
  return std::ranges::count(groups, false, &CacheGroup::is_state) == 1 && type == element();
}

/// The same places for the same number of rows, so that graphs and programs find them again.
Status CudaStepRunner::take_values() {
  pointers_.clear();
  for (const ValueSlot& slot : slots_->slots) {
    const int64_t rows =
        slot.rows == ValueRows::kTokens ? step_.num_tokens() : step_.num_head_rows();
    SUBBYTE_TRY(std::byte* const memory, step_.take(rows * slot.cols * value_bytes(slot.type)));
    pointers_.push_back(memory);
  }
  return {};
}

Status CudaStepRunner::bind_programs(const CudaCompiledStep& step, const Schedule& schedule) {
  SUBBYTE_CHECK(programs_.reserve());
  const KvPool& pool = step_.pool();
  Bound bound = {step.id(),       step_.num_tokens(), attends(step, *batch_),
                 memory_of(pool), memory_epoch(),     pointers_};
  if (bound == bound_) return {};
  bound_ = {};
  SUBBYTE_CHECK(programs_.bind(schedule, *plan_, *slots_, pointers_, attention_, delta_nets_));
  bound.epoch = memory_epoch();  // partials may have grown
  bound_ = std::move(bound);
  return {};
}

/// Steps of single tokens repeat: what their launches follow from is in the key.
Status CudaStepRunner::begin_graph(const CudaCompiledStep& step) {
  StepShapeKey key = step_.shape_key();
  const StepShapeKey choices = choices_.shape_key();
  key.insert(key.end(), choices.begin(), choices.end());
  key.push_back(reinterpret_cast<intptr_t>(memory_of(step_.pool())));
  key.push_back(step.id());
  key.push_back(static_cast<int64_t>(memory_epoch()));
  return graphs_.begin(std::move(key));
}

Status CudaStepRunner::run_items(const Schedule& schedule) {
  for (const MachineOp& item : schedule.items) {
    SUBBYTE_CHECK(std::visit([this](const auto& one) { return run_item(one); }, item));
    const cudaError_t launched = cudaGetLastError();
    if (launched != cudaSuccess) return cuda_error("cuda.launch", "an operation", launched);
  }
  return {};
}

Status CudaStepRunner::run_item(const ScheduledProgram& program) {
  return programs_.run(program, num_programs_run_++, step_);
}

template <class Item>
Status CudaStepRunner::run_item(const Item& item) {
  const Op& op = plan_->ops[static_cast<std::size_t>(item.op)];
  if (!op.outputs.empty() && rows_of(op.outputs.front()) == 0) return {};
  const Status status = launch(item);
  if (!status.ok()) return Error{status.error().code, op.name + ": " + status.error().message};
  return batch_->observer == nullptr ? Status() : show(op);
}

Status CudaStepRunner::launch(const PlanLaunch& item) {
  const Op& op = plan_->ops[static_cast<std::size_t>(item.op)];
  return std::visit([this](const auto& what) { return launch(what); }, op.what);
}

Status CudaStepRunner::launch(const EmbedOp& op) {
  const CudaMatrix& table = cuda_weight(op.table).parts.front();
  const cuda::EmbedCall call = {floats(op.y),  step_.tokens(), choices_.chosen(),
                                rows_of(op.y), op.table.cols,  op.factor};
  const device::PackedMatrix& weights = *table.weights;
  if (table.is_dense()) {
    cuda::run_embed(call, weights.memory().data(), weights.element(), stream_);
  } else {
    cuda::run_embed(call, table.arguments(), table.format(), stream_);
  }
  return {};
}

/// Activations have 16 bits here before they come to this, exact ones too.
Status CudaStepRunner::launch(const LinearOp& op) {
  if (plan_->value(op.y).type == ValueType::kFloat) {
    return products_.multiply_to_floats(floats(op.y), activations(op.x), cuda_weight(op.weight));
  }
  const CudaRows y = activations(op.y);
  SUBBYTE_CHECK(products_.multiply(y, activations(op.x), cuda_weight(op.weight)));
  if (op.squares_relu) cuda::run_squared_relu(y.data, element(), y.rows * y.cols, stream_);
  return {};
}

Status CudaStepRunner::launch(const GatedLinearOp& op) {
  return products_.multiply_gated(activations(op.y), activations(op.x), cuda_weight(op.gate_up),
                                  op.gate);
}

Status CudaStepRunner::launch(const AnglesOp& op) {
  return attention_.find_angles(floats(op.cos), floats(op.sin), *op.rope);
}

CudaSharedExpert CudaStepRunner::shared_expert(const JoinedExpert& joined) const {
  if (!joined.is_there()) return {};
  return {&cuda_weight(plan_op<GatedLinearOp>(joined.gate_up).gate_up).parts.front(),
          &cuda_weight(plan_op<LinearOp>(joined.down).weight).parts.front(),
          gate_of(plan_op<SigmoidGateOp>(joined.gated))};
}

cuda::RouterCall CudaStepRunner::router_call(const ExpertsOp& op,
                                             const JoinedRouter& joined) const {
  const auto matrix_of = [&](int64_t i) -> cuda::RouterMatrix {
    if (i < 0) return {};
    const CudaMatrix& matrix = cuda_weight(plan_op<LinearOp>(i).weight).parts.front();
    return {matrix.weights->memory().data(), matrix.weights->element(),
            reinterpret_cast<const float*>(matrix.bias.data())};
  };
  cuda::RouterCall call;
  call.x = at(op.x);
  call.x_element = element();
  call.cols = plan_->value(op.x).cols;
  call.router = matrix_of(joined.router);
  call.gate = matrix_of(joined.gate);
  if (joined.norm >= 0) call.norm = add_norm_call(plan_op<AddNormOp>(joined.norm));
  return call;
}

Status CudaStepRunner::launch_apart(std::initializer_list<int64_t> ops) {
  for (const int64_t op : ops) {
    if (op >= 0) SUBBYTE_CHECK(run_item(PlanLaunch{op}));
  }
  return {};
}

Status CudaStepRunner::launch(const ExpertsOp& op) {
  return launch_experts(op, {});
}

Status CudaStepRunner::launch(const JoinedExperts& item) {
  return launch_experts(plan_op<ExpertsOp>(item.op), item);
}

Status CudaStepRunner::launch_experts(const ExpertsOp& op, const JoinedExperts& joined) {
  const auto& experts = *static_cast<const CudaExperts*>(op.experts.storage.get());
  const CudaSharedExpert shared = shared_expert(joined.shared);
  const float* logits = floats(op.router_logits);
  cuda::RouterCall kernel;
  if (joined.router.is_there()) {
    kernel = router_call(op, joined.router);
    if (moe_.serves(kernel, experts, shared)) {
      logits = nullptr;
    } else {
      SUBBYTE_CHECK(launch_apart({joined.router.norm, joined.router.gate, joined.router.router}));
    }
  }
  SUBBYTE_TRY(routes_, moe_.run(activations(op.x), logits, experts, op.router, shared, kernel));
  if (joined.leaves_sum) return {};
  const CudaRows y = activations(op.y);
  cuda::run_add_routes({y.data, routes_, element(), y.rows, y.cols}, stream_);
  return {};
}

Status CudaStepRunner::launch(const ColumnsOp& op) {
  const CudaRows y = activations(op.y);
  const CudaRows x = activations(op.x);
  std::vector<cuda::ColumnRange> ranges;
  for (const ColumnsOp::Range& range : op.ranges) {
    ranges.push_back({static_cast<int32_t>(range.first), static_cast<int32_t>(range.count)});
  }
  cuda::run_columns({y.data, x.data, y.rows, y.cols, x.cols}, ranges, stream_);
  return {};
}

Status CudaStepRunner::launch(const SigmoidGateOp& op) {
  const CudaRows x = activations(op.x);
  cuda::SigmoidGateCall call;
  call.x = x.data;
  if (op.base != kNoValue) call.base = at(op.base);
  call.element = element();
  if (op.gate != kNoValue) {
    const StepValue& gate = plan_->value(op.gate);
    call.gate = at(op.gate);
    call.gate_element = gate.type == ValueType::kFloat ? Element::kF32 : element();
    call.is_of_row = gate.cols != x.cols;
  }
  call.rows = x.rows;
  call.cols = x.cols;
  cuda::run_sigmoid_gate(call, stream_);
  return {};
}

Status CudaStepRunner::launch(const GateOp& op) {
  const CudaRows y = activations(op.y);
  cuda::GateColumnsCall call;
  call.y = y.data;
  call.x = at(op.x);
  call.up = at(op.up);
  call.activation = activation_of(op.gate);
  call.element = element();
  call.rows = y.rows;
  call.cols = y.cols;
  call.up_stride = plan_->value(op.up).cols;
  call.first = op.first;
  cuda::run_gate_columns(call, stream_);
  return {};
}

Status CudaStepRunner::launch(const DeltaNetOp& op) {
  return delta_nets_.run(op, activations(op.y), at(op.qkvz), at(op.ba));
}

/// The product reads what the delta net must not write over.
Status CudaStepRunner::launch(const DeltaNetWithGates& item) {
  const auto& op = plan_op<DeltaNetOp>(item.op);
  const auto& linear = plan_op<LinearOp>(item.gates);
  const CudaMatrix& matrix = cuda_weight(linear.weight).parts.front();
  const device::PackedMatrix& weights = *matrix.weights;
  const cuda::DeltaNetGateProduct product = {weights.memory().data(), weights.element(),
                                             at(linear.x), matrix.cols()};
  const bool is_apart = matrix.bias.size() > 0 || at(linear.x) == at(op.y) ||
                        at(linear.x) == at(op.qkvz) ||
                        !delta_nets_.serves(op, product, rows_of(op.y));
  if (!is_apart) {
    return delta_nets_.run(op, activations(op.y), at(op.qkvz), at(op.ba), product);
  }
  SUBBYTE_CHECK(launch_apart({item.gates}));
  return launch(op);
}

Status CudaStepRunner::launch(const LogitsOp& op) {
  if (step_.num_head_rows() == 0) return {};
  results_.logits = floats(op.logits);
  const AllGatherOp* const head = choices_.has_candidates() ? head_gather(*plan_) : nullptr;
  const ValueId id = head == nullptr ? op.logits : head->x;
  if (op.factor != 1 || op.cap > 0) {
    const int64_t size = rows_of(id) * plan_->value(id).cols;
    cuda::run_soft_cap(floats(id), size, op.factor, op.cap, stream_);
  }
  if (head == nullptr) {
    choices_.run(results_.logits, stream_);
  } else {
    SUBBYTE_CHECK(choices_.give(floats(id), stream_));
    cuda::run_peer_sum(choices_.exchanged(), options_.peers, stream_);
    choices_.choose_of_all(stream_);
  }
  results_.tokens = choices_.chosen();
  return {};
}

/// Copies the results to the host, as floats.
Status CudaStepRunner::show(const Op& op) {
  for (const ValueId id : op.outputs) {
    const StepValue& value = plan_->value(id);
    const auto count = static_cast<std::size_t>(rows_of(id) * value.cols);
    std::vector<float> numbers(count);
    std::vector<uint16_t> halves(value.type == ValueType::kFloat ? 0 : count);
    void* const to = halves.empty() ? static_cast<void*>(numbers.data()) : halves.data();
    const auto bytes = count * static_cast<std::size_t>(value_bytes(value.type));
    cudaError_t error = cudaMemcpyAsync(to, at(id), bytes, cudaMemcpyDeviceToHost, stream_);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
    if (error != cudaSuccess) return cuda_error("cuda.copy", "copy of a result", error);
    const bool is_f16 = number_ == cuda::Number::kF16;
    std::ranges::transform(halves, numbers.begin(), [&](uint16_t half) {
      return is_f16 ? to_float(Float16{half}) : to_float(BFloat16{half});
    });
    batch_->observer->observe(op, id, numbers);
  }
  return {};
}

}  // namespace subbyte
