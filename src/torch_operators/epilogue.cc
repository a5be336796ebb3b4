#include "torch_operators/epilogue.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/block_kernels.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

constexpr int64_t kBlock = 512;  // results that are made at a time, on the stack

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

/// Computes results [first, first + count) of a row.
class Block {
 public:
  Block(const cpu::VectorKernels& kernels, const Epilogue& epilogue, const float* row,
        int64_t outputs, int64_t first, int64_t count)
      : kernels_(kernels),
        epilogue_(epilogue),
        row_(row),
        outputs_(outputs),
        first_(first),
        count_(count) {}

  float* compute() {
    switch (epilogue_.activation) {
      case device::Activation::kNone:
        std::copy_n(row_ + first_, count_, gate_);
        break;
      case device::Activation::kRelu:
        for (int64_t i = 0; i < count_; ++i) {
          gate_[i] = row_[first_ + i] < 0 ? 0 : row_[first_ + i];  // NaN stays
        }
        break;
      case device::Activation::kGelu:
        std::copy_n(row_ + first_, count_, gate_);
        std::fill_n(up_, count_, 1.0F);
        kernels_.gelu_gate(gate_, up_, count_);
        break;
      case device::Activation::kSiluGate:
        split();
        kernels_.silu_gate(gate_, up_, count_);
        break;
      case device::Activation::kGeluGate:
        split();
        kernels_.gelu_gate(gate_, up_, count_);
        break;
      case device::Activation::kClampedGate:
        clamped();
        break;
    }
    return gate_;
  }

 private:
  void split() {
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t n = first_ + i;
      gate_[i] = row_[epilogue_.in_turns ? 2 * n : n];
      up_[i] = row_[epilogue_.in_turns ? 2 * n + 1 : n + outputs_];
    }
  }

  void clamped() {
    const SwiGLU& clamp = epilogue_.clamp;
    float both[2 * kBlock];
    const float* from = row_ + 2 * first_;
    if (!epilogue_.in_turns) {
      for (int64_t i = 0; i < count_; ++i) {
        both[2 * i] = row_[first_ + i];
        both[2 * i + 1] = row_[first_ + i + outputs_];
      }
      from = both;
    }
    kernels_.clamped_swiglu(gate_, from, count_, clamp.alpha, clamp.limit, clamp.up_offset);
  }

  const cpu::VectorKernels& kernels_;
  const Epilogue& epilogue_;
  const float* row_;
  int64_t outputs_;
  int64_t first_;
  int64_t count_;
  alignas(64) float gate_[kBlock];
  alignas(64) float up_[kBlock];
};

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

void finish(Machine& machine, const Epilogue& epilogue, const float* sums, int64_t m, int64_t rows,
            Tensor& out) {
  const Format format = out.format();
  const int64_t width = info(format).bits / 8;
  const int64_t outputs = epilogue.outputs(rows);
  const int64_t blocks = (outputs + kBlock - 1) / kBlock;
  const cpu::VectorKernels& kernels = *machine.kernels().vectors;
  const Element element = format == Format::kF32   ? Element::kF32
                          : format == Format::kF16 ? Element::kF16
                                                   : Element::kBF16;
  const auto store = kernels.blocks->store[static_cast<int>(element)];
  machine.executor().parallel_for(m * blocks, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / blocks;
      const int64_t first = i % blocks * kBlock;
      const int64_t count = std::min(kBlock, outputs - first);
      Block block(kernels, epilogue, sums + row * rows, outputs, first, count);
      float* const results = block.compute();
      const int64_t place = (row * outputs + first) * width;
      if (epilogue.residual) {
        float added[kBlock];
        load_numbers(added, epilogue.residual->data() + place, count, format);
        for (int64_t n = 0; n < count; ++n) results[n] += added[n];
      }
      store(out.data() + place, results, count);
    }
  });
}

}  // namespace subbyte::torch_operators
