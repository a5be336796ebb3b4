#include "transform/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "checkpoints/import_parts.h"
#include "checkpoints/modules.h"
#include "json/strict_json.h"
#include "matrix/alternate_rows.h"
#include "models/checkpoint.h"
#include "models/latent_weights.h"
#include "models/model_family.h"
#include "transform/dense_writer.h"
#include "transform/expert_stacks.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Verdict = ComparedWeight::Verdict;

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;  // compared at once
constexpr std::string_view kUsualPrefix = "model.";

/// A matrix by the name of its stack and its number in it, -1 for one that is in none.
struct UnitKey {
  std::string stack;
  int64_t expert = -1;

  auto operator<=>(const UnitKey&) const = default;
  std::string name() const { return expert < 0 ? stack : expert_name(stack, expert); }
};

struct Unit {
  std::size_t module = 0;
  std::size_t index = 0;  // of the matrix in its module
  int turn = -1;          // 0, 1: gate or up of both, which the other side has as two modules
};

/// One directory: its modules taken apart into matrices, and the tensors that are in none.
class Side {
 public:
  static Result<Side> open(const fs::path& directory, Executor& pool) {
    SUBBYTE_TRY(CheckpointParts checkpoint, open_weights(directory));
    SUBBYTE_TRY(checkpoint.tensors, with_joined_latents(checkpoint.context(pool)));
    const ModelFamily* family = find_family(checkpoint.kind());
    const bool alternates =
        family == nullptr || family->experts == ExpertLayout::kAlternatingStacks;
    return Side(std::move(checkpoint), alternates);
  }

  /// The prefix of its names, and that of its head; empty where no model is known.
  std::string prefix() const { return prefix_; }
  /// From now on names are those that most models have, as the other side has another prefix.
  void use_usual_names() { has_usual_names_ = !prefix_.empty(); }

  /// What a tensor or a module of a file is called in the comparison.
  std::string shown(const std::string& name) const {
    return has_usual_names_ ? with_prefix(name, prefix_, head_, kUsualPrefix, kHead) : name;
  }
  /// The tensor that is called so; nullptr: there is none.
  const FileTensor* find(const std::string& shown_name) const {
    const FileTensor* const plain = tensors().find(shown_name);
    if (!has_usual_names_) return plain;
    const auto own = with_prefix(shown_name, kUsualPrefix, kHead, prefix_, head_);
    const FileTensor* const found = tensors().find(own);
    return found == nullptr ? plain : found;
  }

  /// `stacks` are names that the other side has as experts: here they may be one plain tensor.
  Status find_units(const std::set<std::string>& stacks, Executor& pool) {
    const ImportContext context = context_with(pool);
    modules_ = find_modules(context);
    // Of parts that nobody reads the bytes are compared.
    std::erase_if(modules_, [](const FoundModule& module) { return !module.is_read; });
    for (const std::string& stack : stacks) {
      const FileTensor* tensor = find(stack);
      if (tensor == nullptr || tensor->shape.size() != 3) continue;
      modules_.push_back({tensor->name, describe_module(context, tensor->name)});
    }
    for (std::size_t m = 0; m < modules_.size(); ++m) {
      if (!modules_[m].info.ok()) return modules_[m].info.error();
      add_units(m);
      for (const FileTensor* tensor : modules_[m].info->tensors) used_.insert(tensor->name);
    }
    return {};
  }

  std::set<std::string> stacks() const {
    std::set<std::string> names;
    for (const auto& [key, unit] : units_) {
      if (key.expert < 0) continue;
      names.insert(key.stack);
      if (const std::string joint = joint_name(key.stack); !joint.empty()) names.insert(joint);
    }
    return names;
  }

  /// Gate and up that one matrix has as two matrices wherever `other` has two.
  void take_apart_as(const Side& other) {
    const std::map<UnitKey, Unit> joint = units_;
    for (const auto& [key, unit] : joint) {
      const std::vector<std::string> names = names_apart(key.stack);
      if (names.empty() || unit.turn >= 0 || rows(unit) % 2 != 0) continue;
      if (!other.units_.contains({names.front(), key.expert})) continue;
      units_.erase(key);
      for (const int turn : {0, 1}) {
        units_[{names[static_cast<std::size_t>(turn)], key.expert}] = {unit.module, unit.index,
                                                                       turn};
      }
    }
  }

  /// A head that is tied to the embedding, where `other` has one of its own: the embedding is what
  /// it is compared with.
  void untie_as(const Side& other) {
    if (!checkpoint_.model.ok() || !checkpoint_.model->tie_word_embeddings) return;
    const auto names = CheckpointNames::find(tensors(), ExpertLayout());
    if (!names.ok()) return;
    const UnitKey head = {shown(names->full(kHead))};
    const auto table = units_.find({shown(names->full(kTable))});
    if (table == units_.end() || !other.units_.contains(head)) return;
    units_.try_emplace(head, table->second);
  }

  int64_t rows(const Unit& unit) const {
    return modules_[unit.module].info->rows / (unit.turn < 0 ? 1 : 2);
  }

  /// The matrix of a unit; the module of the last one stays imported.
  Result<MatrixView> matrix(const Unit& unit, Executor& pool) {
    if (imported_ != static_cast<int64_t>(unit.module)) {
      release();
      const FoundModule& module = modules_[unit.module];
      for (const FileTensor* tensor : module.info->tensors) {
        SUBBYTE_CHECK(tensor->file->verify_unchanged());
      }
      SUBBYTE_TRY(matrices_, import_experts(context_with(pool), module.name));
      imported_ = static_cast<int64_t>(unit.module);
    }
    if (unit.turn < 0) return matrices_[unit.index].view;
    const MatrixView& both = matrices_[unit.index].view;
    if (!alternates_) return rows_of(both, unit.turn * both.rows / 2, both.rows / 2);
    part_ = every_second_row(both, unit.turn);
    return part_.view;
  }

  /// Its share of the bytes of its module.
  uint64_t bytes(const Unit& unit) const {
    const ModuleInfo& info = *modules_[unit.module].info;
    uint64_t all = 0;
    for (const FileTensor* tensor : info.tensors) all += tensor->bytes.size();
    return all / static_cast<uint64_t>(info.experts) / (unit.turn < 0 ? 1 : 2);
  }

  std::string describe(const Unit& unit) const {
    const ModuleInfo& info = *modules_[unit.module].info;
    return fmt::format("{} {} [{}, {}]", info.importer, to_string(info.format), rows(unit),
                       info.cols);
  }

  const FoundModule& module(const Unit& unit) const { return modules_[unit.module]; }
  const std::map<UnitKey, Unit>& units() const { return units_; }
  const TensorSource& tensors() const { return *checkpoint_.tensors; }
  const QuantizationConfig& config() const { return *checkpoint_.quantization; }
  bool is_used(const std::string& tensor) const { return used_.contains(tensor); }

 private:
  Side(CheckpointParts checkpoint, bool alternates)
      : checkpoint_(std::move(checkpoint)), alternates_(alternates) {
    const auto names = CheckpointNames::find(tensors(), ExpertLayout());
    if (!names.ok()) return;
    prefix_ = names->prefix();
    head_ = names->head();
  }

  /// A name of one prefix with another one.
  static std::string with_prefix(const std::string& name, std::string_view prefix,
                                 std::string_view head, std::string_view other_prefix,
                                 std::string_view other_head) {
    const auto replaced = [&](std::string_view begin, std::string_view other) {
      return std::string(other) + name.substr(begin.size());
    };
    if (name == head || name.starts_with(std::string(head) + ".")) {
      return replaced(head, other_head);
    }
    return name.starts_with(prefix) ? replaced(prefix, other_prefix) : name;
  }

  ImportContext context_with(Executor& pool) const {
    ImportContext context = checkpoint_.context(pool);
    context.stacks_have_inputs_first = alternates_;  // stacks of either kind
    return context;
  }

  void add_units(std::size_t m) {
    const FoundModule& module = modules_[m];
    const std::string name = shown(module.name);
    if (module.info->experts == 1) {
      const auto expert = parse_expert_name(name);
      const UnitKey key = expert ? UnitKey{expert->stack, expert->expert} : UnitKey{name};
      units_[key] = {m, 0};
      return;
    }
    for (int64_t e = 0; e < module.info->experts; ++e) {
      units_[{name, e}] = {m, static_cast<std::size_t>(e)};
    }
  }

  /// Gives up the imported module and its pages of the file.
  void release() {
    matrices_.clear();
    if (imported_ < 0) return;
    for (const FileTensor* tensor : modules_[imported_].info->tensors) {
      tensor->file->release(tensor->bytes);
    }
    imported_ = -1;
  }

  CheckpointParts checkpoint_;
  bool alternates_;  // rows of gate and up, where a stack has both
  std::string prefix_, head_;
  bool has_usual_names_ = false;
  std::vector<FoundModule> modules_;
  std::map<UnitKey, Unit> units_;
  std::set<std::string_view> used_;  // tensors of modules
  int64_t imported_ = -1;
  std::vector<Matrix> matrices_;
  Matrix part_;  // of one of them, the last that was asked for
};

bool same_tensor(const FileTensor& a, const FileTensor& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  bool same = true;
  for (std::size_t i = 0; same && i < a.bytes.size(); i += kPieceBytes) {
    const std::size_t size = std::min(kPieceBytes, a.bytes.size() - i);
    const auto x = a.bytes.subspan(i, size);
    const auto y = b.bytes.subspan(i, size);
    same = std::memcmp(x.data(), y.data(), size) == 0;
    a.file->release(x);
    b.file->release(y);
  }
  return same;
}

/// Whether two modules are the same tensors, read in the same way.
bool same_bytes(const Side& first, const FoundModule& a, const Side& second, const FoundModule& b) {
  const auto reads_alike = importer_of(*a.info).reads_alike;
  return a.info->importer == b.info->importer && a.info->format == b.info->format &&
         (reads_alike == nullptr || reads_alike(first.config(), second.config())) &&
         std::ranges::equal(
             a.info->tensors, b.info->tensors, [&](const FileTensor* x, const FileTensor* y) {
               return first.shown(x->name) == second.shown(y->name) && same_tensor(*x, *y);
             });
}

class Comparison {
 public:
  Comparison(Side& first, Side& second, Executor& pool, const ByteProgress& progress)
      : first_(first), second_(second), pool_(pool), progress_(progress) {
    for (const auto& [name, tensor] : first.tensors().tensors()) all_bytes_ += tensor.bytes.size();
  }

  Result<ModelDiff> run() {
    for (const auto& [key, unit] : first_.units()) {
      const auto other = second_.units().find(key);
      if (other == second_.units().end()) {
        add(key.name(), Verdict::kOnlyFirst, first_.describe(unit), "");
      } else {
        SUBBYTE_CHECK(compare_units(key, unit, other->second));
      }
      count(first_.bytes(unit));
    }
    for (const auto& [key, unit] : second_.units()) {
      if (first_.units().contains(key)) continue;
      add(key.name(), Verdict::kOnlySecond, "", second_.describe(unit));
    }
    SUBBYTE_CHECK(compare_plain());
    return std::move(diff_);
  }

 private:
  void count(uint64_t bytes) {
    done_bytes_ += bytes;
    if (progress_) progress_(done_bytes_, all_bytes_);
  }

  ComparedWeight& add(std::string name, Verdict verdict, std::string first, std::string second) {
    diff_.weights.push_back(
        {std::move(name), verdict, std::move(first), std::move(second), Difference()});
    return diff_.weights.back();
  }

  Status compare_units(const UnitKey& key, const Unit& a, const Unit& b) {
    ComparedWeight& weight =
        add(key.name(), Verdict::kSameBytes, first_.describe(a), second_.describe(b));
    const ModuleInfo& x = *first_.module(a).info;
    const ModuleInfo& y = *second_.module(b).info;
    if (first_.rows(a) != second_.rows(b) || x.cols != y.cols) {
      weight.verdict = Verdict::kShape;
      return {};
    }
    const std::pair modules = {a.module, b.module};
    if (compared_ != modules) {
      compared_ = modules;
      same_bytes_ = same_bytes(first_, first_.module(a), second_, second_.module(b));
    }
    if (same_bytes_) return {};
    SUBBYTE_TRY(const MatrixView v, first_.matrix(a, pool_));
    SUBBYTE_TRY(const MatrixView w, second_.matrix(b, pool_));
    weight.difference = difference(v, w, pool_);
    weight.verdict = weight.difference.unequal == 0 ? Verdict::kSameValues : Verdict::kDifferent;
    return {};
  }

  /// Biases of experts that one side has as one tensor and the other in parts.
  Status compare_biases(const Side& joint, const Side& apart, Verdict only_joint) {
    for (const auto& [name, tensor] : joint.tensors().tensors()) {
      if (joint.is_used(name) || apart.find(joint.shown(name)) != nullptr) continue;
      const auto is_there = [&](const std::optional<BiasParts>& parts) {
        return parts && apart.find(joint.shown(parts->names.front())) != nullptr;
      };
      auto parts = bias_parts(tensor);
      if (!is_there(parts)) parts = bias_parts(tensor, true);
      if (!is_there(parts)) continue;
      SUBBYTE_CHECK(tensor.file->verify_unchanged());
      compared_biases_.insert(joint.shown(name));
      for (std::size_t i = 0; i < parts->names.size(); ++i) {
        const std::string part = joint.shown(parts->names[i]);
        const FileTensor* other = apart.find(part);
        if (other == nullptr) {
          add(part, only_joint, "", "");
          continue;
        }
        compared_biases_.insert(part);
        SUBBYTE_CHECK(other->file->verify_unchanged());
        const std::string what = describe(*other);
        FileTensor own = tensor;
        const auto bytes = bias_part(tensor, *parts, i);
        own.bytes = bytes;
        own.shape = {parts->rows};
        const bool like = own.shape == other->shape && are_floats(own, *other);
        const bool same = like && difference_of(own, *other).unequal == 0;
        add(part,
            same   ? Verdict::kSameValues
            : like ? Verdict::kDifferent
                   : Verdict::kShape,
            what, what);
      }
    }
    return {};
  }

  Status compare_plain() {
    SUBBYTE_CHECK(compare_biases(first_, second_, Verdict::kOnlyFirst));
    SUBBYTE_CHECK(compare_biases(second_, first_, Verdict::kOnlySecond));
    for (const auto& [name, tensor] : first_.tensors().tensors()) {
      const std::string shown = first_.shown(name);
      if (first_.is_used(name) || compared_biases_.contains(shown)) continue;
      const FileTensor* other = second_.find(shown);
      if (other == nullptr || second_.is_used(other->name)) {
        add(shown, Verdict::kOnlyFirst, describe(tensor), "");
      } else {
        SUBBYTE_CHECK(compare_tensors(tensor, *other));
      }
      count(tensor.bytes.size());
    }
    for (const auto& [name, tensor] : second_.tensors().tensors()) {
      const std::string shown = second_.shown(name);
      const FileTensor* other = first_.find(shown);
      const bool in_first = other != nullptr && !first_.is_used(other->name);
      if (second_.is_used(name) || in_first || compared_biases_.contains(shown)) continue;
      add(shown, Verdict::kOnlySecond, "", describe(tensor));
    }
    return {};
  }

  static std::string describe(const FileTensor& tensor) {
    return fmt::format("{} {}", name(tensor.dtype), to_string(tensor.shape));
  }

  static bool are_floats(const FileTensor& a, const FileTensor& b) {
    return float_format(a.dtype) != Format::kNone && float_format(b.dtype) != Format::kNone;
  }

  /// Of floats of one shape.
  Difference difference_of(const FileTensor& a, const FileTensor& b) {
    Difference all;
    const auto v = flat_views(a);
    const auto w = flat_views(b);
    for (std::size_t i = 0; i < v.size(); ++i) all += difference(v[i], w[i], pool_);
    return all;
  }

  Status compare_tensors(const FileTensor& a, const FileTensor& b) {
    SUBBYTE_CHECK(a.file->verify_unchanged());
    SUBBYTE_CHECK(b.file->verify_unchanged());
    ComparedWeight& weight =
        add(first_.shown(a.name), Verdict::kSameBytes, describe(a), describe(b));
    if (same_tensor(a, b)) return {};
    weight.verdict = Verdict::kDifferent;
    const bool floats = are_floats(a, b);
    if (a.shape != b.shape || (!floats && a.dtype != b.dtype)) weight.verdict = Verdict::kShape;
    if (weight.verdict == Verdict::kShape || !floats) return {};
    weight.difference = difference_of(a, b);
    a.file->release(a.bytes);
    b.file->release(b.bytes);
    if (weight.difference.unequal == 0) weight.verdict = Verdict::kSameValues;
    return {};
  }

  Side& first_;
  Side& second_;
  Executor& pool_;
  const ByteProgress& progress_;
  uint64_t done_bytes_ = 0;
  uint64_t all_bytes_ = 0;
  ModelDiff diff_;
  std::pair<std::size_t, std::size_t> compared_ = {~std::size_t{0}, 0};  // modules
  bool same_bytes_ = false;                                              // of these
  std::set<std::string> compared_biases_;                                // whole and parts
};

}  // namespace

int64_t ModelDiff::count(Verdict verdict) const {
  return std::ranges::count(weights, verdict, &ComparedWeight::verdict);
}

WorstLoss ModelDiff::worst() const {
  WorstLoss worst;
  for (const ComparedWeight& weight : weights) {
    worst.add(weight.name, weight.difference.signal_to_noise_db());
  }
  return worst;
}

bool ModelDiff::same_bytes() const {
  return count(Verdict::kSameBytes) == static_cast<int64_t>(weights.size());
}

bool ModelDiff::same_values() const {
  return count(Verdict::kSameBytes) + count(Verdict::kSameValues) ==
         static_cast<int64_t>(weights.size());
}

Result<ModelDiff> diff_models(const fs::path& first, const fs::path& second, Executor& pool,
                              const ByteProgress& progress) {
  SUBBYTE_TRY(Side a, Side::open(first, pool));
  SUBBYTE_TRY(Side b, Side::open(second, pool));
  if (a.prefix() != b.prefix()) {  // a wrapper and its text
    a.use_usual_names();
    b.use_usual_names();
  }
  SUBBYTE_CHECK(b.find_units({}, pool));
  SUBBYTE_CHECK(a.find_units(b.stacks(), pool));
  // Only now is it known which stacks the first side has.
  SUBBYTE_CHECK(b.find_units(a.stacks(), pool));
  a.take_apart_as(b);
  b.take_apart_as(a);
  a.untie_as(b);
  b.untie_as(a);
  return Comparison(a, b, pool, progress).run();
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

std::string_view name_of(ComparedWeight::Verdict verdict) {
  switch (verdict) {
    case ComparedWeight::Verdict::kSameBytes:
      return "same bytes";
    case ComparedWeight::Verdict::kSameValues:
      return "same values";
    case ComparedWeight::Verdict::kDifferent:
      return "different";
    case ComparedWeight::Verdict::kShape:
      return "other shape";
    case ComparedWeight::Verdict::kOnlyFirst:
      return "only in the first";
    case ComparedWeight::Verdict::kOnlySecond:
      break;
  }
  return "only in the second";
}

SUBBYTE_END_NAMESPACE
