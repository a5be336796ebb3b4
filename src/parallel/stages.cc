#include "parallel/stages.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "parallel/plan_sizes.h"

namespace subbyte {
namespace {

Error refuse(const std::string& message) {
  return {"device.stages", message};
}

/// The N of "layers.N."; nullopt: the operation is of no layer.
std::optional<int64_t> layer_of(const Op& op) {
  constexpr std::string_view kLayers = "layers.";
  const std::string_view name = op.name;
  if (!name.starts_with(kLayers)) return std::nullopt;
  int64_t layer = 0;
  const auto [end, error] =
      std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return layer;
}

/// Calls use(slot) where an operation keeps something of a sequence, or reads it.
template <class Operation, class Use>
void with_slot(Operation& operation, const Use& use) {
  std::visit(
      [&](auto& op) {
        if constexpr (requires { op.cache; }) use(op.cache);
      },
      operation);
}

bool is_angles(const Op& op) {
  return std::holds_alternative<AnglesOp>(op.what);
}

/// By layer and after all of them of the head.
struct Layers {
  std::vector<std::size_t> begins;  // first operations
  std::vector<int64_t> bytes;       // of weights
  /// By layer, whether a stage may begin with it: another one, whose keys and values it or one
  /// after it reads, is -1; else that one.
  std::vector<int64_t> tied_to;

  int64_t count() const { return std::ssize(begins) - 1; }
};

/// Marks the layers after the first one that has a slot, up to the last one.
void mark_ties(const StepPlan& plan, const std::vector<int64_t>& layers,
               std::vector<int64_t>& tied_to) {
  std::map<std::pair<int32_t, int64_t>, int64_t> first;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    with_slot(plan.ops[i].what, [&](const CacheSlot& slot) {
      const int64_t from =
          first.emplace(std::pair(slot.group, slot.layer), layers[i]).first->second;
      for (int64_t layer = from + 1; layer <= layers[i]; ++layer) tied_to[layer] = from;
    });
  }
}

Result<Layers> layers_of(const StepPlan& plan) {
  Layers all;
  std::vector<int64_t> layers;  // by operation
  bool has_head = false;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const std::optional<int64_t> layer = layer_of(plan.ops[i]);
    const int64_t begun = std::ssize(all.begins);
    const bool begins_head = !layer && begun > 0 && !has_head;
    if (layer && (has_head || (*layer != begun && *layer + 1 != begun))) {
      return refuse(plan.ops[i].name + ": the layers of the model do not follow each other");
    }
    has_head = has_head || begins_head;
    if (begins_head || (layer && *layer == begun)) {
      all.begins.push_back(i);
      all.bytes.push_back(0);
    }
    if (!all.bytes.empty()) all.bytes.back() += weight_bytes(plan.ops[i]);
    layers.push_back(std::max<int64_t>(std::ssize(all.begins) - 1, 0));
  }
  if (!has_head) return refuse("the model has no layers");
  all.tied_to.assign(all.begins.size(), -1);
  mark_ties(plan, layers, all.tied_to);
  return all;
}

std::vector<Stage> stages_at(const StepPlan& plan, const Layers& layers,
                             const std::vector<int64_t>& firsts) {
  std::vector<Stage> stages;
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    const bool is_last = i + 1 == firsts.size();
    Stage stage;
    stage.begin = i == 0 ? 0 : layers.begins[firsts[i]];
    stage.end = is_last ? plan.ops.size() : layers.begins[firsts[i + 1]];
    stage.first_layer = firsts[i];
    stage.last_layer = is_last ? layers.count() : firsts[i + 1] - 1;
    stage.num_layers = layers.count();
    stages.push_back(stage);
  }
  return stages;
}

std::string tie_text(int64_t layer, int64_t source) {
  return "layer " + std::to_string(layer) + " or one after it reads what layer " +
         std::to_string(source) + " keeps, so that both are in one stage";
}

/// Values that operations from `cut` on read of those before it, in their order.
std::vector<ValueId> live_at(const StepPlan& plan, std::size_t cut) {
  std::vector<bool> is_before(plan.values.size());
  for (std::size_t i = 0; i < cut; ++i) {
    if (is_angles(plan.ops[i])) continue;
    for (const ValueId id : plan.ops[i].outputs) is_before[id] = true;
  }
  std::set<ValueId> live;
  for (std::size_t i = cut; i < plan.ops.size(); ++i) {
    for (const ValueId id : plan.ops[i].inputs) {
      if (is_before[id]) live.insert(id);
    }
  }
  return {live.begin(), live.end()};
}

/// Layers of the stage alone, in their order.
CacheLayout cache_of(CacheLayout layout, std::vector<Op>& ops) {
  std::vector<std::set<int64_t>> kept(layout.groups.size());
  for (CacheGroup& group : layout.groups) group.layers = group.readers = 0;
  for (Op& op : ops) {
    with_slot(op.what, [&](const CacheSlot& slot) { kept[slot.group].insert(slot.layer); });
    const auto* const attend = std::get_if<AttendOp>(&op.what);
    if (attend != nullptr && !attend->shape.has_keys) ++layout.groups[attend->cache.group].readers;
  }
  for (Op& op : ops) {
    with_slot(op.what, [&](CacheSlot& slot) {
      const std::set<int64_t>& layers = kept[slot.group];
      slot.layer = std::distance(layers.begin(), layers.find(slot.layer));
    });
  }
  for (std::size_t i = 0; i < kept.size(); ++i) layout.groups[i].layers = std::ssize(kept[i]);
  return layout;
}

/// Angles before the stage that it reads.
void add_angles(const StepPlan& plan, const Stage& stage, std::vector<Op>& ops) {
  std::set<ValueId> read;
  for (std::size_t i = stage.begin; i < stage.end; ++i) {
    read.insert(plan.ops[i].inputs.begin(), plan.ops[i].inputs.end());
  }
  for (std::size_t i = 0; i < stage.begin; ++i) {
    const Op& op = plan.ops[i];
    if (is_angles(op) && read.contains(op.outputs.front())) ops.push_back(op);
  }
}

}  // namespace

std::string to_string(const Stage& stage) {
  const int64_t last = stage.has_head() ? stage.num_layers - 1 : stage.last_layer;
  std::string text;
  if (stage.first_layer == last) {
    text = "layer " + std::to_string(last);
  } else if (stage.first_layer < last) {
    text = "layers " + std::to_string(stage.first_layer) + " to " + std::to_string(last);
  }
  if (!stage.has_head()) return text;
  return text.empty() ? "the head" : text + " and the head";
}

/// Of all ways to put the layers up to one into some stages, the one whose largest is the smallest.
Result<std::vector<Stage>> even_stages(const StepPlan& plan, int stages) {
  SUBBYTE_TRY(const Layers layers, layers_of(plan));
  const int64_t count = layers.count();
  if (stages > count) {
    return refuse("a pipeline of " + std::to_string(stages) +
                  " stages, which have a layer each at least, and the model has " +
                  std::to_string(count) + " layers");
  }
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const auto columns = static_cast<std::size_t>(count) + 1;
  // By stages and layers that they have together: the bytes of the largest, and where the last
  // stage begins.
  std::vector<std::vector<int64_t>> best(stages + 1, std::vector<int64_t>(columns, kNone));
  std::vector<std::vector<int64_t>> from(stages + 1, std::vector<int64_t>(columns));
  best[0][0] = 0;
  for (int stage = 1; stage <= stages; ++stage) {
    for (int64_t end = stage; end <= count; ++end) {
      int64_t own = end == count ? layers.bytes[count] : 0;
      for (int64_t begin = end - 1; begin >= stage - 1; --begin) {
        own += layers.bytes[begin];
        const int64_t largest = std::max(best[stage - 1][begin], own);
        if (layers.tied_to[begin] >= 0 || largest >= best[stage][end]) continue;
        best[stage][end] = largest;
        from[stage][end] = begin;
      }
    }
  }
  if (best[stages][count] == kNone) {
    const auto tied = std::ranges::find_if(layers.tied_to, [](int64_t one) { return one >= 0; });
    return refuse("no " + std::to_string(stages) +
                  " stages: " + tie_text(tied - layers.tied_to.begin(), *tied));
  }
  std::vector<int64_t> firsts;
  for (int64_t end = count, stage = stages; stage > 0; --stage) {
    end = from[stage][end];
    firsts.insert(firsts.begin(), end);
  }
  return stages_at(plan, layers, firsts);
}

Result<std::vector<Stage>> stages_with_last(const StepPlan& plan, int64_t layers) {
  SUBBYTE_TRY(const Layers all, layers_of(plan));
  if (layers < 1 || layers > all.count()) {
    return refuse("expected 1 to " + std::to_string(all.count()) +
                  " layers of the last stage, found " + std::to_string(layers));
  }
  const int64_t first = all.count() + 1 - layers;
  if (all.tied_to[first] >= 0) {
    return refuse(std::to_string(layers) +
                  " layers of the last stage: " + tie_text(first, all.tied_to[first]));
  }
  return stages_at(plan, all, {0, first});
}

StepPlan plan_of_stage(const StepPlan& plan, const Stage& stage) {
  StepPlan own = {plan.values, {}, {}};
  int64_t before = 0;
  for (const ValueId id : live_at(plan, stage.begin)) {
    StepValue& value = own.values[id];
    value.in_place_of = kNoValue;
    own.ops.push_back({"stage.received", {}, {id}, ReceiveOp{id, value.cols, value.type, before}});
    before += value.cols;
  }
  add_angles(plan, stage, own.ops);
  own.ops.insert(own.ops.end(), plan.ops.begin() + static_cast<std::ptrdiff_t>(stage.begin),
                 plan.ops.begin() + static_cast<std::ptrdiff_t>(stage.end));
  before = 0;
  for (const ValueId id : live_at(plan, stage.end)) {
    own.ops.push_back({"stage.sent", {id}, {}, SendOp{id, before}});
    before += plan.value(id).cols;
  }
  own.cache = cache_of(plan.cache, own.ops);
  return own;
}

StageParts parts_of(const StepPlan& plan, const Stage& stage) {
  const StepPlan own = plan_of_stage(plan, stage);
  return {weight_bytes(own), own.cache};
}

}  // namespace subbyte
