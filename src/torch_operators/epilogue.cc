#include "torch_operators/epilogue.h"

#include <algorithm>

#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

struct Named {
  const char* name;
  device::Activation activation;
};

constexpr Named kActivations[] = {
    {"relu", device::Activation::kRelu},
    {"gelu", device::Activation::kGelu},
    {"silu_gate", device::Activation::kSiluGate},
    {"gelu_gate", device::Activation::kGeluGate},
    {"clamped_gate", device::Activation::kClampedGate},
};

const Named* find_activation(const std::string& name) {
  const auto* const found = std::ranges::find(kActivations, name, &Named::name);
  return found == std::end(kActivations) ? nullptr : found;
}

}  // namespace

Epilogue::Epilogue(Arguments& arguments)
    : bias(arguments.optional_tensor("bias")),
      residual(arguments.optional_tensor("residual")),
      name(arguments.optional_text()),
      in_turns(arguments.boolean()) {
  clamp.alpha = static_cast<float>(arguments.number());
  clamp.limit = static_cast<float>(arguments.number());
  clamp.up_offset = static_cast<float>(arguments.number());
  const Named* const found = name ? find_activation(*name) : nullptr;
  if (found != nullptr) activation = found->activation;
}

Status Epilogue::check(const Tensor& x, const MatrixView& weights) const {
  SUBBYTE_CHECK(check_product(x, weights, bias));
  if (name && find_activation(*name) == nullptr) {
    return refuse("activation", "relu, gelu, silu_gate, gelu_gate or clamped_gate", *name);
  }
  if (has_gate() && weights.rows % 2 != 0) {
    return refuse("codes", "as many outputs of gate as of up",
                  std::to_string(weights.rows) + " outputs");
  }
  if (!residual) return {};
  SUBBYTE_CHECK(check_dtype(*residual, {x.dtype()}));
  const std::vector<int64_t> sizes = product_sizes(x, outputs(weights.rows));
  if (std::ranges::equal(residual->sizes(), sizes)) return {};
  return refuse(*residual, "sizes " + shown(sizes));
}

}  // namespace subbyte::torch_operators
