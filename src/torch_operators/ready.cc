#include "torch_operators/ready.h"

#include <string>
#include <utility>

namespace subbyte::torch_operators {
namespace {

/// How a copy of `view` is made, which is made of its sources by `of` itself. The factor of the
/// tensor is no part of that, as no copy holds it.
Recipe recipe_within(const Recipe& of, const char* name, const MatrixView& view) {
  Recipe recipe = {name, of.numbers,
                   std::string(of.name) + ' ' + of.text + ' ' + to_string(view.format)};
  recipe.numbers.insert(recipe.numbers.end(), {view.rows, view.cols});
  return recipe;
}

}  // namespace

Result<device::HostWeights> make_ready(Machine& machine, const MatrixView& view,
                                       std::span<const Tensor* const> sources, const Recipe& of) {
  const auto keep_copy = [&](const char* name, const MatrixView& copied,
                             FunctionRef<Result<Matrix>()> make) {
    return keep(recipe_within(of, name, copied), sources, make);
  };
  return device::HostWeights::create(machine.execution(), view, keep_copy);
}

Result<std::shared_ptr<const device::HostWeights>> keep_ready(
    Machine& machine, const Recipe& recipe, std::span<const Tensor* const> sources,
    FunctionRef<Result<WithOffsets>()> make) {
  const auto make_all = [&]() -> Result<Kept> {
    SUBBYTE_TRY(WithOffsets made, make());
    const auto keep_copy = [&](const char* name, const MatrixView& copied,
                               FunctionRef<Result<Matrix>()> make_copy) {
      return keep(recipe_within(recipe, name, copied), sources, make_copy);
    };
    SUBBYTE_TRY(device::HostWeights ready,
                device::HostWeights::create(machine.execution(), made.matrix.view, keep_copy));
    SUBBYTE_CHECK(ready.set_offsets(made.offsets.view, made.group_size, keep_copy));
    for (Matrix* part : {&made.matrix, &made.offsets}) {
      for (auto& owner : part->owners) ready.owners.push_back(std::move(owner));
    }
    // Copies are counted where they are kept.
    const int64_t bytes = made.matrix.view.bytes() + made.offsets.view.bytes();
    return Kept{std::make_shared<const device::HostWeights>(std::move(ready)), bytes};
  };
  SUBBYTE_TRY(auto kept, keep_object(recipe, sources, make_all));
  return std::static_pointer_cast<const device::HostWeights>(std::move(kept));
}

}  // namespace subbyte::torch_operators
