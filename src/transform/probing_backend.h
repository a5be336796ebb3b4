#pragma once
// Measures what one unit of a model (quantize_plan.h) costs: a backend that quantizes that unit
// while the model is loaded and passes on everything else as it is. Nothing is written.

#include <string>
#include <vector>

#include "models/model_config.h"
#include "ops/forwarding_backend.h"
#include "transform/format_hints.h"

namespace subbyte {

class ProbingBackend : public ForwardingBackend {
 public:
  /// `unit` is a name of the family's list. All that is passed must outlive this.
  ProbingBackend(Backend& backend, const ModelConfig& model, const QuantizeFormat& format,
                 const QuantizeForm& form, std::string unit);

  /// Matrices are told by their order, which is that of the family's list. Codes: those of the
  /// quantizer, beside those of the backend.
  Result<Weight> upload(Matrix matrix, std::vector<float> bias) override;
  Result<Weight> upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) override;
  Result<Experts> upload(ExpertMatrices experts) override;
  Result<Vector> upload(std::vector<float> numbers) override {
    return backend_.upload(std::move(numbers));
  }

 private:
  Status quantize(std::vector<Matrix>& matrices);
  /// The name of what is uploaded next.
  std::string next();

  const QuantizeFormat& format_;
  QuantizeForm form_;
  std::string unit_;
  std::vector<std::string> names_;  // of the list, in the order in which matrices are uploaded
  std::size_t uploads_ = 0;
};

}  // namespace subbyte
