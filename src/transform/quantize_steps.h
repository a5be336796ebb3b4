#pragma once
// The steps of a quantization: modules of a plan (quantize_plan.h) and tensors that are kept.

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "quantize/loss.h"
#include "subbyte/transform.h"
#include "transform/quantize_plan.h"
#include "transform/steps.h"

namespace subbyte {

class QuantizeSteps {
 public:
  /// All that is passed must outlive this, and this the steps.
  QuantizeSteps(const ImportContext& context, const QuantizeFormat& format,
                const QuantizePlan& plan, bool allow_lossy);

  /// The steps for the forms that the units have now, in the order of the names of their tensors.
  /// Codes: export.*, dense.dtype (a tensor that is kept and no float, where all must become f16);
  /// of the steps quantize.f16_overflow, quantize.not_finite, quantize.scale_overflow,
  /// quantize.loss, export.*.
  Result<std::vector<WriteStep>> plan();

  const ExportedModel& exported() const { return exported_; }
  /// The tensors of the modules.
  const std::set<std::string_view>& quantized() const { return quantized_; }
  /// Says what became of the weights, without the size of the result.
  QuantizeReport report() const;

 private:
  Result<WriteStep> step_of(const QuantizeModule& module, const QuantizeForm& form);
  Result<WriteStep> kept(const FileTensor& tensor);
  bool is_bias_of_parts(const FileTensor& tensor) const;
  Status write_matrix(const QuantizeModule& module, const MatrixRows& rows, const std::string& name,
                      const QuantizeForm& form, const TargetFormat& target, const PutBytes& put);
  double largest_of_set(std::size_t set);
  Status judge(const FileTensor& tensor, const std::string& name, const SignalAndNoise& error,
               int bits, std::string_view form);

  const ImportContext& context_;
  const QuantizeFormat& format_;
  const Exporter& exporter_;
  const QuantizePlan& plan_;
  bool allow_lossy_;
  ExportedModel exported_;
  std::set<std::string_view> quantized_;      // tensors
  std::set<std::string, std::less<>> apart_;  // stacks whose experts become modules
  std::map<std::size_t, double> largest_;     // magnitude in each set that was asked for
  QuantizeReport report_;
  int64_t num_weights_ = 0;  // of the modules
  uint64_t num_bytes_ = 0;   // and what is stored of them
  SignalAndNoise error_;
};

}  // namespace subbyte
