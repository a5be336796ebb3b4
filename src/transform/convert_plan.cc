#include "transform/convert_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/quote.h"
#include "checkpoints/expert_names.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/unread_parts.h"
#include "transform/expert_stacks.h"
#include "transform/format_hints.h"

namespace subbyte {
namespace {

constexpr int64_t kSmallestGroup = 8;

using ByTensor = std::map<std::string_view, const FoundModule*>;

Error module_error(const Error& error, std::string_view module) {
  return {error.code, fmt::format("{}: {}", quote_name(module), error.message)};
}

/// How a model that is not quantized gets into a format.
std::string way_to(std::string_view exporter) {
  const QuantizeFormat* format = quantize_format_of(exporter);
  const bool itself = format != nullptr;
  if (!itself) format = usual_quantize_format_of(exporter);
  return fmt::format("`subbyte quantize SRC DST --format {}` rounds{}", format->name,
                     itself ? "" : ", and convert makes this one of that");
}

/// "layers.3.self_attn.qkv" of queries, keys and values, "layers.3.mlp.gate_up" of gate and up;
/// empty for others.
std::string fused_set(std::string_view module) {
  const std::size_t dot = module.rfind('.') + 1;  // 0 without one
  const std::string_view last = module.substr(dot);
  const std::string prefix(module.substr(0, dot));
  if (last == "q_proj" || last == "k_proj" || last == "v_proj") return prefix + "qkv";
  if (last == "gate_proj" || last == "up_proj") return prefix + "gate_up";
  return {};
}

bool is_activation_scale(std::string_view name) {
  return name.ends_with(".input_global_scale") || name.ends_with(".input_scale") ||
         name.ends_with("_input_scale") || name.ends_with(".input_scale_inv") ||
         name.ends_with(".activation_scale") || name.ends_with(".activation_scale_inv");
}

class Planner {
 public:
  Planner(const ImportContext& context, const ConvertTarget& target, ConvertLoss& loss)
      : context_(context), target_(target), exporter_(target.exporter), loss_(loss) {}

  Result<ConvertPlan> plan() {
    SUBBYTE_CHECK(find());
    SUBBYTE_CHECK(add_steps());
    if (exporter_ != nullptr) {
      SUBBYTE_CHECK(decide_forms());
      SUBBYTE_CHECK(unify_group_sizes());
      plan_.exported.kept = kept_layers(plan_.modules, rewritten());
      const KvCacheScheme& kv_cache = context_.config.kv_cache;
      plan_.drops_kv_cache = kv_cache.form != KvCacheScheme::Form::kNone &&
                             (exporter_->says_kv_cache == nullptr ||
                              !exporter_->says_kv_cache(kv_cache, context_.config.flavour));
      if (!plan_.drops_kv_cache) plan_.exported.kv_cache = kv_cache;
    }
    for (auto& [index, job] : jobs_) {
      WriteStep& step = plan_.steps[index];
      SUBBYTE_TRY(step.tensors, declare(job));
      step.sources = sources_of(job.modules);
      plan_.converted += std::ssize(job.modules);
      step.make = [&context = context_, &target = target_, &loss = loss_,
                   job = std::move(job)](const PutBytes& put) {
        return convert_modules(context, target, job, loss, put);
      };
    }
    plan_.kept = std::ssize(plan_.steps) - std::ssize(jobs_);
    state_group_sizes(plan_.exported.modules);
    return std::move(plan_);
  }

 private:
  Status find() {
    plan_.modules = find_modules(context_);
    for (const FoundModule& module : plan_.modules) {
      if (!module.is_read) continue;
      if (!module.info.ok()) return module.info.error();
      SUBBYTE_CHECK(target_.expert_count.check_module(module));
      if (is_dense(*module.info)) {
        // The factors that stand for nothing beside it: only readers of their format know them.
        const auto& tensors = module.info->tensors;
        for (std::size_t i = 1; i < tensors.size(); ++i) unused_.insert(tensors[i]->name);
        continue;
      }
      quantized_.insert(module.name);
      if (const auto expert = parse_expert_name(module.name);
          target_.has_alternating_stacks() && expert && !joint_name(expert->stack).empty()) {
        SUBBYTE_CHECK(check_gate_of_expert(context_.config, module.name));
      }
      for (const FileTensor* tensor : module.info->tensors) {
        by_tensor_[tensor->name] = &module;
        if (is_activation_scale(tensor->name)) ++plan_.activation_scales;
      }
    }
    if (exporter_ == nullptr || !by_tensor_.empty()) return {};
    return Error{"convert.not_quantized",
                 fmt::format("{}: no weights are quantized, and convert rounds none to {}; {}",
                             context_.config.where, exporter_->name, way_to(exporter_->name))};
  }

  /// Stacks that this conversion makes: all where the format has stacks, and of families whose gate
  /// and up alternate also where these need one factor, as models multiply by both as one matrix.
  std::vector<ExpertStack> stacks_to_make() const {
    const bool dense_stacks = exporter_ == nullptr && target_.has_alternating_stacks();
    const bool stacks = dense_stacks || (exporter_ != nullptr && exporter_->write_experts);
    const bool factor =
        exporter_ != nullptr && exporter_->has_factor && target_.has_alternating_stacks();
    if (target_.experts == ExpertLayout::kModules || (!stacks && !factor)) return {};
    auto found = find_stacks(context_.tensors, plan_.modules, target_.has_alternating_stacks());
    if (!stacks) std::erase_if(found, [](const ExpertStack& stack) { return !stack.gate_up; });
    return found;
  }

  /// Alternating gate and up in a format that has one matrix in a tensor: llm-compressor and
  /// AutoRound keep them apart, each with a bias, and no software knows a gate_up_proj of one
  /// expert.
  bool writes_apart() const {
    return target_.has_alternating_stacks() && exporter_ != nullptr &&
           exporter_->write_experts == nullptr;
  }

  /// Whether the experts that this bias of a stack, or of one of them, is for become modules of
  /// gate and up.
  bool is_bias_of_parts(const FileTensor& tensor) const {
    if (!writes_apart() || !has_bias_parts(tensor)) return false;
    const std::string stack = tensor.name.substr(0, tensor.name.size() - 5);  // "_bias", ".bias"
    return quantized_.contains(stack) || quantized_.contains(expert_name(stack, 0));
  }

  /// The job of a module, or of the stack that has it among its experts.
  ConvertJob job_of(const FoundModule& module, const ExpertStack* stack) const {
    ConvertJob job;
    job.modules = stack != nullptr ? stack->modules : std::vector{&module};
    job.gate_up = stack != nullptr && stack->gate_up;
    const std::string& base = stack != nullptr ? stack->name : module.name;
    const int64_t experts = stack != nullptr ? stack->num_experts() : module.info->experts;
    const bool is_one = exporter_ == nullptr || exporter_->write_experts != nullptr ||
                        (stack == nullptr && experts == 1);
    for (int64_t e = 0; e < (is_one ? 1 : experts); ++e) {
      const std::string name = is_one ? base : expert_name(base, e);
      const std::vector<std::string> parts =
          writes_apart() ? names_apart(name) : std::vector<std::string>();
      job.apart = !parts.empty();
      job.names.insert(job.names.end(), parts.begin(), parts.end());
      if (parts.empty()) job.names.push_back(name);
    }
    return job;
  }

  /// One step for each module and each other tensor, in the order of the names; of modules without
  /// what makes them.
  Status add_steps() {
    const std::vector<ExpertStack> stacks = stacks_to_make();
    std::map<const void*, const ExpertStack*> stack_of;  // of modules, and of biases
    for (const ExpertStack& stack : stacks) {
      for (const FoundModule* module : stack.modules) stack_of[module] = &stack;
      if (writes_apart()) continue;  // each keeps its bias
      for (const FileTensor* bias : stack.biases) stack_of[bias] = &stack;
    }
    std::set<const void*> done;  // modules, and stacks whose biases are
    for (const auto& [name, tensor] : context_.tensors.tensors()) {
      if (unused_.contains(name)) continue;
      const auto found = by_tensor_.find(name);
      const void* const key =
          found == by_tensor_.end() ? &tensor : static_cast<const void*>(found->second);
      const auto in_stack = stack_of.find(key);
      const ExpertStack* stack = in_stack == stack_of.end() ? nullptr : in_stack->second;
      if (found == by_tensor_.end()) {
        if (stack != nullptr && !done.insert(stack).second) continue;
        SUBBYTE_TRY(WriteStep step, step_of(tensor, stack));
        plan_.steps.push_back(std::move(step));
        continue;
      }
      if (!done.insert(key).second) continue;
      ConvertJob job = job_of(*found->second, stack);
      done.insert(job.modules.begin(), job.modules.end());
      jobs_.emplace_back(plan_.steps.size(), std::move(job));
      plan_.steps.emplace_back();
    }
    return {};
  }

  /// Of a tensor that no module has; `stack` has it among its biases.
  Result<WriteStep> step_of(const FileTensor& tensor, const ExpertStack* stack) const {
    if (stack != nullptr) return join_biases(stack->name + "_bias", *stack);
    if (is_bias_of_parts(tensor)) {
      if (tensor.shape.size() == 2) {
        const auto experts = static_cast<int64_t>(tensor.shape[0]);
        SUBBYTE_CHECK(target_.expert_count.check_stack(tensor.name, experts, tensor.file->path()));
      }
      return split_bias(tensor, *bias_parts(tensor));
    }
    const DType dtype = kept_dtype(tensor);
    return dtype == tensor.dtype ? keep(tensor)
                                 : as_other_floats(tensor, dtype, loss_, context_.pool);
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
    for (auto& [step, job] : jobs_) {
      SUBBYTE_TRY(const ExportShape from, shape_of_source(job));
      job.target = exporter_->target(from);
    }
    return exporter_->has_factor ? share_factors() : Status();
  }

  /// Matrices that readers multiply by as one get one factor, where it is chosen here: they keep
  /// that of one of them for all.
  Status share_factors() {
    std::map<std::string, double> largest;  // scale of each set
    std::map<ConvertJob*, std::string> set_of;
    for (auto& [step, job] : jobs_) {
      if (job.modules.size() != 1) continue;
      const FoundModule& module = *job.modules.front();
      const std::string set = fused_set(module.name);
      if (set.empty() || module.info->format.scale == job.target.format.scale) continue;
      SUBBYTE_TRY(const Matrix matrix, import_matrix(context_, module.name));
      largest[set] = std::max(largest[set], largest_scale(matrix.view));
      set_of[&job] = set;
    }
    for (const auto& [job, set] : set_of) job->target.largest_scale = largest[set];
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
      if (!ordered.ok()) return act_order_error(ordered.error(), module.name);
      from.format = ordered->view.format;
      from.act_order = false;
    }
    return from;
  }

  Error act_order_error(const Error& error, std::string_view module) const {
    const Error of_module = module_error(error, module);
    if (exporter_->keeps_act_order.empty()) return of_module;
    return {of_module.code,
            fmt::format("{}; {} keeps the order", of_module.message, exporter_->keeps_act_order)};
  }

  Status check_described(const ExportShape& shape, std::string_view module) const {
    const auto described = exporter_->describe(shape, module);
    return described.ok() ? Status() : Status(described.error());
  }

  /// Groups of all modules as large as the smallest allow, where a config has one size for all.
  Status unify_group_sizes() {
    int64_t common = -1;
    std::set<int64_t> sizes;
    for (const auto& [step, job] : jobs_) {
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
    for (auto& [step, job] : jobs_) job.target.format.group_size = common;
    return {};
  }

  /// Tensors of modules that become others.
  std::set<std::string_view> rewritten() const {
    std::set<std::string_view> names;
    for (const auto& [tensor, module] : by_tensor_) names.insert(tensor);
    return names;
  }

  Result<std::vector<TensorDeclaration>> declare(const ConvertJob& job) {
    const int64_t turns = job.gate_up ? 2 : 1;
    const ModuleInfo& info = *job.modules.front()->info;
    const auto experts_of_job = static_cast<int64_t>(job.modules.size()) / turns;
    const auto rows = static_cast<uint64_t>(info.rows * turns);
    const auto cols = static_cast<uint64_t>(info.cols);
    if (exporter_ == nullptr) {
      const std::string& name = job.names.front();
      const auto experts = static_cast<uint64_t>(info.experts * experts_of_job);
      using Declarations = std::vector<TensorDeclaration>;
      if (experts == 1) return Declarations{{name + ".weight", target_.dense, {rows, cols}}};
      return Declarations{{name, target_.dense, {experts, cols, rows}}};
    }
    const int64_t parts = job.apart ? 2 : 1;
    if (info.rows * turns % parts != 0) {
      return export_error(
          "export.shape", job.modules.front()->name,
          fmt::format("expected rows of gate and up in turns, found {}", info.rows));
    }
    ExportShape shape = {job.target.format, info.rows * turns / parts, info.cols};
    shape.act_order = info.act_order && job.target.act_order;
    shape.symmetric = symmetric_ || info.format.zero == Zero::kNone;
    shape.experts = info.experts * experts_of_job * parts / static_cast<int64_t>(job.names.size());
    return declare(job, shape);
  }

  Result<std::vector<TensorDeclaration>> declare(const ConvertJob& job, const ExportShape& shape) {
    std::vector<TensorDeclaration> all;
    for (const std::string& name : job.names) {
      SUBBYTE_TRY(const auto tensors, declare_exported(*exporter_, shape, name, plan_.exported));
      if (target_.has_alternating_stacks() && !exporter_->instead_for_alternating.empty() &&
          parse_expert_name(name)) {
        return export_error("export.experts", name,
                            fmt::format("software that reads {} wants experts of this model in a "
                                        "layout that is not written; {} has the same numbers",
                                        exporter_->name, exporter_->instead_for_alternating));
      }
      if (exporter_->write_experts != nullptr && shape.experts == 1 && !parse_expert_name(name)) {
        return export_error("export.no_expert", name,
                            fmt::format("{} is for experts: other software would leave this layer "
                                        "random; mxfp4_pack_quantized is for such layers",
                                        exporter_->name));
      }
      all.insert(all.end(), tensors.begin(), tensors.end());
    }
    return all;
  }

  /// Tensors beside quantized weights stay what they are, and so does what nobody reads; those of a
  /// model without any are what the conversion is about.
  DType kept_dtype(const FileTensor& tensor) const {
    if (is_in_unread_part(context_.tensors, tensor.name)) return tensor.dtype;
    const bool floats = float_format(tensor.dtype) != Format::kNone;
    if (target_.orin && floats) return DType::kF16;
    return exporter_ == nullptr && by_tensor_.empty() && floats ? target_.dense : tensor.dtype;
  }

  const ImportContext& context_;
  const ConvertTarget& target_;
  const Exporter* exporter_;
  ConvertLoss& loss_;
  ConvertPlan plan_;
  std::vector<std::pair<std::size_t, ConvertJob>> jobs_;  // of steps
  bool symmetric_ = false;                        // whether all zero points lie in the middle
  ByTensor by_tensor_;                            // the quantized module that has each tensor
  std::set<std::string, std::less<>> quantized_;  // their names
  std::set<std::string_view> unused_;             // tensors that are left out
};

}  // namespace

Result<ConvertPlan> plan_conversion(const ImportContext& context, const ConvertTarget& target,
                                    ConvertLoss& loss) {
  return Planner(context, target, loss).plan();
}

Status check_left_out(const ImportContext& context, const ConvertTarget& target,
                      const ConvertPlan& plan) {
  if (target.exporter == nullptr) return {};
  if (plan.drops_kv_cache) {
    return Error{
        "convert.kv_cache",
        fmt::format("{}: keys and values of the cache are quantized as {}, which a config "
                    "of {} cannot say",
                    context.config.where, context.config.kv_cache.text, target.exporter->name)};
  }
  if (plan.activation_scales == 0) return {};
  return Error{"convert.activation_scale",
               fmt::format("{}: {} scales of activations would be left out, since {} is written "
                           "for weights only",
                           context.tensors.files().front().string(), plan.activation_scales,
                           target.exporter->name)};
}

}  // namespace subbyte
