#include "models/gguf_writing.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/quote.h"
#include "models/expert_config.h"
#include "models/gguf_config.h"
#include "models/gguf_rope.h"
#include "models/model.h"
#include "models/model_family.h"
#include "models/rope_config.h"

namespace subbyte {
namespace {

using json::Value;

constexpr std::string_view kLayers = "layers.";
constexpr float kStill = 1e30F;  // divides frequencies by which nothing turns

uint32_t whole(int64_t value) {
  return static_cast<uint32_t>(value);
}

/// Frequencies and factors of GGUF are F32.
bool are_near(std::span<const double> a, std::span<const double> b) {
  const auto near = [](double x, double y) { return std::abs(x - y) <= 1e-6 * std::abs(x); };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), near);
}

bool are_near(const Rope& a, const Rope& b) {
  const double factors[] = {a.attention_factor(), b.attention_factor()};
  return are_near(a.inv_freq(), b.inv_freq()) && are_near(a.long_inv_freq(), b.long_inv_freq()) &&
         are_near(std::span(factors).first(1), std::span(factors).last(1)) &&
         a.long_after() == b.long_after();
}

/// The base of which all frequencies follow: the one that config.json says, or a larger one.
double base_of_all(const Rope& rope, double said) {
  const auto gives = [&](double base) {
    return are_near(rope_frequencies(rope.dim(), base), rope.inv_freq());
  };
  const auto other = base_of(rope);
  return other && !gives(said) && gives(*other) ? *other : said;
}

/// What the step has in a layer; 0: nothing of it.
struct LayerSizes {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t inner = 0;  // of its first block that is no attention
  bool attends = false;
  bool slides = false;
  const Rope* rope = nullptr;
};

class LayerReader {
 public:
  LayerReader(const StepPlan& plan, int64_t num_layers)
      : plan_(plan), layers_(static_cast<std::size_t>(num_layers)) {}

  std::vector<LayerSizes> read() && {
    for (const Op& op : plan_.ops) {
      std::size_t layer = 0;
      const char* const number = op.name.data() + kLayers.size();
      if (!op.name.starts_with(kLayers)) continue;
      std::from_chars(number, op.name.data() + op.name.size(), layer);
      if (layer >= layers_.size()) continue;
      std::visit([&](const auto& what) { read(what, layers_[layer]); }, op.what);
    }
    return std::move(layers_);
  }

 private:
  template <class Kind>
  void read(const Kind& op, LayerSizes& layer) const {
    if constexpr (std::is_same_v<Kind, AttendOp>) {
      layer.attends = true;
      layer.kv_heads = op.shape.kv_heads;
      layer.head_dim = op.shape.head_dim;
      layer.slides = op.shape.window > 0 && !op.shape.in_chunks;
    } else if constexpr (std::is_same_v<Kind, RotateOp>) {
      for (const AnglesOp* const angles : ops_of<AnglesOp>(plan_)) {
        if (angles->cos == op.cos) layer.rope = angles->rope.get();
      }
    } else if (layer.inner != 0) {
      return;
    } else if constexpr (std::is_same_v<Kind, GatedLinearOp>) {
      layer.inner = op.gate_up.rows / 2;
    } else if constexpr (std::is_same_v<Kind, LinearOp>) {
      if (op.squares_relu) layer.inner = op.weight.rows;
    } else if constexpr (std::is_same_v<Kind, ExpertsOp>) {
      layer.inner = op.experts.inner;
    }
  }

  const StepPlan& plan_;
  std::vector<LayerSizes> layers_;
};

class Writer {
 public:
  Writer(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys)
      : architecture_(architecture), model_(model), keys_(keys) {}

  /// What the operations of the step say.
  void add_step(const StepPlan& plan) {
    for (const Op& op : plan.ops) {
      std::visit([&](const auto& what) { add_sizes_of(what); }, op.what);
    }
    const std::vector<LayerSizes> layers = LayerReader(plan, model_.num_layers).read();
    for (const GgufKeyRule& rule : architecture_.keys) {
      if (rule.is(kGgufByLayer)) add_layers(rule.name, layers);
    }
  }

  void add_sizes(const json::Object& config) {
    const Value* const positions = config.find("max_position_embeddings");
    const bool says = positions != nullptr && positions->is_number_integer();
    add("context_length", says ? positions->get<int64_t>() : model_.max_positions);
    add("embedding_length", model_.hidden_size);
    add("block_count", model_.num_layers);
    if (model_.intermediate_size > 0) add("feed_forward_length", model_.intermediate_size);
    add("attention.head_count", model_.num_heads);
    add("attention.head_count_kv", model_.num_kv_heads);
    add("attention.key_length", model_.head_dim);
    add("attention.value_length", model_.head_dim);
    add("vocab_size", model_.vocab_size);
    keys_.number(key("attention.layer_norm_rms_epsilon"), model_.rms_norm_eps);
  }

  void add_rules(const json::Object& config) {
    for (const GgufKeyRule& rule : architecture_.keys) {
      if (rule.is(kGgufByFamily) || !rule.times.empty()) continue;
      const Value* const given = config.find(rule.key);
      const bool is_given = given != nullptr && !given->is_null();
      const Value value = is_given ? *given : said_of(model_, rule.key);
      if (value.is_null()) continue;
      if (value.is_boolean()) {
        keys_.flag(key(rule.name), value.get<bool>());
      } else if (rule.is(kGgufFloat) || value.is_number_float()) {
        keys_.number(key(rule.name), value.get<float>());
      } else {
        add(rule.name, value.get<int64_t>());
      }
    }
  }

  /// What config.json may leave out, as files have other defaults or none, or may say otherwise.
  void add_computed() {
    const int64_t window = model_.windows.empty() ? 0 : std::ranges::max(model_.windows);
    if (window > 0) add_ruled("attention.sliding_window", window);
    const ExpertConfig* const experts = model_.own.experts();
    if (experts != nullptr && experts->count > 0) add_experts(*experts);
  }

  Status add_rope(const json::Object& config, std::vector<GgufConfigTensor>& tensors) {
    SUBBYTE_TRY(const SaidRope said, said_rope(config, model_));
    const double base = base_of_all(model_.rope, said.theta);
    keys_.number(key("rope.freq_base"), static_cast<float>(base));
    add("rope.dimension_count", model_.rope.dim());
    const Value& section = said.section;
    const Value& named = section.at("rope_type");
    const std::string& type = (named.is_null() ? section.at("type") : named).string();
    const Rope unscaled(model_.rope.dim(), base);
    const auto divisors = [&](std::span<const double> scaled) {
      std::vector<float> numbers;
      for (std::size_t i = 0; i < scaled.size(); ++i) {
        numbers.push_back(scaled[i] == 0 ? kStill
                                         : static_cast<float>(unscaled.inv_freq()[i] / scaled[i]));
      }
      return numbers;
    };
    if (model_.rope.long_after() > 0) {
      keys_.text(key("rope.scaling.type"), "longrope");
      add("rope.scaling.original_context_length", model_.rope.long_after());
      keys_.number(key("rope.scaling.attn_factor"),
                   static_cast<float>(model_.rope.attention_factor()));
      tensors.push_back({"rope_factors_long.weight", divisors(model_.rope.long_inv_freq())});
      tensors.push_back({"rope_factors_short.weight", divisors(model_.rope.inv_freq())});
    } else if (type == "linear" || type == "yarn") {
      add_scaling(section, type);
    } else if (!are_near(unscaled, model_.rope)) {
      tensors.push_back({"rope_freqs.weight", divisors(model_.rope.inv_freq())});
    }
    return {};
  }

 private:
  std::string key(std::string_view name) const { return architecture_.key(name); }
  void add(std::string_view name, int64_t value) { keys_.whole(key(name), whole(value)); }

  template <class Kind>
  void add_sizes_of(const Kind& op) {
    if constexpr (requires { op.sizes(); }) {
      for (const MixerSize& one : op.sizes()) add(one.key, one.size);
    } else if constexpr (std::is_same_v<Kind, ExpertsOp>) {
      add_ruled("expert_count", op.experts.count);
      add_ruled("expert_used_count", op.experts.top_k);
      add_ruled("expert_feed_forward_length", op.experts.inner);
    }
  }

  /// A list, or one number where all layers have the same.
  void add_list(std::string_view name, const std::vector<LayerSizes>& layers,
                int64_t LayerSizes::*size) {
    std::vector<int32_t> numbers;
    for (const LayerSizes& layer : layers) numbers.push_back(static_cast<int32_t>(layer.*size));
    if (std::ranges::count(numbers, numbers.front()) == std::ssize(numbers)) {
      add(name, numbers.front());
    } else {
      keys_.wholes(key(name), numbers);
    }
  }

  /// Names that end in "_swa" are of layers that slide, beside those of others.
  void add_layers(std::string_view name, const std::vector<LayerSizes>& layers) {
    const auto flags = [&](const auto& is_one) {
      std::vector<bool> are;
      for (const LayerSizes& layer : layers) are.push_back(is_one(layer));
      if (std::ranges::find(are, true) != are.end()) keys_.flags(key(name), are);
    };
    if (name == "attention.head_count_kv") return add_list(name, layers, &LayerSizes::kv_heads);
    if (name == "feed_forward_length") return add_list(name, layers, &LayerSizes::inner);
    if (name == "attention.recurrent_layers") return flags([](auto& one) { return !one.attends; });
    if (name == "attention.sliding_window_pattern")
      return flags([](auto& one) { return one.slides; });
    const bool slides = name.ends_with("_swa");
    const auto first = std::ranges::find_if(
        layers, [&](const LayerSizes& one) { return one.attends && one.slides == slides; });
    if (first == layers.end()) return;
    if (name.starts_with("attention.")) return add(name, first->head_dim);
    if (first->rope == nullptr) return;
    if (name == "rope.dimension_count_swa") return add(name, first->rope->dim());
    if (const auto base = base_of(*first->rope)) keys_.number(key(name), static_cast<float>(*base));
  }

  const GgufKeyRule* rule_of(std::string_view name) const {
    const auto found = std::ranges::find(architecture_.keys, name, &GgufKeyRule::name);
    return found == architecture_.keys.end() || found->is(kGgufByFamily) ? nullptr : &*found;
  }
  void add_ruled(std::string_view name, int64_t value) {
    if (rule_of(name) != nullptr) add(name, value);
  }

  void add_experts(const ExpertConfig& experts) {
    const auto& layers = experts.layers;
    const auto first = std::ranges::find(layers, true);
    if (first != layers.end()) {
      const auto second = std::find(first + 1, layers.end(), true);
      add_ruled("leading_dense_block_count", first - layers.begin());
      // Where one layer has experts, it is the last of so many, too.
      add_ruled("interleave_moe_layer_step",
                second == layers.end() ? first - layers.begin() + 1 : second - first);
    }
    const Routing& routing = experts.routing;
    if (rule_of("expert_weights_scale") != nullptr) {
      keys_.number(key("expert_weights_scale"), static_cast<float>(routing.factor));
    }
    // Where they add up without the key, they always do.
    const GgufKeyRule* const norm = rule_of("expert_weights_norm");
    if (norm != nullptr && norm->absent == "false") keys_.flag(key(norm->name), routing.normalises);
  }

  void add_scaling(const Value& section, const std::string& type) {
    keys_.text(key("rope.scaling.type"), type);
    keys_.number(key("rope.scaling.factor"), section.at("factor").get<float>());
    if (type != "yarn") return;
    const Value& log = section.at("mscale_all_dim");
    if (architecture_.yarn_log != 0 && log.is_number()) {
      keys_.number(key("rope.scaling.yarn_log_multiplier"),
                   static_cast<float>(architecture_.yarn_log * log.get<double>()));
    }
    const Value& original = section.at("original_max_position_embeddings");
    if (original.is_number()) {
      add("rope.scaling.original_context_length", original.get<int64_t>());
    }
    for (const auto& [name, member] :
         {std::pair("rope.scaling.yarn_beta_fast", "beta_fast"),
          std::pair("rope.scaling.yarn_beta_slow", "beta_slow"),
          std::pair("rope.scaling.yarn_attn_factor", "attention_factor")}) {
      if (section.at(member).is_number()) {
        keys_.number(key(name), section.at(member).get<float>());
      }
    }
  }

  const GgufArchitecture& architecture_;
  const ModelConfig& model_;
  GgufKeys& keys_;
};

/// What two configs of one architecture differ in; empty where they say the same.
std::string_view difference_of(const ModelConfig& a, const ModelConfig& b) {
  if (a.windows != b.windows) return "the windows of its layers";
  if (!are_near(a.rope, b.rope)) return "its rotary embedding";
  if (a.attention_bias != b.attention_bias) return "attention_bias";
  if (a.own != b.own) return "keys that only its family has";
  ModelConfig same = b;
  same.rope = a.rope;
  same.eos_tokens = a.eos_tokens;
  same.contradicts_ties = a.contradicts_ties;
  // Where the head is the embedding, the file has one of them.
  same.tie_word_embeddings = a.tie_word_embeddings;
  same.max_positions = a.max_positions;
  return same == a ? "" : "its sizes";
}

}  // namespace

Result<const GgufArchitecture*> gguf_architecture_for(const ModelConfig& model) {
  const auto& architectures = family_of(model).gguf;
  const auto found = std::ranges::find_if(architectures, [&](const GgufArchitecture& row) {
    return row.model_type == model.model_type && (row.holds == nullptr || row.holds(model));
  });
  if (found != architectures.end()) return &*found;
  return Error{"gguf.architecture",
               fmt::format("GGUF files of {} models are not written", quote(model.model_type))};
}

Result<GgufName> gguf_name_of(const GgufArchitecture& architecture, std::string_view module,
                              std::string_view ending) {
  std::string place;
  std::string_view rest = module;
  if (rest.starts_with(kLayers)) {
    const std::size_t dot = rest.find('.', kLayers.size());
    place = fmt::format("blk.{}.", rest.substr(kLayers.size(), dot - kLayers.size()));
    rest.remove_prefix(dot + 1);
  }
  const std::string outside = rest == kHead ? std::string(rest) : fmt::format("model.{}", rest);
  const GgufTensorRule* const rule =
      find_gguf_module(architecture, place.empty() ? std::string_view(outside) : rest);
  if (rule == nullptr) {
    return Error{"gguf.tensor", fmt::format("{}: {} has no place for it", quote_name(module),
                                            quote(architecture.name))};
  }
  const std::size_t mark = rule->module.find('!');
  if (mark != rule->module.npos) ending = rule->module.substr(mark + 1);
  return GgufName{fmt::format("{}{}{}", place, rule->name, ending), rule->change};
}

Status add_gguf_config(const GgufArchitecture& architecture, const ModelConfig& model,
                       const json::Object& config, GgufKeys& keys,
                       std::vector<GgufConfigTensor>& tensors) {
  keys.text("general.architecture", architecture.name);
  keys.text("general.type", "model");
  keys.whole("general.quantization_version", 2);
  if (architecture.add_keys != nullptr) architecture.add_keys(architecture, model, keys);
  SUBBYTE_TRY(const StepPlan plan, plan_of(model));
  Writer writer(architecture, model, keys);
  writer.add_step(plan);
  if (architecture.gating != 1) {
    keys.whole(architecture.key("expert_gating_func"), whole(architecture.gating));
  }
  writer.add_computed();
  writer.add_rules(config);
  writer.add_sizes(config);
  return writer.add_rope(config, tensors);
}

Status check_gguf_config(const GgufFile& beginning, const GgufArchitecture& architecture,
                         const ModelConfig& model, const json::Object& config) {
  SUBBYTE_TRY(Value value, gguf_config(GgufModel::of(beginning), architecture));
  const std::string& where = config.where();
  // Of the type in which a model was trained GGUF says nothing.
  for (const char* const key : {"dtype", "torch_dtype"}) {
    value.erase(key);
    if (config.find(key) != nullptr) value[key] = *config.find(key);
  }
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, where));
  SUBBYTE_TRY(const ModelConfig found, parse_model_config(object));
  const std::string_view other = difference_of(model, found);
  if (other.empty()) return {};
  return Error{"gguf.value",
               fmt::format("{}: GGUF has no words for what it says of {}", where, other)};
}

}  // namespace subbyte
