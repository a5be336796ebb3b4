#include "transform/convert_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "checkpoints/import_parts.h"

namespace subbyte {
namespace {

constexpr int64_t kSmallestGroup = 8;

using ByTensor = std::map<std::string_view, const FoundModule*>;

Error module_error(const Error& error, std::string_view module) {
  return {error.code, fmt::format("'{}': {}", module, error.message)};
}

bool is_activation_scale(std::string_view name) {
  return name.ends_with(".input_global_scale") || name.ends_with(".input_scale");
}

/// Stacks whose experts are all there as modules of their own, one shape each, by their names.
using Stacks = std::map<std::string, std::vector<const FoundModule*>>;

Stacks find_stacks(const std::vector<FoundModule>& modules) {
  std::map<std::string, std::map<int64_t, const FoundModule*>> experts;
  for (const FoundModule& module : modules) {
    const auto name = parse_expert_name(module.name);
    if (name && !is_dense(*module.info)) experts[name->stack][name->expert] = &module;
  }
  Stacks stacks;
  for (const auto& [stack, found] : experts) {
    const ModuleInfo& first = *found.begin()->second->info;
    const bool alike = std::ranges::all_of(found, [&](const auto& entry) {
      const ModuleInfo& info = *entry.second->info;
      return info.experts == 1 && info.format == first.format && info.rows == first.rows &&
             info.cols == first.cols;
    });
    const auto count = static_cast<int64_t>(found.size());
    if (!alike || count < 2 || found.rbegin()->first != count - 1) continue;
    for (const auto& [expert, module] : found) stacks[stack].push_back(module);
  }
  return stacks;
}

class Planner {
 public:
  Planner(const ImportContext& context, const ConvertTarget& target)
      : context_(context), target_(target), exporter_(target.exporter) {}

  Result<ConvertPlan> plan() {
    SUBBYTE_CHECK(find());
    SUBBYTE_CHECK(add_jobs());
    if (exporter_ != nullptr) {
      SUBBYTE_CHECK(decide_forms());
      SUBBYTE_CHECK(unify_group_sizes());
      list_kept();
    }
    for (const ConvertJob& job : plan_.jobs) {
      SUBBYTE_TRY(TensorGroup group, declare(job));
      plan_.groups.push_back(std::move(group));
    }
    return std::move(plan_);
  }

 private:
  Status find() {
    plan_.modules = find_modules(context_);
    for (const FoundModule& module : plan_.modules) {
      if (!module.info.ok()) return module.info.error();
      if (is_dense(*module.info)) continue;
      for (const FileTensor* tensor : module.info->tensors) {
        by_tensor_[tensor->name] = &module;
        if (is_activation_scale(tensor->name)) ++plan_.activation_scales;
      }
    }
    if (exporter_ == nullptr || !by_tensor_.empty()) return {};
    return Error{"convert.not_quantized",
                 fmt::format("{}: no weights are quantized, so there is nothing to convert to {}; "
                             "`subbyte quantize` quantizes a model",
                             context_.config.where, exporter_->name)};
  }

  /// One job for each module and each other tensor, in the order of the names.
  Status add_jobs() {
    const bool joins = exporter_ != nullptr && exporter_->write_experts != nullptr;
    const Stacks stacks = joins ? find_stacks(plan_.modules) : Stacks();
    std::map<const FoundModule*, const Stacks::value_type*> stack_of;
    for (const auto& stack : stacks) {
      for (const FoundModule* module : stack.second) stack_of[module] = &stack;
    }
    std::set<const FoundModule*> done;
    for (const auto& [name, tensor] : context_.tensors.tensors()) {
      const auto found = by_tensor_.find(name);
      ConvertJob job;
      if (found == by_tensor_.end()) {
        job.tensor = &tensor;
      } else if (!done.insert(found->second).second) {
        continue;
      } else if (const auto stack = stack_of.find(found->second); stack != stack_of.end()) {
        job.modules = stack->second->second;
        job.names = {stack->second->first};
        done.insert(job.modules.begin(), job.modules.end());
      } else {
        job.modules = {found->second};
        job.names = names_of(*found->second);
      }
      plan_.jobs.push_back(std::move(job));
    }
    return {};
  }

  std::vector<std::string> names_of(const FoundModule& module) const {
    const bool stack =
        module.info->experts > 1 && exporter_ != nullptr && exporter_->write_experts == nullptr;
    if (!stack) return {module.name};
    std::vector<std::string> names;
    for (int64_t e = 0; e < module.info->experts; ++e) names.push_back(expert_name(module.name, e));
    return names;
  }

  /// Whether all zero points lie in the middle; the first module where they do not ends the search.
  Result<bool> find_symmetry() const {
    for (const auto& [tensor, module] : by_tensor_) {
      if (module->info->tensors.front()->name != tensor) continue;
      if (module->info->format.zero == Zero::kNone) continue;
      SUBBYTE_TRY(const auto matrices, import_experts(context_, module->name));
      const bool symmetric = std::ranges::all_of(
          matrices, [](const Matrix& matrix) { return is_symmetric(matrix.view); });
      if (!symmetric) return false;
    }
    return true;
  }

  Status decide_forms() {
    if (exporter_->tells_symmetry) {
      SUBBYTE_TRY(symmetric_, find_symmetry());
    }
    for (ConvertJob& job : plan_.jobs) {
      if (job.modules.empty()) continue;
      SUBBYTE_TRY(const ExportShape from, shape_of_source(job));
      job.target = exporter_->target(from);
    }
    return {};
  }

  Result<ExportShape> shape_of_source(const ConvertJob& job) {
    const FoundModule& module = *job.modules.front();
    const ModuleInfo& info = *module.info;
    ExportShape from = {info.format, info.rows, info.cols, info.act_order};
    from.symmetric = symmetric_ || info.format.zero == Zero::kNone;
    const TargetFormat target = exporter_->target(from);
    if (info.act_order && !target.act_order) {
      // What no order would help is said first, and without reading the weights.
      SUBBYTE_CHECK(check_described({target.format, info.rows, info.cols}, module.name));
      SUBBYTE_TRY(Matrix matrix, import_matrix(context_, module.name));
      const auto ordered = with_inputs_in_order(std::move(matrix));
      if (!ordered.ok()) return module_error(ordered.error(), module.name);
      from.format = ordered->view.format;
      from.act_order = false;
    }
    return from;
  }

  Status check_described(const ExportShape& shape, std::string_view module) const {
    const auto described = exporter_->describe(shape, module);
    return described.ok() ? Status() : Status(described.error());
  }

  /// Groups of all modules as large as the smallest allow, where a config has one size for all.
  Status unify_group_sizes() {
    int64_t common = -1;
    std::set<int64_t> sizes;
    for (const ConvertJob& job : plan_.jobs) {
      if (job.modules.empty()) continue;
      const int64_t size = job.target.format.group_size;
      sizes.insert(size);
      const int64_t inputs = size == 0 ? job.modules.front()->info->cols : size;
      common = common < 0 ? inputs : std::gcd(common, inputs);
    }
    if (!exporter_->one_group_size || sizes.size() <= 1) return {};
    if (common % kSmallestGroup != 0) {
      return Error{"convert.group_size",
                   fmt::format("{} has one group size for all layers, and groups of {} and {} "
                               "inputs have no common one",
                               exporter_->name, *sizes.begin(), *sizes.rbegin())};
    }
    for (ConvertJob& job : plan_.jobs) job.target.format.group_size = common;
    return {};
  }

  void list_kept() {
    bool head = false;
    for (const FoundModule& module : plan_.modules) {
      head = head || module.name == "lm_head";
      // Embeddings are no linear layers: no reader looks for them among those.
      const bool embedding = module.name.ends_with("embed_tokens");
      if (is_dense(*module.info) && !embedding) plan_.exported.kept.push_back(module.name);
    }
    if (!head) plan_.exported.kept.emplace_back("lm_head");  // tied to the embedding
  }

  Result<TensorGroup> declare(const ConvertJob& job) {
    if (job.modules.empty()) {
      const FileTensor& tensor = *job.tensor;
      return TensorGroup{{tensor.name, kept_dtype(tensor), tensor.shape}};
    }
    const ModuleInfo& info = *job.modules.front()->info;
    const auto rows = static_cast<uint64_t>(info.rows);
    const auto cols = static_cast<uint64_t>(info.cols);
    if (exporter_ == nullptr) {
      const std::string& name = job.names.front();
      if (info.experts == 1) return TensorGroup{{name + ".weight", target_.dense, {rows, cols}}};
      const auto experts = static_cast<uint64_t>(info.experts);
      return TensorGroup{{name, target_.dense, {experts, cols, rows}}};
    }
    ExportShape shape = {job.target.format, info.rows, info.cols};
    shape.act_order = info.act_order && job.target.act_order;
    shape.symmetric = symmetric_ || info.format.zero == Zero::kNone;
    shape.experts = info.experts / static_cast<int64_t>(job.names.size());
    if (job.modules.size() > 1) shape.experts = static_cast<int64_t>(job.modules.size());
    return declare(job, shape);
  }

  Result<TensorGroup> declare(const ConvertJob& job, const ExportShape& shape) {
    TensorGroup group;
    for (const std::string& name : job.names) {
      SUBBYTE_TRY(const auto tensors, exporter_->describe(shape, name));
      const auto more = declarations(tensors, name);
      group.insert(group.end(), more.begin(), more.end());
      plan_.exported.modules.push_back({name, shape});
    }
    return group;
  }

  /// Tensors beside quantized weights stay what they are; those of a model without any are what the
  /// conversion is about.
  DType kept_dtype(const FileTensor& tensor) const {
    const bool floats = float_format(tensor.dtype) != Format::kNone;
    if (target_.orin && floats) return DType::kF16;
    return exporter_ == nullptr && by_tensor_.empty() && floats ? target_.dense : tensor.dtype;
  }

  const ImportContext& context_;
  const ConvertTarget& target_;
  const Exporter* exporter_;
  ConvertPlan plan_;
  bool symmetric_ = false;  // whether all zero points lie in the middle
  ByTensor by_tensor_;      // the quantized module that has each tensor
};

}  // namespace

Result<ConvertPlan> plan_conversion(const ImportContext& context, const ConvertTarget& target) {
  return Planner(context, target).plan();
}

}  // namespace subbyte
