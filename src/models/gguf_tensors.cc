#include "models/gguf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/quote.h"
#include "checkpoints/expert_names.h"
#include "models/gguf_config.h"

namespace subbyte {
namespace {

using Rows = std::shared_ptr<const std::vector<uint32_t>>;

constexpr std::string_view kBlock = "blk.";
constexpr int64_t kMaxRows = int64_t{1} << 24;
constexpr std::size_t kMaxTensors = 1 << 18;  // each expert has some; real models have 70,000

/// Those of all architectures.
constexpr GgufTensorRule kTensors[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate_inp", "mlp.gate"},
    {"exp_probs_b", "mlp.gate.e_score_correction_bias!.bias"},
    {"ffn_gate_exps", "mlp.experts.gate_proj", GgufChange::kExperts},
    {"ffn_up_exps", "mlp.experts.up_proj", GgufChange::kExperts},
    {"ffn_down_exps", "mlp.experts.down_proj", GgufChange::kExperts},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};

constexpr GgufTensorRule kPairedHeads[] = {
    {"attn_q", "self_attn.q_proj", GgufChange::kPairedQueries},
    {"attn_k", "self_attn.k_proj", GgufChange::kPairedKeys},
};

/// "blk.3.attn_q.weight" in parts.
struct TensorName {
  int64_t layer = -1;  // of none; not below 0
  std::string_view module;
  std::string_view ending;  // ".weight", ".bias" or ""
};

TensorName parts_of(std::string_view name) {
  TensorName parts;
  if (name.starts_with(kBlock)) {
    const char* const first = name.data() + kBlock.size();
    const auto [end, error] = std::from_chars(first, name.data() + name.size(), parts.layer);
    const bool is_place = error == std::errc() && parts.layer >= 0;
    if (is_place && end != name.data() + name.size() && *end == '.') {
      name.remove_prefix(static_cast<std::size_t>(end + 1 - name.data()));
    } else {
      parts.layer = -1;
    }
  }
  for (const std::string_view ending : {".weight", ".bias", ".scale", ".input_scale"}) {
    if (!name.ends_with(ending)) continue;
    parts.ending = ending;
    name.remove_suffix(ending.size());
  }
  parts.module = name;
  return parts;
}

class Namer {
 public:
  Namer(const GgufModel& model, const GgufArchitecture& architecture, const TensorSource& source,
        std::vector<Error>* problems)
      : model_(model), architecture_(architecture), source_(source), problems_(problems) {}

  Result<TensorSource> run() {
    SUBBYTE_TRY(const auto heads, gguf_integer(model_.keys(), "attention.head_count"));
    const auto kv_heads = gguf_integer(model_.keys(), "attention.head_count_kv");
    SUBBYTE_TRY(const auto layers, gguf_integer(model_.keys(), "block_count"));
    SUBBYTE_TRY(const auto drafts, gguf_integer(model_.keys(), "nextn_predict_layers"));
    heads_ = heads.value_or(1);
    // Families whose layers differ have no rows that are put back by them.
    if (architecture_.pairs_heads && !kv_heads.ok()) return kv_heads.error();
    kv_heads_ = kv_heads.ok() ? kv_heads->value_or(heads_) : 0;
    all_layers_ = layers.value_or(0);
    layers_ = all_layers_ - drafts.value_or(0);
    SUBBYTE_TRY(const auto experts, gguf_integer(model_.keys(), "expert_count"));
    experts_ = experts.value_or(0);
    SUBBYTE_TRY(const auto key_heads, gguf_integer(model_.keys(), "ssm.group_count"));
    SUBBYTE_TRY(const auto value_heads, gguf_integer(model_.keys(), "ssm.time_step_rank"));
    SUBBYTE_TRY(const auto key_size, gguf_integer(model_.keys(), "ssm.state_size"));
    key_heads_ = key_heads.value_or(0);
    value_heads_ = value_heads.value_or(0);
    key_size_ = key_size.value_or(0);
    for (const auto& [name, tensor] : source_.tensors()) {
      Status added = add(tensor);
      if (added.ok()) continue;
      if (problems_ == nullptr) return added.error();
      problems_->push_back(std::move(added).error());
    }
    return source_.with(std::move(result_), std::move(rates_));
  }

 private:
  Error wrong(const FileTensor& tensor, std::string_view problem) const {
    return {"gguf.tensor", fmt::format("{}: tensor {}: {}", tensor.file->path().string(),
                                       quote_name(tensor.name), problem)};
  }

  /// Layers of the part that drafts are not read; others would be missed.
  Status check_draft(const FileTensor& tensor, int64_t layer) const {
    if (layer < all_layers_) return {};
    return wrong(tensor, fmt::format("expected a layer below {} (block_count)", all_layers_));
  }

  /// Last dimensions of 1 say nothing: GGUF has four of each tensor.
  Status drop_ones(GgufChange change, FileTensor& tensor) const {
    const std::size_t most = change == GgufChange::kHeads ? 3 : 2;
    std::vector<uint64_t>& shape = tensor.shape;
    while (shape.size() > most && shape.front() == 1) shape.erase(shape.begin());
    if (shape.size() <= most) return {};
    return wrong(tensor, fmt::format("expected {} dimensions, found {}", most, shape.size()));
  }

  bool is_scale_of_family(std::string_view module) const {
    return find_gguf_tensor(architecture_, std::string(module) + ".scale") != nullptr;
  }

  Status add(const FileTensor& tensor) {
    TensorName parts = parts_of(tensor.name);
    if (parts.layer >= layers_) return check_draft(tensor, parts.layer);
    // A vector beside others, and not the factor of a matrix.
    const bool is_named = parts.ending == ".scale" && tensor.name.ends_with(".scale") &&
                          is_scale_of_family(parts.module);
    if (is_named) parts.ending = "";
    const std::string named = std::string(parts.module) + (is_named ? ".scale" : "");
    const GgufTensorRule* const rule = find_gguf_tensor(architecture_, named);
    if (rule == nullptr) {
      return wrong(tensor,
                   fmt::format("not part of the architecture {}", quote(architecture_.name)));
    }
    // Of activations, which are not quantized here.
    if (rule->module.empty() || parts.ending == ".input_scale") return {};
    // The factor of all of a matrix, which no change of rows touches.
    if (parts.ending == ".scale" && rule->change != GgufChange::kExperts) {
      if (tensor.shape.size() != 1) return wrong(tensor, "expected one factor");
    }
    std::string module(rule->module);
    if (parts.layer >= 0) module = fmt::format("model.layers.{}.{}", parts.layer, rule->module);
    if (rule->change == GgufChange::kExperts) return add_experts(tensor, module, parts.ending);
    if (rule->change == GgufChange::kBetaAlpha) return add_beta_alpha(tensor, module);
    FileTensor found = tensor;
    SUBBYTE_CHECK(drop_ones(rule->change, found));
    // Of a module of its own, or a parameter beside others.
    const std::size_t mark = module.find('!');
    const bool is_parameter = mark != module.npos;
    if (is_parameter) module.resize(mark);
    found.name = is_parameter ? module : module + std::string(parts.ending);
    const bool has_own_bias =
        rule->change == GgufChange::kFilters || rule->change == GgufChange::kPlusOne;
    const bool is_as_it_is = parts.ending == ".scale" || (parts.ending == ".bias" && has_own_bias);
    if (!is_as_it_is) SUBBYTE_CHECK(undo(rule->change, found));
    return put(std::move(found));
  }

  Status put(FileTensor tensor) {
    const std::string name = tensor.name;
    if (result_.size() >= kMaxTensors) {
      return Error{"gguf.limit", fmt::format("{}: expected at most {} matrices",
                                             model_.keys().path().string(), kMaxTensors)};
    }
    if (result_.emplace(name, std::move(tensor)).second) return {};
    return Error{"gguf.tensor", fmt::format("{}: two tensors are {}", model_.keys().path().string(),
                                            quote_name(name))};
  }

  Status undo(GgufChange change, FileTensor& tensor) {
    if (change == GgufChange::kPlusOne) return subtract_one(tensor);
    if (change == GgufChange::kPairedQueries) return unpair(tensor, heads_);
    if (change == GgufChange::kPairedKeys) return unpair(tensor, kv_heads_);
    if (change == GgufChange::kHeads) {
      if (tensor.shape.size() != 3) return wrong(tensor, "expected a matrix for each head");
      tensor.shape = {tensor.shape[0] * tensor.shape[1], tensor.shape[2]};
    }
    const bool is_list = change == GgufChange::kColumn || change == GgufChange::kGroups ||
                         change == GgufChange::kNegativeExpColumn;
    if (is_list && tensor.shape.size() == 2) tensor.shape = {tensor.shape[0] * tensor.shape[1]};
    const bool is_exp =
        change == GgufChange::kNegativeExp || change == GgufChange::kNegativeExpColumn;
    if (is_exp) return take_logarithm(tensor);
    if (change == GgufChange::kTiledNegativeExp) {
      SUBBYTE_CHECK(untile_rows(tensor, 0));
      return take_logarithm(tensor);
    }
    if (change == GgufChange::kTiledHeads) return untile_rows(tensor, 0);
    if (change == GgufChange::kTiledValues) return untile_rows(tensor, 2 * key_heads_ * key_size_);
    if (change == GgufChange::kTiledColumns) return untile_columns(tensor);
    if (change == GgufChange::kFilters || change == GgufChange::kTiledFilters) {
      if (tensor.shape.size() != 2) return wrong(tensor, "expected filters of channels");
      if (change == GgufChange::kTiledFilters) {
        if (tensor.dtype != DType::kF32) return wrong(tensor, "expected filters of F32");
        SUBBYTE_CHECK(untile_rows(tensor, 2 * key_heads_ * key_size_));
      }
      tensor.shape.insert(tensor.shape.begin() + 1, 1);
    }
    if (change == GgufChange::kRow && tensor.shape.size() == 1) {
      tensor.shape.insert(tensor.shape.begin(), 1);
    }
    return {};
  }

  /// Numbers of F32 in memory.
  Result<std::vector<float>> floats_of(const FileTensor& tensor) const {
    if (tensor.dtype != DType::kF32 || tensor.shape.size() != 1) {
      return wrong(tensor, "expected a list of F32");
    }
    std::vector<float> numbers(tensor.shape[0]);
    std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
    return numbers;
  }

  static void set(FileTensor& tensor, std::span<const float> numbers) {
    tensor.file = std::make_shared<const MappedFile>(
        MappedFile::of(std::as_bytes(numbers), tensor.file->path()));
    tensor.bytes = tensor.file->bytes();
  }

  Status subtract_one(FileTensor& tensor) {
    SUBBYTE_TRY(auto numbers, floats_of(tensor));
    for (float& number : numbers) number -= 1;
    set(tensor, numbers);
    return {};
  }

  Status take_logarithm(FileTensor& tensor) {
    SUBBYTE_TRY(auto numbers, floats_of(tensor));
    std::vector<float>& rates = rates_[tensor.name];
    rates = numbers;
    for (float& number : numbers) {
      if (!(number < 0)) return wrong(tensor, "expected numbers below 0");
      number = static_cast<float>(std::log(-double{number}));
    }
    set(tensor, numbers);
    return {};
  }

  /// Value heads that lie in tiles are put by key head: the place in the file of each.
  Result<std::vector<uint32_t>> heads_of(const FileTensor& tensor, int64_t size) const {
    const bool fits = key_heads_ > 0 && value_heads_ > 0 && value_heads_ % key_heads_ == 0 &&
                      value_heads_ <= size && size <= kMaxRows && size % value_heads_ == 0;
    if (!fits) {
      return wrong(tensor, fmt::format("expected values of {} heads, as many for each of {}",
                                       value_heads_, key_heads_));
    }
    std::vector<uint32_t> heads;
    const int64_t each = value_heads_ / key_heads_;
    for (int64_t i = 0; i < value_heads_; ++i) {
      heads.push_back(static_cast<uint32_t>(i % each * key_heads_ + i / each));
    }
    return heads;
  }

  Status untile_rows(FileTensor& tensor, int64_t first) {
    const auto rows = static_cast<int64_t>(tensor.shape.front());
    const int64_t values = first < 0 || first > kMaxRows ? 0 : rows - first;
    SUBBYTE_TRY(const auto heads, heads_of(tensor, values));
    if (key_heads_ == value_heads_) return {};
    std::vector<uint32_t> list;
    list.reserve(static_cast<std::size_t>(rows));
    for (int64_t i = 0; i < first; ++i) list.push_back(static_cast<uint32_t>(i));
    const int64_t size = values / value_heads_;
    for (const uint32_t head : heads) {
      for (int64_t i = 0; i < size; ++i) {
        list.push_back(static_cast<uint32_t>(first + head * size + i));
      }
    }
    return order_rows(tensor, std::move(list));
  }

  Status untile_columns(FileTensor& tensor) {
    const bool is_matrix = tensor.shape.size() == 2 && tensor.shape[1] <= uint64_t{kMaxRows};
    if (!is_matrix) return wrong(tensor, "expected a matrix");
    SUBBYTE_TRY(auto heads, heads_of(tensor, static_cast<int64_t>(tensor.shape[1])));
    if (key_heads_ == value_heads_) return {};
    tensor.cols = std::make_shared<const std::vector<uint32_t>>(std::move(heads));
    return {};
  }

  /// The matrix of rows of this one; of filters and lists, which are small, in memory.
  Status order_rows(FileTensor& tensor, std::vector<uint32_t> list) {
    const std::size_t size = tensor.bytes.size() / tensor.shape.front();
    tensor.shape.front() = list.size();
    if (tensor.dtype != DType::kF32) {
      if (tensor.shape.size() != 2) return wrong(tensor, "expected a list of F32");
      tensor.rows = std::make_shared<const std::vector<uint32_t>>(std::move(list));
      return {};
    }
    std::vector<float> numbers(list.size() * size / sizeof(float));
    for (std::size_t i = 0; i < list.size(); ++i) {
      std::memcpy(&numbers[i * size / sizeof(float)], &tensor.bytes[list[i] * size], size);
    }
    set(tensor, numbers);
    return {};
  }

  Status add_beta_alpha(const FileTensor& tensor, const std::string& module) {
    const int64_t each = key_heads_ < 1 ? 0 : value_heads_ / key_heads_;
    const bool fits = each > 0 && value_heads_ <= kMaxRows && tensor.shape.size() == 2 &&
                      tensor.shape.front() == static_cast<uint64_t>(2 * each * key_heads_);
    if (!fits) return wrong(tensor, fmt::format("expected outputs for {} heads", value_heads_));
    for (const int64_t half : {0, 1}) {
      std::vector<uint32_t> list;
      for (int64_t i = 0; i < each * key_heads_; ++i) {
        list.push_back(static_cast<uint32_t>(i / each * 2 * each + half * each + i % each));
      }
      FileTensor part = tensor;
      part.name = module + (half == 0 ? "in_proj_b.weight" : "in_proj_a.weight");
      SUBBYTE_CHECK(order_rows(part, std::move(list)));
      SUBBYTE_CHECK(put(std::move(part)));
    }
    return {};
  }

  /// Row i of each half of a head is row 2 i, and 2 i + 1, of its pairs.
  Status unpair(FileTensor& tensor, int64_t heads) {
    const auto rows = static_cast<int64_t>(tensor.shape.front());
    if (heads < 1 || heads > rows / 2 || rows > kMaxRows || rows % (2 * heads) != 0) {
      return wrong(tensor,
                   fmt::format("expected {} heads of an even size, found {} outputs", heads, rows));
    }
    const Rows order = order_of(heads, rows);
    if (tensor.shape.size() > 1) {
      tensor.rows = order;
      return {};
    }
    SUBBYTE_TRY(const auto numbers, floats_of(tensor));
    std::vector<float> halves(numbers.size());
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = numbers[(*order)[i]];
    set(tensor, halves);
    return {};
  }

  /// One for all layers.
  Rows order_of(int64_t heads, int64_t rows) {
    Rows& order = orders_[{heads, rows}];
    if (order != nullptr) return order;
    std::vector<uint32_t> list(static_cast<std::size_t>(rows));
    const int64_t size = rows / heads;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t in_head = i % size;
      const int64_t pair = in_head % (size / 2);
      const int64_t half = in_head / (size / 2);
      list[static_cast<std::size_t>(i)] = static_cast<uint32_t>(i - in_head + 2 * pair + half);
    }
    order = std::make_shared<const std::vector<uint32_t>>(std::move(list));
    return order;
  }

  /// The matrices, or biases, of all experts, each by its own name.
  Status add_experts(const FileTensor& stack, const std::string& module, std::string_view ending) {
    const uint64_t experts = stack.shape.front();
    if (static_cast<int64_t>(experts) != experts_) {
      return wrong(stack, fmt::format("expected a stack of {} experts (expert_count), found {}",
                                      experts_, experts));
    }
    const std::size_t rank = ending == ".scale" ? 1 : ending == ".bias" ? 2 : 3;
    if (stack.shape.size() != rank) {
      return wrong(stack, "expected a stack of all experts");
    }
    const std::size_t bytes = stack.bytes.size() / experts;
    for (uint64_t e = 0; e < experts; ++e) {
      FileTensor tensor = stack;
      tensor.name = expert_name(module, static_cast<int64_t>(e)) + std::string(ending);
      tensor.shape.erase(tensor.shape.begin());
      if (tensor.shape.empty()) tensor.shape = {1};
      tensor.bytes = stack.bytes.subspan(e * bytes, bytes);
      SUBBYTE_CHECK(put(std::move(tensor)));
    }
    return {};
  }

  const GgufModel& model_;
  const GgufArchitecture& architecture_;
  const TensorSource& source_;
  std::vector<Error>* problems_;
  int64_t heads_ = 1;
  int64_t kv_heads_ = 1;
  int64_t layers_ = 0;
  int64_t all_layers_ = 0;  // with those of the part that drafts
  int64_t experts_ = 0;
  int64_t key_heads_ = 0;  // of delta nets
  int64_t value_heads_ = 0;
  int64_t key_size_ = 0;
  std::map<std::pair<int64_t, int64_t>, Rows> orders_;
  TensorMap result_;
  TensorSource::Rates rates_;
};

/// Those of an architecture, the ones that count first.
std::array<std::span<const GgufTensorRule>, 4> rules_of(const GgufArchitecture& architecture) {
  std::span<const GgufTensorRule> paired;
  if (architecture.pairs_heads) paired = kPairedHeads;
  return {architecture.own_tensors, architecture.tensors, paired, kTensors};
}

}  // namespace

const GgufTensorRule* find_gguf_tensor(const GgufArchitecture& architecture,
                                       std::string_view tensor) {
  if (tensor.empty()) return nullptr;
  for (const std::span<const GgufTensorRule> rules : rules_of(architecture)) {
    const auto found = std::ranges::find(rules, tensor, &GgufTensorRule::name);
    if (found != rules.end()) return &*found;
  }
  return nullptr;
}

const GgufTensorRule* find_gguf_module(const GgufArchitecture& architecture,
                                       std::string_view module) {
  const auto is_it = [&](const GgufTensorRule& rule) {
    return rule.module.substr(0, rule.module.find('!')) == module;
  };
  for (const std::span<const GgufTensorRule> rules : rules_of(architecture)) {
    const auto found = std::ranges::find_if(rules, is_it);
    if (found == rules.end()) continue;
    // Its name there may be that of another module in this architecture.
    return find_gguf_tensor(architecture, found->name) == &*found ? &*found : nullptr;
  }
  return nullptr;
}

Result<TensorSource> gguf_tensors(const GgufModel& model, const GgufArchitecture& architecture,
                                  std::vector<Error>* problems) {
  SUBBYTE_TRY(const TensorSource source, TensorSource::open_gguf(model));
  return Namer(model, architecture, source, problems).run();
}

}  // namespace subbyte
