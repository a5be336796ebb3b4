#include "parallel/division.h"

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>

namespace subbyte {
namespace {

constexpr int64_t kOutputUnit = 16;   // of outputs that are put together
constexpr int64_t kExchangeUnit = 8;  // columns of what is exchanged: 16 bytes of 16 bits

/// The columns of values that are so many runs of `from` numbers, as runs of `to` numbers; nullopt
/// where a part has no whole runs.
std::optional<Parts> runs_of(const Parts& parts, int64_t from, int64_t to) {
  Parts result;
  for (const Columns& columns : parts) {
    Columns runs;
    for (const ColumnRange& range : columns) {
      if (range.first % from != 0 || range.count % from != 0) return std::nullopt;
      runs.push_back({range.first / from * to, range.count / from * to});
    }
    result.push_back(std::move(runs));
  }
  return result;
}

class Divider {
 public:
  Divider(const StepPlan& plan, int ranks, const WeightBorders& borders)
      : plan_(plan), borders_(borders), readers_(readers_of(plan)), done_(undivided(plan)) {
    done_.ranks = ranks;
    makers_.assign(plan.values.size(), -1);
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      for (const ValueId id : plan.ops[i].outputs) makers_[id] = static_cast<int64_t>(i);
    }
    done_.divides_cache.assign(plan.cache.groups.size(), true);
    wanted_.resize(plan.values.size());
    wants_whole_.resize(plan.values.size());
  }

  Division divide() && {
    for (op_ = 0; op_ < plan_.ops.size(); ++op_) {
      std::visit([this](const auto& op) { find_cache(op); }, what());
    }
    for (op_ = 0; op_ < plan_.ops.size(); ++op_) {
      std::visit([this](const auto& op) { make(op); }, what());
    }
    for (op_ = plan_.ops.size(); op_-- > 0;) {
      std::visit([this](const auto& op) { want(op); }, what());
    }
    return std::move(done_);
  }

 private:
  const Operation& what() const { return plan_.ops[op_].what; }
  Parts& made(ValueId id) { return done_.made[id]; }
  bool is_made_whole(ValueId id) { return id == kNoValue || made(id).empty(); }

  /// The operation that alone reads a value, if it is of that kind.
  template <class Kind>
  const Kind* only_reader(ValueId id) const {
    return readers_[id].size() == 1 ? plan_.as<Kind>(readers_[id].front()) : nullptr;
  }

  // --- which layers keep a part

  template <class Kind>
  void find_cache(const Kind& op) {
    if constexpr (requires { op.kept(); }) {
      find_state(op);
    } else if constexpr (requires { op.shape.kv_heads; }) {
      const bool selects = std::is_same_v<Kind, SelectOp> || op.shape.heads == 0;
      if (selects || head_shares(op.shape, done_.ranks).empty()) {
        done_.divides_cache[op.cache.group] = false;
      }
    }
  }

  /// The layers of a group keep as much as each other on every rank.
  template <class Mixer>
  void find_state(const Mixer& op) {
    std::vector<MixerPart>& parts = done_.mixers[op_];
    if constexpr (std::is_same_v<Mixer, ShortConvOp>) {
      parts = parts_of(op, channel_parts(op));
    } else {
      parts = parts_of(op, done_.ranks);
    }
    const auto [first, was_new] = states_.emplace(op.cache.group, &parts);
    const bool fits = std::ranges::equal(parts, *first->second, {}, &MixerPart::state_size,
                                         &MixerPart::state_size);
    if (parts.empty() || !fits) done_.divides_cache[op.cache.group] = false;
  }

  Parts channel_parts(const ShortConvOp& op) const {
    const auto* const out = only_reader<LinearOp>(op.y);
    return out == nullptr ? even_parts(op.channels, 1, done_.ranks)
                          : borders_.input_parts(out->weight, done_.ranks);
  }

  // --- what operations make of their own accord

  template <class Kind>
  void make(const Kind& op) {
    if constexpr (requires { op.kept(); }) {
      make_mixer(op);
    }
  }

  template <class Mixer>
  void make_mixer(const Mixer& op) {
    if (!done_.divides_cache[op.cache.group]) return;
    done_.is_divided[op_] = true;
    for (const MixerPart& part : done_.mixers[op_]) made(op.y).push_back(part.result);
  }

  void make(const RotateOp& op) { done_.is_divided[op_] = done_.divides_cache[op.cache.group]; }

  void make(const AttendOp& op) {
    done_.is_divided[op_] = done_.divides_cache[op.cache.group];
    if (!done_.is_divided[op_]) return;
    for (const HeadShare& share : head_shares(op.shape, done_.ranks)) {
      made(op.y).push_back({columns_of(share.q, op.shape.value_dim())});
    }
  }

  void make(const HeadsLinearOp& op) {
    if (is_made_whole(op.x) || op.rest != kNoValue) return;
    const auto parts = runs_of(made(op.x), op.weight.cols + op.kept, op.outputs() + op.kept);
    if (!parts) return;
    made(op.y) = *parts;
    done_.is_divided[op_] = true;
  }

  void make(const NormOp& op) {
    if (is_made_whole(op.x) || op.first || op.runs < 2) return;
    if (runs_of(made(op.x), op.norm.weight.size, 1)) made(op.y) = made(op.x);
  }

  void make(const SigmoidGateOp& op) {
    if (!is_made_whole(op.x)) made(op.y) = made(op.x);
  }

  void make(const GatedLinearOp& op) { make_inner(op.y); }

  /// What a dense block has between its products.
  void make_inner(ValueId y) {
    const auto* const down = only_reader<LinearOp>(y);
    if (down == nullptr || down->exact || down->squares_relu) return;
    made(y) = borders_.input_parts(down->weight, done_.ranks);
  }

  void make(const LinearOp& op) {
    const bool is_exchanged = op.weight.rows % kExchangeUnit == 0;
    if (only_reader<LogitsOp>(op.y) != nullptr) {
      if (is_exchanged) made(op.y) = even_parts(op.weight.rows, kOutputUnit, done_.ranks);
    } else if (op.squares_relu) {
      make_inner(op.y);
    } else if (is_exchanged && !op.exact && op.type == ValueType::kActivation) {
      done_.inputs[op_] = inputs_of(op);
      done_.is_divided[op_] = !done_.inputs[op_].empty();
    }
  }

  /// The inputs of each rank where it gives a part of each sum.
  Parts inputs_of(const LinearOp& op) {
    const auto can_cut = [&](const Columns& inputs) { return borders_.can_cut(op.weight, inputs); };
    if (std::ranges::all_of(made(op.x), can_cut)) {
      if (!is_made_whole(op.x)) return made(op.x);
      if (is_undivided(makers_[op.x])) return borders_.input_parts(op.weight, done_.ranks);
    }
    return {};
  }

  /// Says whether each rank does as a whole what between two products might be divided.
  bool is_undivided(int64_t op) const {
    if (op < 0 || done_.is_divided[static_cast<std::size_t>(op)]) return false;
    return std::visit(
        [](const auto& what) {
          using Kind = std::remove_cvref_t<decltype(what)>;
          return requires {
            what.kept();
          }
          || std::is_same_v<Kind, RotateOp> || std::is_same_v<Kind, AttendOp>;
        },
        plan_.ops[static_cast<std::size_t>(op)].what);
  }

  void make(const ExpertsOp& op) {
    done_.is_divided[op_] =
        op.experts.hidden % kExchangeUnit == 0 && borders_.can_divide(op.experts, done_.ranks);
  }

  // --- what operations read of others

  void want_whole(ValueId id) {
    if (id != kNoValue) wants_whole_[id] = true;
  }

  void want(ValueId id, const Parts& parts) {
    Parts& all = wanted_[id];
    if (all.empty()) {
      all = parts;
    } else if (all != parts) {
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        all[rank] = merged(all[rank], parts[rank]);
      }
    }
  }

  /// The columns that are wanted of a value that its operation does not divide of its own accord;
  /// empty: all.
  Parts wanted(ValueId id) const { return wants_whole_[id] ? Parts() : wanted_[id]; }

  template <class Kind>
  void want(const Kind& op) {
    if constexpr (requires { op.kept(); }) {
      if (done_.is_divided[op_]) return want_inputs(op);
    }
    for (const ValueId id : plan_.ops[op_].inputs) want_whole(id);
  }

  template <class Mixer>
  void want_inputs(Mixer op) {
    std::size_t i = 0;
    for (const MixerInput& input : op.inputs()) {
      Parts parts;
      for (const MixerPart& part : done_.mixers[op_]) parts.push_back(part.inputs[i]);
      want(*input.value, parts);
      ++i;
    }
  }

  void want(const RotateOp& op) {
    if (!done_.is_divided[op_]) return want_whole(op.qkv);
    Parts parts;
    for (const HeadShare& share : head_shares(op.shape, done_.ranks)) {
      parts.push_back(columns_of(op.shape, share));
    }
    want(op.qkv, parts);
  }

  void want(const AttendOp& op) { want_whole(op.selected); }

  void want(const SigmoidGateOp& op) {
    want_whole(op.base);
    const bool follows = op.gate != kNoValue && !is_made_whole(op.x) &&
                         plan_.value(op.gate).cols == plan_.value(op.x).cols;
    if (is_made_whole(op.x)) want_whole(op.x);
    if (follows) return want(op.gate, made(op.x));
    want_whole(op.gate);
  }

  void want(const ColumnsOp& op) {
    made(op.y) = wanted(op.y);
    if (is_made_whole(op.y)) return want_whole(op.x);
    Parts parts;
    for (const Columns& columns : made(op.y)) parts.push_back(mapped(columns, op.ranges));
    want(op.x, parts);
  }

  void want(const NormOp& op) {
    if (!is_made_whole(op.y)) return;
    if (!op.first && op.runs > 1 && runs_of(wanted(op.y), op.norm.weight.size, 1)) {
      made(op.y) = wanted(op.y);
    }
    if (is_made_whole(op.y)) return want_whole(op.x);
    want(op.x, made(op.y));
  }

  void want(const HeadsLinearOp& op) {
    if (done_.is_divided[op_]) return;
    want_whole(op.rest);
    const int64_t size = op.outputs() + op.kept;
    Parts heads;
    for (const Columns& columns : wanted(op.y)) {
      const ColumnRange first = columns.front();
      heads.push_back({{first.first, std::min(first.end(), op.heads * size) - first.first}});
    }
    const auto inputs = runs_of(heads, size, op.weight.cols + op.kept);
    if (heads.empty() || !inputs) return want_whole(op.x);
    made(op.y) = wanted(op.y);
    done_.is_divided[op_] = true;
    want(op.x, *inputs);
  }

  void want(const LinearOp& op) {
    if (done_.is_divided[op_]) return;
    want_whole(op.x);
    if (!is_made_whole(op.y) || op.exact) return;
    for (const Columns& columns : wanted(op.y)) made(op.y).push_back(merged(columns, {}));
    if (is_made_whole(op.y) && is_put_together(op)) {
      made(op.y) = even_parts(op.weight.rows, kOutputUnit, done_.ranks);
    }
  }

  /// Says whether ranks make parts of the outputs though they are read as a whole: many of them.
  bool is_put_together(const LinearOp& op) const {
    const std::vector<int64_t>& readers = readers_[op.y];
    if (readers.size() != 1 || op.type != ValueType::kActivation) return false;
    if (op.weight.rows % kExchangeUnit != 0) return false;
    const auto* const norm = plan_.as<NormOp>(readers.front());
    const bool is_read_by_all = norm != nullptr && norm->first;
    return op.weight.rows >= op.weight.cols && (is_read_by_all || is_undivided(readers.front()));
  }

  const StepPlan& plan_;
  const WeightBorders& borders_;
  const std::vector<std::vector<int64_t>> readers_;
  Division done_;
  std::vector<int64_t> makers_;  // by value: the operation
  std::vector<Parts> wanted_;
  std::vector<bool> wants_whole_;
  std::map<int32_t, const std::vector<MixerPart>*> states_;  // of the first of each group
  std::size_t op_ = 0;
};

}  // namespace

Division undivided(const StepPlan& plan) {
  Division whole;
  whole.made.resize(plan.values.size());
  whole.is_divided.resize(plan.ops.size());
  whole.mixers.resize(plan.ops.size());
  whole.inputs.resize(plan.ops.size());
  whole.divides_cache.resize(plan.cache.groups.size());
  return whole;
}

Division divide(const StepPlan& plan, int ranks, const WeightBorders& borders) {
  return Divider(plan, ranks, borders).divide();
}

}  // namespace subbyte
