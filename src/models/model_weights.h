#pragma once
// The weights of a loaded model by the names of its list (tensor_spec.h), and what else is known of
// it by then, for the code that records a step.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "formats/format.h"
#include "ops/weights.h"

namespace subbyte {

/// Bytes of matrices by the names of a list, as a machine has them.
using WeightBytes = std::map<std::string, int64_t, std::less<>>;

/// Facts that decide in a step and stand in no config.json.
struct LoadFacts {
  Format table = Format::kNone;  // numbers of the embedding, where the tensors are known
  bool reads_tiles = false;  // what delta nets give, as columns lie in a file (FileTensor::cols)
  bool has_two_formats = false;  // gate and up of some experts
};

/// Matrices that queries and results of latent attention are multiplied by
/// (models/latent_weights.h).
struct LatentWeights {
  Weight keys, values;
};

class ModelWeights {
 public:
  /// Handles without storage for names that the list does not have.
  const Weight& matrix(std::string_view name) const { return find(matrices_, name); }
  /// Both sides of a matrix with LatentHeads.
  const LatentWeights& latent(std::string_view name) const { return find(latent_, name); }
  const Vector& vector(std::string_view name) const { return find(vectors_, name); }
  /// `name` is what gate_up_proj and down_proj stand under: "layers.3.mlp.experts".
  const Experts& experts(std::string_view name) const { return find(experts_, name); }

 private:
  friend class WeightLoader;  // fills these

  template <class T>
  using ByName = std::map<std::string, T, std::less<>>;

  template <class T>
  static const T& find(const ByName<T>& handles, std::string_view name) {
    static const T kNone = {};
    const auto found = handles.find(name);
    return found == handles.end() ? kNone : found->second;
  }

  ByName<Weight> matrices_;
  ByName<LatentWeights> latent_;
  ByName<Vector> vectors_;
  ByName<Experts> experts_;
};

}  // namespace subbyte
