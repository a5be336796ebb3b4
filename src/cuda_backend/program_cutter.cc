#include "cuda_backend/program_cutter.h"

#include <algorithm>

#include "cuda_backend/delta_net_sizes.h"
#include "cuda_backend/lowering.h"
#include "cuda_backend/program_experts.h"

namespace subbyte {
namespace {

/// Cuts a plan into programs and launches, operation by operation.
class ProgramCutter {
 public:
  ProgramCutter(const StepPlan& plan, const ValueSlots& slots, int64_t tokens, bool attends,
                const cuda::Device& device, const ProgramLimits& limits)
      : plan_(plan),
        slots_(slots),
        tokens_(tokens),
        attends_(attends),
        device_(device),
        limits_(limits),
        lowering_(plan, tokens),
        readers_(lowering_.readers),
        tensors_(limits.words),
        overwritten_(plan.values.size(), std::ssize(plan.ops)),
        is_added_(plan.values.size()),
        is_exchanged_(plan.ops.size()),
        is_taken_(plan.ops.size()) {
    for (int64_t op = 0; op < std::ssize(plan.ops); ++op) {
      for (const ValueId id : plan.ops[op].outputs) {
        const ValueId before = plan.value(id).in_place_of;
        if (before != kNoValue) overwritten_[before] = op;
      }
      if (const auto mixture = mixture_at(op)) take(*mixture);
    }
  }

  Schedule cut() {
    for (int64_t op = 0; op < std::ssize(plan_.ops); ++op) {
      if (is_taken_[op]) continue;
      std::visit([&](const auto& what) { add(op, what); }, plan_.ops[op].what);
    }
    end_program();
    return std::move(schedule_);
  }

 private:
  using Place = std::optional<cuda::StepTensors::Place>;

  template <class T>
  void add(int64_t op, const T&) {
    launch(op);
  }

  /// Left to products around it, where they can do it.
  void add(int64_t op, const AddNormOp& norm) {
    const bool is_summed = norm.delta == kNoValue || (norm.sum != kNoValue && is_added_[norm.sum]);
    if (is_summed && is_left_to_products(norm)) {
      left_norms_.push_back({op, norm.y, norm.sum == kNoValue ? norm.x : norm.sum, false});
      return;
    }
    end_program();
    if (is_summed && norm.delta != kNoValue) {
      schedule_.items.emplace_back(SummedNorm{op});
    } else {
      schedule_.items.emplace_back(PlanLaunch{op});
    }
  }

  void add(int64_t op, const AllReduceOp&) {
    if (!is_exchanged_[op]) launch(op);
  }

  void add(int64_t op, const LinearOp& linear) {
    if (add_gates(op, linear) || add_mixture(op, linear)) return;
    if (!add_product(op, linear.y, linear.x, cuda_weight(linear.weight), cuda::Activation::kNone)) {
      launch(op);
    }
  }

  void add(int64_t op, const GatedLinearOp& gated) {
    if (!add_product(op, gated.y, gated.x, cuda_weight(gated.gate_up), activation_of(gated.gate))) {
      launch(op);
    }
  }

  void add(int64_t op, const RotateOp& rotate) {
    const auto* const attend = plan_.as<AttendOp>(op + 1);
    if (attend == nullptr || attend->qkv != rotate.y || !add_attention(op, rotate, *attend)) {
      launch(op);
    }
  }

  void add(int64_t op, const AttendOp&) {
    if (has_attention_of(op)) return;
    launch(op);
  }

  /// After b and a, or not at all.
  void add(int64_t op, const DeltaNetOp& net) {
    const auto* const gates = program_ && !program_->ops.empty()
                                  ? std::get_if<ProgramRouter>(&program_->ops.back())
                                  : nullptr;
    if (is_cut_ || gates == nullptr || plan_.as<LinearOp>(gates->op)->y != net.ba)
      return launch(op);
    ProgramDeltaNet made = {op, {net.qkvz, read(net.qkvz, false)}, {}, net.y, {}};
    made.ba = {net.ba, tensors_.also_read(key_of(net.ba), false)};
    made.result = write(net.y, true);
    program_->ops.emplace_back(made);
    program_->state_group = net.cache.group;
  }

  /// Added with their router, or not at all.
  void add(int64_t op, const ExpertsOp&) {
    const auto* const last = program_ && !program_->ops.empty()
                                 ? std::get_if<ProgramProduct>(&program_->ops.back())
                                 : nullptr;
    if (last == nullptr || last->op != op) launch(op);
  }

  /// Columns of queries' gates begin an attention with these, or none.
  void add(int64_t op, const ColumnsOp&) {
    const GatedHeads gated = gated_heads(lowering_, op);
    const bool has_place =
        gated.is_there() && program_ && !is_cut_ && tensors_.has(key_of(gated.qkv)) &&
        add_attention(op + 2, *plan_.as<RotateOp>(op + 2), *plan_.as<AttendOp>(op + 3), gated);
    if (!has_place) return launch(op);
    for (int64_t part = op + 1; part <= op + 4; ++part) is_taken_[part] = true;
  }

  bool has_attention_of(int64_t attend) const {
    if (!program_ || program_->ops.empty()) return false;
    const auto* const last = std::get_if<ProgramAttention>(&program_->ops.back());
    return last != nullptr && last->attend == attend;
  }

  /// A norm whose result is not stored: the products that read it compute it.
  struct LeftNorm {
    int64_t op;
    ValueId y;
    ValueId x;
    bool is_stored;
  };

  LeftNorm* left_norm(ValueId y) {
    const auto found = std::ranges::find(left_norms_, y, &LeftNorm::y);
    return found == left_norms_.end() ? nullptr : &*found;
  }

  /// Whether the readers of a norm's result are products of the kind that programs have, and find
  /// its operand as it is now.
  bool is_left_to_products(const AddNormOp& norm) const {
    const ValueId x = norm.sum == kNoValue ? norm.x : norm.sum;
    if (norm.rows != ValueRows::kTokens || !norm.norm.is_rms()) return false;
    return std::ranges::all_of(readers_[norm.y], [&](int64_t reader) {
      const auto* const linear = plan_.as<LinearOp>(reader);
      const bool is_product = plan_.as<GatedLinearOp>(reader) != nullptr ||
                              (linear != nullptr && is_plain(*linear)) || is_of_mixture(reader);
      return is_product && reader < overwritten_[x];
    });
  }

  /// Of one token. Where it has no place in the program after all, everything is launched
  /// (schedule_programs).
  std::optional<ProgramMixture> mixture_at(int64_t op) const {
    if (tokens_ != 1) return {};
    return program_mixture(lowering_, op, device_.multiprocessors);
  }
  void take(const ProgramMixture& mixture) {
    const JoinedExpert& shared = mixture.shared.ops;
    if (!shared.is_there()) return;
    const ValueId gate = plan_.as<SigmoidGateOp>(shared.gated)->gate;
    for (const int64_t op : {shared.gate_up, shared.down, shared.gated}) is_taken_[op] = true;
    if (gate != kNoValue) is_taken_[lowering_.producers[gate]] = true;
  }
  bool is_of_mixture(int64_t op) const {
    return is_taken_[op] || mixture_at(op) || mixture_at(op - 1);
  }

  int64_t only_reader(ValueId id) const {
    return readers_[id].size() == 1 ? readers_[id].front() : -1;
  }

  /// The sum over ranks that alone reads the result of a product, and fits.
  int64_t exchange_of(ValueId y) const {
    const int64_t reader = only_reader(y);
    const bool fits = tokens_ * plan_.value(y).cols <= limits_.max_summed;
    return fits && plan_.as<AllReduceOp>(reader) != nullptr ? reader : -1;
  }

  /// The sum that the result of a product may be added to, after that over ranks: where a norm
  /// alone reads that result, nothing is between that knows either x, and the product has no other
  /// use of x itself.
  ValueId residual_of(int64_t op, ValueId y) const {
    const int64_t exchange = exchange_of(y);
    const ValueId delta = exchange < 0 ? y : plan_.as<AllReduceOp>(exchange)->y;
    const int64_t reader = only_reader(delta);
    const auto* const add = plan_.as<AddNormOp>(reader);
    if (add == nullptr || add->delta != delta || add->sum == kNoValue) return kNoValue;
    if (add->factor != 1 || add->scale.size > 0) return kNoValue;
    if (add->rows != ValueRows::kTokens) return kNoValue;
    for (int64_t between = op + 1; between < reader; ++between) {
      if (between != exchange && plan_.as<AddNormOp>(between) == nullptr) return kNoValue;
    }
    return reads_between(add->x, op, reader) ? kNoValue : add->sum;
  }

  /// Takes the sum over ranks between a product and its residual into the product.
  uint32_t take_exchange(ValueId y) {
    const int64_t exchange = exchange_of(y);
    if (exchange < 0) return 0;
    is_exchanged_[exchange] = true;
    return ++program_->exchanges;
  }

  bool reads_between(ValueId x, int64_t from, int64_t to) const {
    return std::ranges::any_of(readers_[x], [&](int64_t op) { return op > from && op < to; });
  }

  bool add_product(int64_t op, ValueId y, ValueId x, const CudaWeight& weight,
                   cuda::Activation activation) {
    const StepValue& result = plan_.value(y);
    if (result.rows != ValueRows::kTokens || result.type != ValueType::kActivation) return false;
    const auto* const linear = plan_.as<LinearOp>(op);
    if ((linear != nullptr && !is_plain(*linear)) || !supports(weight, activation)) return false;
    if (is_cut_) end_program();
    const auto layout = with_products(weight);
    if (!layout || !has_room(std::ssize(weight.parts))) return false;
    begin_program(*layout);
    LeftNorm* const left = left_norm(x);
    const Norm* const norm =
        left == nullptr || left->is_stored ? nullptr : &plan_.as<AddNormOp>(left->op)->norm;
    const ValueId input = norm != nullptr ? left->x : x;
    const bool may_add = activation == cuda::Activation::kNone && norm == nullptr &&
                         weight.parts.size() == 1 &&
                         weight.parts.front().format().row_order == cuda::RowOrder::kNatural;
    const ValueId sum = may_add ? residual_of(op, y) : kNoValue;
    if (sum != kNoValue) is_added_[sum] = true;
    int64_t first = 0;
    for (const CudaMatrix& part : weight.parts) {
      ProgramProduct product;
      product.op = op;
      product.matrix = &part;
      product.first = first;
      product.activation = activation;
      product.x = {input, read(input)};
      product.norm = norm;
      (sum == kNoValue ? product.y : product.residual) = sum == kNoValue ? y : sum;
      if (sum != kNoValue) product.exchange = take_exchange(y);
      product.result = write(sum == kNoValue ? y : sum, first == 0);
      add_to_program(product);
      first += part.rows();
    }
    return true;
  }

  /// A router and the experts after it, all three products or none; where a result of theirs has no
  /// place in a program, the experts are launched, and with them all (schedule_programs).
  bool add_mixture(int64_t op, const LinearOp& router) {
    const std::optional<ProgramMixture> mixture = mixture_at(op);
    const LeftNorm* const left = left_norm(router.x);
    if (!mixture || left == nullptr || left->is_stored) return false;
    if (is_cut_) end_program();
    const auto layout = with_mixture(*mixture, router);
    if (!layout || !has_room(3)) return false;
    begin_program(*layout);
    const Norm* const norm = &plan_.as<AddNormOp>(left->op)->norm;
    ProgramRouter logits = {op, mixture->router, mixture->shared.gate, 0, {}, norm, {}};
    logits.x = {left->x, read(left->x)};
    const int64_t rows = router.weight.rows + (logits.gate != nullptr ? 1 : 0);
    logits.result = write_words(&logits_, rows, true);
    if (!logits.result) return false;
    program_->ops.emplace_back(logits);
    ProgramProduct gate_up;
    gate_up.op = op + 1;
    gate_up.experts = mixture->gate_up;
    gate_up.activation = mixture->activation;
    gate_up.swiglu = mixture->swiglu;
    gate_up.x = {left->x, read(left->x)};
    gate_up.norm = norm;
    gate_up.experts->logits = tensors_.also_read(&logits_);
    const int64_t activated = mixture->down.stacked.chosen * mixture->down.matrices->cols();
    gate_up.result = write_words(&activated_, activated, true);
    if (!gate_up.result) return false;
    add_to_program(gate_up);

    ProgramProduct down;
    down.op = op + 1;
    down.experts = mixture->down;
    const ValueId y = mixture->y;
    const ValueId sum = residual_of(lowering_.producers[y], y);
    if (sum != kNoValue) is_added_[sum] = true;
    down.x = {kNoValue, tensors_.read(&activated_)};
    (sum == kNoValue ? down.y : down.residual) = sum == kNoValue ? y : sum;
    if (sum != kNoValue) down.exchange = take_exchange(y);
    down.result = write(sum == kNoValue ? y : sum, true);
    add_to_program(down);
    return true;
  }

  /// The product that gives b and a, before its delta net, whose projections are in the program.
  bool add_gates(int64_t op, const LinearOp& linear) {
    const auto* const net = plan_.as<DeltaNetOp>(only_reader(linear.y));
    const LeftNorm* const left = left_norm(linear.x);
    if (net == nullptr || net->ba != linear.y || !is_plain(linear)) return false;
    if (!is_one_dense(linear.weight) || left == nullptr || left->is_stored) return false;
    if (!program_ || is_cut_ || !has_room(2) || !tensors_.has(key_of(net->qkvz))) return false;
    const auto layout = program_->layout.with_delta_net();
    if (!layout || !layout->supports(delta_net_sizes(net->shape)) ||
        !layout->supports_router(linear.weight.rows, linear.weight.cols)) {
      return false;
    }
    program_->layout = *layout;
    const Norm* const norm = &plan_.as<AddNormOp>(left->op)->norm;
    ProgramRouter gates = {op, &cuda_weight(linear.weight).parts.front(), nullptr, 0, {}, norm, {}};
    // The first CTAs have value heads.
    gates.first_cta = net->shape.value_heads % device_.multiprocessors;
    gates.x = {left->x, read(left->x)};
    gates.result = write(linear.y, true);
    if (gates.result) program_->ops.emplace_back(gates);
    return gates.result.has_value();
  }

  void add_to_program(const ProgramProduct& product) {
    program_->ops.emplace_back(product);
    ++program_->num_products;
  }

  std::optional<cuda::StepLayout> with_mixture(const ProgramMixture& mixture,
                                               const LinearOp& router) const {
    std::optional<cuda::StepLayout> layout =
        program_ ? program_->layout : cuda::StepLayout(device_, static_cast<int>(tokens_));
    const int64_t rows = router.weight.rows + (mixture.shared.gate != nullptr ? 1 : 0);
    if (!layout->supports_router(rows, router.weight.cols)) return {};
    for (const ProgramExperts& experts : {mixture.gate_up, mixture.down}) {
      if (!layout) return {};
      layout = layout->with_product(experts.matrices->format(), experts.matrices->arguments(),
                                    experts.stacked);
    }
    return layout;
  }

  static bool is_plain(const LinearOp& linear) { return !linear.exact && !linear.squares_relu; }

  static bool supports(const CudaWeight& weight, cuda::Activation activation) {
    const auto prepares = [](const CudaMatrix& part) {
      return !part.is_dense() && gpu::prepares_inputs(part.format());
    };
    if (std::ranges::any_of(weight.parts, prepares)) return false;
    return activation == cuda::Activation::kNone ||
           (weight.parts.size() == 1 &&
            weight.parts.front().format().row_order == cuda::RowOrder::kGateAboveUp);
  }

  std::optional<cuda::StepLayout> with_products(const CudaWeight& weight) const {
    std::optional<cuda::StepLayout> layout =
        program_ ? program_->layout : cuda::StepLayout(device_, static_cast<int>(tokens_));
    for (const CudaMatrix& part : weight.parts) {
      if (!layout || part.is_dense()) return {};
      layout = layout->with_product(part.format(), part.arguments());
    }
    return layout;
  }

  bool add_attention(int64_t op, const RotateOp& rotate, const AttendOp& attend,
                     const GatedHeads& gated = {}) {
    const AttentionShape& shape = rotate.shape;
    const bool is_usual = shape.has_keys && shape.values_in_keys == 0 && rotate.is_usual();
    if (shape.cap > 0 || shape.in_chunks || !is_usual) return false;
    if (!attends_ || !program_ || is_cut_ || !has_room(1) || shape.kv_heads > limits_.kv_heads ||
        !cuda::StepLayout::supports(shape.heads, shape.kv_heads, shape.head_dim,
                                    gated.is_there())) {
      return false;
    }
    const int64_t q_per_kv = shape.heads / shape.kv_heads;
    const auto layout = program_->layout.with_attention(q_per_kv, shape.head_dim, gated.is_there());
    if (!layout) return false;
    program_->layout = *layout;
    const ValueId qkv = gated.is_there() ? gated.qkv : rotate.qkv;
    const ValueId y = gated.is_there() ? gated.y : attend.y;
    ProgramAttention attention = {op, op + 1, gated.is_there(), {qkv, read(qkv, false)}, y, {}};
    attention.result = write(y, true);
    program_->ops.emplace_back(attention);
    program_->key_group = attend.cache.group;
    program_->kv_heads = std::max(program_->kv_heads, shape.kv_heads);
    const int64_t floats =
        int64_t{cuda::kStepTokens} * shape.kv_heads * cuda::kMaxStepSplits *
        cuda::step_partial_floats(static_cast<int>(q_per_kv), static_cast<int>(shape.head_dim));
    program_->partial_bytes = std::max(program_->partial_bytes, floats * int64_t{sizeof(float)});
    return true;
  }

  /// Tensors are told apart by where they lie.
  const void* key_of(ValueId id) const { return &slots_.slots[slots_.slot_of[id]]; }

  Place read(ValueId id, bool reads_all = true) { return tensors_.read(key_of(id), reads_all); }

  /// Where readers find a result; nowhere: the program ends with it.
  Place write(ValueId id, bool begins) {
    return write_words(key_of(id), tokens_ * plan_.value(id).cols, begins);
  }
  Place write_words(const void* key, int64_t words, bool begins) {
    const Place place = tensors_.write(key, words, begins);
    is_cut_ = is_cut_ || !place;
    if (place) program_->tags = std::max(program_->tags, place->tag);
    return place;
  }

  /// For one more operation, with the weights of all its parts.
  bool has_room(int64_t parts) const {
    const int64_t more = parts * int64_t{sizeof(cuda::StepOperation) + sizeof(cuda::StepWeights)};
    return used_bytes_ + (program_ ? program_bytes(*program_) : 0) + more <= limits_.bytes;
  }

  void begin_program(const cuda::StepLayout& layout) {
    if (!program_) {
      program_.emplace(ScheduledProgram{.ops = {}, .layout = layout});
      tensors_.begin_program();
    }
    program_->layout = layout;
  }

  void end_program() {
    if (!program_) return;
    is_cut_ = false;
    used_bytes_ += program_bytes(*program_);
    schedule_.items.emplace_back(std::move(*program_));
    program_.reset();
  }

  /// An operation by itself, after the norms that it reads.
  void launch(int64_t op) {
    end_program();
    for (const ValueId id : plan_.ops[op].inputs) {
      LeftNorm* const left = left_norm(id);
      if (left == nullptr || left->is_stored) continue;
      schedule_.items.emplace_back(SummedNorm{left->op});
      left->is_stored = true;
    }
    schedule_.items.emplace_back(PlanLaunch{op});
  }

  const StepPlan& plan_;
  const ValueSlots& slots_;
  int64_t tokens_;
  bool attends_;
  const cuda::Device& device_;
  const ProgramLimits& limits_;
  const Lowering lowering_;  // of which only what it knows of the plan is used
  const std::vector<std::vector<int64_t>>& readers_;
  cuda::StepTensors tensors_;
  std::vector<int64_t> overwritten_;  // by value: the operation that takes over its memory
  std::vector<bool> is_added_;        // by value: a product has added this sum's delta
  std::vector<bool> is_exchanged_;    // by operation: a product has summed over ranks
  std::vector<bool> is_taken_;        // by operation: a mixture has it
  Schedule schedule_;
  std::optional<ScheduledProgram> program_;  // that grows
  bool is_cut_ = false;                      // its last result cannot be read within it
  int64_t used_bytes_ = 0;
  std::vector<LeftNorm> left_norms_;
  // Whose addresses are keys of what no value of the plan is:
  char activated_ = 0;  // what gate and up of experts give
  char logits_ = 0;     // of a router, with that of the gate of a shared expert
};

}  // namespace

Schedule cut_into_programs(const StepPlan& plan, const ValueSlots& slots, int64_t tokens,
                           bool attends, const cuda::Device& device, const ProgramLimits& limits) {
  return ProgramCutter(plan, slots, tokens, attends, device, limits).cut();
}

}  // namespace subbyte
