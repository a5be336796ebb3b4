#include "transform/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "checkpoints/import_parts.h"
#include "json/strict_json.h"
#include "transform/compared_model.h"
#include "transform/dense_writer.h"
#include "transform/expert_stacks.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Verdict = ComparedWeight::Verdict;

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;  // compared at once

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
bool same_bytes(const ComparedModel& first, const FoundModule& a, const ComparedModel& second,
                const FoundModule& b) {
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
  Comparison(ComparedModel& first, ComparedModel& second, Executor& pool,
             const ByteProgress& progress)
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

  Status compare_units(const ComparedKey& key, const ComparedUnit& a, const ComparedUnit& b) {
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
  Status compare_biases(const ComparedModel& joint, const ComparedModel& apart,
                        Verdict only_joint) {
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

  ComparedModel& first_;
  ComparedModel& second_;
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
  SUBBYTE_TRY(ComparedModel a, ComparedModel::open(first, pool));
  SUBBYTE_TRY(ComparedModel b, ComparedModel::open(second, pool));
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
