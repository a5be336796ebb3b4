#include "transform/probing_backend.h"

#include "matrix/float_rows.h"
#include "models/model_family.h"

namespace subbyte {

ProbingBackend::ProbingBackend(Backend& backend, const ModelConfig& model,
                               const QuantizeFormat& format, const QuantizeForm& form,
                               std::string unit)
    : ForwardingBackend(backend), format_(format), form_(form), unit_(std::move(unit)) {
  for (const TensorSpec& spec : tensors_of(model)) {
    if (!spec.is_vector()) names_.push_back(spec.name);
  }
}

std::string ProbingBackend::next() {
  return uploads_ < names_.size() ? names_[uploads_++] : std::string();
}

Status ProbingBackend::quantize(std::vector<Matrix>& matrices) {
  for (Matrix& matrix : matrices) {
    const FloatRows rows(matrix.view);
    const RowReader read_row = [&](int64_t row, float* out) { rows.row(row, out); };
    SUBBYTE_TRY(matrix, format_.quantize({matrix.view.rows, matrix.view.cols, read_row, 0}, form_,
                                         backend_.host()));
  }
  return {};
}

Result<Weight> ProbingBackend::upload(Matrix matrix, std::vector<float> bias) {
  std::vector<Matrix> one;
  one.push_back(std::move(matrix));
  if (next() == unit_) SUBBYTE_CHECK(quantize(one));
  return backend_.upload(std::move(one.front()), std::move(bias));
}

Result<Weight> ProbingBackend::upload_joined(std::vector<Matrix> matrices,
                                             std::vector<float> bias) {
  if (next() == unit_) SUBBYTE_CHECK(quantize(matrices));
  return backend_.upload_joined(std::move(matrices), std::move(bias));
}

Result<Experts> ProbingBackend::upload(ExpertMatrices experts) {
  if (next() == unit_) SUBBYTE_CHECK(quantize(experts.gate_up));
  if (next() == unit_) SUBBYTE_CHECK(quantize(experts.down));
  return backend_.upload(std::move(experts));
}

}  // namespace subbyte
