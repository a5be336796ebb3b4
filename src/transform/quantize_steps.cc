#include "transform/quantize_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "checkpoints/expert_names.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/unread_parts.h"
#include "formats/rotation.h"
#include "quantize/quantize_rows.h"

namespace subbyte {
namespace {

constexpr int kBitsOfF16 = 16;

}  // namespace

QuantizeSteps::QuantizeSteps(const ImportContext& context, const QuantizeFormat& format,
                             const QuantizePlan& plan, bool allow_lossy)
    : context_(context),
      format_(format),
      exporter_(writer_of(format)),
      plan_(plan),
      allow_lossy_(allow_lossy) {
  report_.format = format.name;
  report_.group_size = plan.usual.group_size;
  report_.symmetric = plan.usual.symmetric;
}

Result<std::vector<WriteStep>> QuantizeSteps::plan() {
  std::map<std::string_view, std::vector<std::pair<const QuantizeModule*, const QuantizeForm*>>>
      by_tensor;
  for (const QuantizeUnit& unit : plan_.units) {
    for (const QuantizeModule& module : unit.modules) {
      const std::string_view tensor = module.matrices.front().tensor->name;
      by_tensor[tensor].emplace_back(&module, &unit.form);
      quantized_.insert(tensor);
      if (const auto name = parse_expert_name(module.name)) apart_.insert(name->stack);
    }
  }
  std::vector<WriteStep> steps;
  for (const auto& [name, tensor] : context_.tensors.tensors()) {
    const auto found = by_tensor.find(name);
    if (found == by_tensor.end()) {
      SUBBYTE_TRY(WriteStep step, kept(tensor));
      steps.push_back(std::move(step));
      ++report_.kept_tensors;
      continue;
    }
    for (const auto& [module, form] : found->second) {
      SUBBYTE_TRY(WriteStep step, step_of(*module, *form));
      num_bytes_ += count_bytes({&step, 1});
      steps.push_back(std::move(step));
    }
  }
  report_.code_bits /= static_cast<double>(num_weights_);
  report_.resumed_tensors = std::ssize(steps);
  state_group_sizes(exported_.modules);
  return steps;
}

Result<WriteStep> QuantizeSteps::step_of(const QuantizeModule& module, const QuantizeForm& form) {
  const MatrixRows& first = module.matrices.front();
  ExportShape shape = {format_.format(form), first.rows, first.cols};
  shape.format.rotation = rotation_of(first.cols, format_.rotation);
  shape.symmetric = form.symmetric || shape.format.zero == Zero::kNone;
  const TargetFormat target = exporter_.target(shape);
  shape.format = target.format;
  shape.experts = std::ssize(module.matrices);
  auto tensors = declare_exported(exporter_, shape, module.name, exported_);
  if (!tensors.ok()) {
    const Error& error = tensors.error();
    if (error.code != "export.shape") return error;
    return tensor_error(error.code, *first.tensor,
                        error.message + "; --ignore keeps a matrix as it is");
  }
  ++report_.quantized_matrices;
  ++report_.matrices_of_bits[form.bits];
  report_.matrices_with_f16_scales += form.scale == Format::kF16 ? 1 : 0;
  for (const MatrixRows& matrix : module.matrices) {
    num_weights_ += matrix.weights();
    report_.code_bits += static_cast<double>(matrix.weights()) * form.bits;
  }
  const auto make = [this, &module, &form, target](const PutBytes& put) -> Status {
    --report_.resumed_tensors;
    for (std::size_t i = 0; i < module.matrices.size(); ++i) {
      const std::string name = module.matrices.size() == 1
                                   ? module.name
                                   : expert_name(module.name, static_cast<int64_t>(i));
      SUBBYTE_CHECK(write_matrix(module, module.matrices[i], name, form, target, put));
    }
    return {};
  };
  return WriteStep{std::move(tensors).value(), make, {first.tensor}};
}

/// F32 stays what a number is very sensitive to, such as the rates by which a state is forgotten,
/// of which an exponential is taken; and parts that are not read stay what they are.
Result<WriteStep> QuantizeSteps::kept(const FileTensor& tensor) {
  const bool is_exact = tensor.dtype == DType::kF32 && plan_.exact.contains(tensor.name);
  const bool becomes_f16 = format_.f16_floats && !is_exact && !is_in_unread_part(tensor.name);
  if (becomes_f16 && float_format(tensor.dtype) == Format::kNone) {
    const std::string found(name(tensor.dtype));
    return tensor_error("dense.dtype", tensor, "expected dtype F16, BF16 or F32, found " + found);
  }
  const bool splits = is_bias_of_parts(tensor);
  WriteStep step = splits ? split_bias(tensor, *bias_parts(tensor)) : keep(tensor);
  const bool rounds = becomes_f16 && !splits;
  if (rounds) step.tensors.front().dtype = DType::kF16;
  step.make = [this, &tensor, rounds,
               as_it_is = std::move(step.make)](const PutBytes& put) -> Status {
    --report_.resumed_tensors;
    if (!rounds) return as_it_is(put);
    SUBBYTE_TRY(const SignalAndNoise error,
                write_as_float16(tensor, context_.pool,
                                 [&](std::span<const std::byte> bytes) { return put(0, bytes); }));
    return judge(tensor, tensor.name, error, kBitsOfF16, "as f16");
  };
  return step;
}

/// Whether the experts that this bias of a stack is for become modules, each with its own.
bool QuantizeSteps::is_bias_of_parts(const FileTensor& tensor) const {
  const auto parts = bias_parts(tensor);
  if (!parts || exporter_.write_experts != nullptr) return false;
  std::string_view module = parts->names.front();
  module.remove_suffix(std::string_view(".bias").size());
  const auto expert = parse_expert_name(module);
  return expert && apart_.contains(expert->stack);
}

Status QuantizeSteps::write_matrix(const QuantizeModule& module, const MatrixRows& rows,
                                   const std::string& name, const QuantizeForm& form,
                                   const TargetFormat& target, const PutBytes& put) {
  const FileTensor& tensor = *rows.tensor;
  const RowReader read_row = row_reader(rows);
  const double largest = exporter_.has_factor ? largest_of_set(module.set) : 0;
  auto matrix = format_.quantize({rows.rows, rows.cols, read_row, largest}, form, context_.pool);
  if (!matrix.ok()) return tensor_error(matrix.error().code, tensor, matrix.error().message);
  const SignalAndNoise error = quantization_error(matrix->view, read_row, context_.pool);
  error_ += error;
  tensor.file->release(tensor.bytes);
  SUBBYTE_CHECK(judge(tensor, name, error, form.bits,
                      fmt::format("in {} bits with scales in {}", form.bits,
                                  info(matrix->view.format.scale).name)));
  if (matrix->view.format != target.format) {
    SUBBYTE_TRY(matrix, recast(std::move(matrix).value(), target));
  }
  // A stack is its experts one after the other, so that one at a time is in memory.
  std::size_t index = 0;
  return put_exported(exporter_, {&*matrix, 1}, module.name, context_.pool, put, index);
}

double QuantizeSteps::largest_of_set(std::size_t set) {
  if (!plan_.largest.empty()) return plan_.largest[set];
  const auto known = largest_.find(set);
  if (known != largest_.end()) return known->second;
  double largest = 0;
  for (const MatrixRows& matrix : plan_.sets[set]) {
    largest = std::max(
        largest, largest_magnitude(matrix.rows, matrix.cols, row_reader(matrix), context_.pool));
  }
  return largest_[set] = largest;
}

/// What has little left is an error, unless that is allowed.
Status QuantizeSteps::judge(const FileTensor& tensor, const std::string& name,
                            const SignalAndNoise& error, int bits, std::string_view form) {
  report_.worst.add(name, error.db());
  const double least = least_signal_db(bits);
  if (allow_lossy_ || !(error.db() < least)) return {};
  return Error{"quantize.loss",
               fmt::format("{}: {}: expected at least {} dB of signal to noise {}, found {:.1f} "
                           "(its largest number is {:.3g})",
                           tensor.file->path().string(), quote_name(name), least, form, error.db(),
                           error.largest)};
}

QuantizeReport QuantizeSteps::report() const {
  QuantizeReport report = report_;
  report.source_bytes = context_.tensors.total_bytes();
  report.bits_per_weight = 8 * static_cast<double>(num_bytes_) / static_cast<double>(num_weights_);
  report.signal_to_noise_db = error_.db();
  return report;
}

}  // namespace subbyte
