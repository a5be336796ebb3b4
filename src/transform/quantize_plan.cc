#include "transform/quantize_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/quote.h"
#include "checkpoints/expert_names.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/modules.h"
#include "models/checkpoint_names.h"
#include "models/model_family.h"

namespace subbyte {
namespace {

/// The rows of a part of one expert of a stack: `part_row` rows lie before it, or it has every
/// `turns`th row from there.
MatrixRows rows_of_stack(const FileTensor& tensor, const FileMatrix& stack, int64_t expert,
                         int64_t part_row, int64_t rows, int64_t turns) {
  MatrixRows matrix = {&tensor, rows, stack.cols};
  const int64_t row_step = stack.inputs_first ? 1 : stack.cols;
  matrix.first = expert * stack.rows * stack.cols + part_row * row_step;
  matrix.row_step = turns * row_step;
  matrix.col_step = stack.inputs_first ? stack.rows : 1;
  return matrix;
}

class UnitFinder {
 public:
  UnitFinder(const ImportContext& context, const ModelConfig& model, const CheckpointNames& names,
             const QuantizeRequest& request)
      : context_(context), model_(model), names_(names), request_(request) {}

  Result<QuantizePlan> find() {
    std::vector<RuleUse> uses(request_.rules.size());
    plan_.usual = request_.form;
    for (const TensorSpec& spec : tensors_of(model_)) {
      if (spec.is_vector()) continue;
      SUBBYTE_TRY(const bool wanted, is_wanted(spec));
      SUBBYTE_TRY(QuantizeUnit unit, unit_of(spec, wanted));
      SUBBYTE_TRY(const auto rule, find_rule(unit, uses));
      if (!wanted || (rule && request_.rules[*rule].keep)) continue;
      if (rule) SUBBYTE_CHECK(apply(request_.rules[*rule], unit));
      if (rule) uses[*rule].is_applied = true;
      plan_.units.push_back(std::move(unit));
    }
    SUBBYTE_CHECK(check_used(uses));
    if (plan_.units.empty()) {
      return Error{"quantize.nothing",
                   fmt::format("{}: expected matrices that may be quantized as {}, found none",
                               context_.tensors.files().front().string(), request_.format->name)};
    }
    SUBBYTE_CHECK(choose_group());
    return std::move(plan_);
  }

 private:
  /// Whether a rule names a matrix, is the first one that does, and gave one a form.
  struct RuleUse {
    bool names = false;
    bool decides = false;
    bool is_applied = false;
  };

  bool writes_stacks() const { return writer_of(*request_.format).write_experts != nullptr; }

  /// What the list lets be quantized, and what was asked for beside it.
  Result<bool> is_wanted(const TensorSpec& spec) const {
    if (spec.role == TensorRole::kHead && request_.head) {
      if (spec.tied_to.empty()) return true;
      return Error{"quantize.head",
                   "lm_head of this model is its embedding, which --embedding quantizes"};
    }
    if (spec.role == TensorRole::kTable) return request_.embedding;
    if (!spec.may_be_quantized) return false;
    return spec.is_of_experts() || !(request_.experts_only || writes_stacks());
  }

  /// The modules that a tensor of the list becomes. Of one that is not wanted, names alone.
  Result<QuantizeUnit> unit_of(const TensorSpec& spec, bool wanted) {
    QuantizeUnit unit = {spec.name, {}, request_.form};
    const FileTensors file = names_.tensors_of(spec);
    if (wanted && spec.is_of_experts()) SUBBYTE_CHECK(check_experts(file));
    for (const FileMatrix& matrix : file.matrices) {
      if (!wanted) {
        add_names(unit, spec, matrix);
        continue;
      }
      const bool is_stack = matrix.experts > 1;
      // Stacks are parameters or, of Granite, weights of a module.
      const bool is_parameter = is_stack && context_.tensors.find(matrix.module) != nullptr;
      SUBBYTE_TRY(const FileTensor* tensor,
                  require_tensor(context_.tensors, matrix.module, is_parameter ? "" : ".weight"));
      SUBBYTE_TRY(const ModuleInfo info,
                  describe_module(context_of(context_, matrix), matrix.module));
      if (!is_dense(info)) {
        return tensor_error("quantize.already_quantized", *tensor, "the weights are quantized");
      }
      if (is_stack) {
        add_stack(unit, spec, file, matrix, *tensor);
        continue;
      }
      const MatrixRows rows = {tensor, info.rows, info.cols, 0, info.cols};
      const std::size_t expert =
          spec.is_of_experts() ? unit.modules.size() / num_parts(spec, file) : 0;
      unit.modules.push_back({matrix.module, {rows}, add_to_set(expert, rows)});
    }
    begin_sets_ = plan_.sets.size();
    return unit;
  }

  /// Matrices that an expert has in the file.
  static std::size_t num_parts(const TensorSpec& spec, const FileTensors& file) {
    return std::max<std::size_t>(1, file.matrices.size() / static_cast<std::size_t>(spec.experts));
  }

  /// Experts whose gate and up alternate are written in stacks or, apart, in modules; what lies in
  /// the file as modules is not made a stack.
  Status check_experts(const FileTensors& file) const {
    const bool alternate = family_of(model_).experts == ExpertLayout::kAlternatingStacks;
    const Exporter& writer = writer_of(*request_.format);
    const std::string& where = context_.config.where;
    if (alternate && !writer.instead_for_alternating.empty()) {
      const QuantizeFormat* other = quantize_format_of(writer.instead_for_alternating);
      return Error{
          "quantize.model_type",
          fmt::format("{}: model_type {} has experts for which there is no form in {}; "
                      "--format {} has one",
                      where, quote(model_.model_type), request_.format->name, other->name)};
    }
    if (!writes_stacks() || file.matrices.front().experts > 1) return {};
    return Error{"quantize.model_type",
                 fmt::format("{}: experts that are modules of their own have no form in {}; "
                             "--format mxfp4_pack_quantized has one",
                             where, request_.format->name)};
  }

  void add_names(QuantizeUnit& unit, const TensorSpec& spec, const FileMatrix& matrix) const {
    unit.modules.push_back({matrix.module, {}, 0});
    if (matrix.experts == 1) return;
    for (int64_t e = 0; e < matrix.experts; ++e) {
      for (const PartSpec& part : names_.parts_of(spec)) {
        unit.modules.push_back({expert_name(part.name, e), {}, 0});
      }
    }
  }

  void add_stack(QuantizeUnit& unit, const TensorSpec& spec, const FileTensors& file,
                 const FileMatrix& stack, const FileTensor& tensor) {
    const std::vector<PartSpec> parts = names_.parts_of(spec);
    if (writes_stacks()) {
      QuantizeModule module = {stack.module, {}, 0};
      for (int64_t e = 0; e < stack.experts; ++e) {
        module.matrices.push_back(rows_of_stack(tensor, stack, e, 0, stack.rows, 1));
      }
      unit.modules.push_back(std::move(module));
      return;
    }
    const bool alternate = file.rows == PartOrder::kAlternating && parts.size() > 1;
    for (int64_t e = 0; e < stack.experts; ++e) {
      int64_t row = 0;
      for (const PartSpec& part : parts) {
        const MatrixRows rows =
            rows_of_stack(tensor, stack, e, row, part.rows, alternate ? std::ssize(parts) : 1);
        unit.modules.push_back(
            {expert_name(part.name, e), {rows}, add_to_set(static_cast<std::size_t>(e), rows)});
        row += alternate ? 1 : part.rows;
      }
    }
  }

  /// Parts of one matrix, or of one expert, share a factor.
  std::size_t add_to_set(std::size_t expert, const MatrixRows& rows) {
    const std::size_t set = begin_sets_ + expert;
    if (plan_.sets.size() <= set) plan_.sets.resize(set + 1);
    plan_.sets[set].push_back(rows);
    return set;
  }

  /// Which rule is the first to name it. Names of one that is not wanted count, too.
  Result<std::optional<std::size_t>> find_rule(const QuantizeUnit& unit,
                                               std::vector<RuleUse>& uses) const {
    std::optional<std::size_t> first;
    const QuantizeModule* other = nullptr;
    std::string_view code;
    for (const QuantizeModule& module : unit.modules) {
      std::optional<std::size_t> found;
      for (std::size_t i = 0; i < uses.size(); ++i) {
        if (!request_.rules[i].pattern.matches(module.name)) continue;
        uses[i].names = true;
        if (!found) found = i;
      }
      if (found) uses[*found].decides = true;
      if (&module == &unit.modules.front()) first = found;
      if (found == first || other != nullptr) continue;
      other = &module;
      code =
          request_.rules[std::min(found.value_or(uses.size()), first.value_or(uses.size()))].code;
    }
    const bool is_wanted = !unit.modules.front().matrices.empty();
    if (other == nullptr || !is_wanted) return first;
    return Error{code,
                 fmt::format("the matrices of {} are multiplied together, so that patterns name "
                             "all of them or none; these treat {} and {} differently",
                             quote_name(unit.name), quote_name(unit.modules.front().name),
                             quote_name(other->name))};
  }

  /// What a rule says is not left out in silence; a form for what is kept anyway, as a head is
  /// without --head, would be.
  Status check_used(const std::vector<RuleUse>& uses) const {
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const QuantizeRule& rule = request_.rules[i];
      if (uses[i].decides) continue;
      const std::string_view problem =
          uses[i].names ? "patterns before it name the same matrices, and the first one counts"
                        : "no matrix of the model is called so";
      return Error{rule.code, fmt::format("pattern {}: {}{}", quote(rule.pattern.text()), problem,
                                          uses[i].names ? "" : example())};
    }
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (uses[i].is_applied || request_.rules[i].keep) continue;
      return Error{
          "quantize.rules",
          fmt::format("{}: the matrices that it names are not quantized (--head and --embedding "
                      "quantize theirs); expected \"keep\": true",
                      request_.rules[i].where)};
    }
    return {};
  }

  /// "; names look like model.layers.0.mlp.down_proj" with a name of this model.
  std::string example() const {
    return plan_.units.empty()
               ? ""
               : "; names look like " + printable(plan_.units.back().modules.front().name);
  }

  Status apply(const QuantizeRule& rule, QuantizeUnit& unit) const {
    const QuantizeFormat& format = *request_.format;
    const QuantizeForm usual = unit.form;
    if (rule.bits) unit.form.bits = *rule.bits;
    if (rule.group_size) unit.form.group_size = group_size_of(format, rule.group_size);
    if (rule.symmetric) unit.form.symmetric = *rule.symmetric;
    unit.has_own_bits = rule.bits.has_value();
    unit.has_own_group = rule.group_size.has_value();
    if (Status form = check_form(format, unit.form); !form.ok()) {
      return Error{"quantize.rules", fmt::format("{}: {}", rule.where, form.error().message)};
    }
    if (format.mixed || unit.form == usual) return {};
    return Error{"quantize.rules",
                 fmt::format("{}: expected no other form than the rest, as {} has one for "
                             "all matrices; compressed-tensors and gptq have several",
                             rule.where, format.name)};
  }

  /// One size for all but those that a rule gave one, as many readers know no other.
  Status choose_group() {
    const QuantizeFormat& format = *request_.format;
    int64_t size = request_.form.group_size;
    while (request_.fits_group && find_odd(size) != nullptr) {
      const std::optional<int64_t> half = half_group(format, size);
      if (!half) break;
      size = *half;
    }
    plan_.usual.group_size = size;
    for (QuantizeUnit& unit : plan_.units) {
      if (!unit.has_own_group) unit.form.group_size = size;
      SUBBYTE_CHECK(check_inputs(unit));
      const MatrixRows* odd = format.short_groups ? nullptr : find_odd(unit, unit.form.group_size);
      if (odd == nullptr) continue;
      return tensor_error("quantize.group_size", *odd->tensor,
                          fmt::format("{} inputs are not a multiple of the group size {}; {}",
                                      odd->cols, unit.form.group_size,
                                      format.whole_rows ? "--group-size 0 has a scale for each row"
                                                        : "--ignore keeps a matrix as it is"));
    }
    return {};
  }

  /// Products read quantized inputs in eights, whatever shares a scale.
  static Status check_inputs(const QuantizeUnit& unit) {
    const MatrixRows* const odd = find_odd(unit, kSmallestGroup);
    if (odd == nullptr) return {};
    return tensor_error(
        "quantize.group_size", *odd->tensor,
        fmt::format("{} inputs are not a multiple of {}, in which quantized weights "
                    "are multiplied; --ignore keeps a matrix as it is",
                    odd->cols, kSmallestGroup));
  }

  /// A matrix whose inputs the group does not divide.
  static const MatrixRows* find_odd(const QuantizeUnit& unit, int64_t group_size) {
    for (const QuantizeModule& module : unit.modules) {
      const MatrixRows& first = module.matrices.front();
      if (group_size != 0 && first.cols % group_size != 0) return &first;
    }
    return nullptr;
  }

  const MatrixRows* find_odd(int64_t group_size) const {
    for (const QuantizeUnit& unit : plan_.units) {
      const MatrixRows* odd = unit.has_own_group ? nullptr : find_odd(unit, group_size);
      if (odd != nullptr) return odd;
    }
    return nullptr;
  }

  const ImportContext& context_;
  const ModelConfig& model_;
  const CheckpointNames& names_;
  const QuantizeRequest& request_;
  QuantizePlan plan_;
  std::size_t begin_sets_ = 0;  // of the unit that is being made
};

}  // namespace

int64_t QuantizeUnit::weights() const {
  int64_t sum = 0;
  for (const QuantizeModule& module : modules) {
    for (const MatrixRows& matrix : module.matrices) sum += matrix.weights();
  }
  return sum;
}

Result<QuantizePlan> plan_units(const ImportContext& context, const ModelConfig& model,
                                const QuantizeRequest& request) {
  const ModelFamily& family = family_of(model);
  SUBBYTE_TRY(const auto names, CheckpointNames::find(context.tensors, family.experts));
  SUBBYTE_TRY(QuantizePlan plan, UnitFinder(context, model, names, request).find());
  // What does not run now does not run as a result, which takes hours.
  SUBBYTE_CHECK(find_tensors(context, names, model));
  for (const TensorSpec& spec : tensors_of(model)) {
    if (spec.is_plain()) plan.exact.insert(names.full(spec.name));
  }
  return plan;
}

}  // namespace subbyte
