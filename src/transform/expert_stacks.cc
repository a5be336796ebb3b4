#include "transform/expert_stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "checkpoints/expert_names.h"

namespace subbyte {
namespace {

constexpr std::string_view kGate = "gate_proj";
constexpr std::string_view kUp = "up_proj";

using Stacks = std::map<std::string, std::vector<const FoundModule*>>;

bool alike(const FoundModule& a, const FoundModule& b) {
  return a.info->experts == 1 && b.info->experts == 1 && a.info->format == b.info->format &&
         a.info->rows == b.info->rows && a.info->cols == b.info->cols;
}

Stacks complete_stacks(const std::vector<FoundModule>& modules) {
  std::map<std::string, std::map<int64_t, const FoundModule*>> experts;
  for (const FoundModule& module : modules) {
    const auto name = parse_expert_name(module.name);
    if (name && !is_dense(*module.info)) experts[name->stack][name->expert] = &module;
  }
  Stacks stacks;
  for (const auto& [stack, found] : experts) {
    const FoundModule& first = *found.begin()->second;
    const auto count = static_cast<int64_t>(found.size());
    const bool same =
        std::ranges::all_of(found, [&](const auto& entry) { return alike(*entry.second, first); });
    if (!same || count < 2 || found.rbegin()->first != count - 1) continue;
    for (const auto& [expert, module] : found) stacks[stack].push_back(module);
  }
  return stacks;
}

/// The biases of all modules, or none when one lacks it or has another type or size.
std::vector<const FileTensor*> biases_of(const TensorSource& tensors,
                                         const std::vector<const FoundModule*>& modules) {
  std::vector<const FileTensor*> biases;
  for (const FoundModule* module : modules) {
    const FileTensor* bias = tensors.find(module->name + ".bias");
    if (bias == nullptr || bias->shape != Shape{static_cast<uint64_t>(module->info->rows)} ||
        (!biases.empty() && bias->dtype != biases.front()->dtype)) {
      return {};
    }
    biases.push_back(bias);
  }
  return biases;
}

/// Makes one stack of those of gate and up, whose modules then take turns.
void join_gate_up(Stacks& stacks, std::vector<ExpertStack>& result) {
  for (auto gate = stacks.begin(); gate != stacks.end();) {
    const std::string_view name = gate->first;
    const std::string prefix(name.substr(0, name.size() - std::min(name.size(), kGate.size())));
    const auto up = stacks.find(prefix + std::string(kUp));
    if (!name.ends_with("." + std::string(kGate)) || up == stacks.end() ||
        up->second.size() != gate->second.size() ||
        !alike(*up->second.front(), *gate->second.front())) {
      ++gate;
      continue;
    }
    ExpertStack& both = result.emplace_back(ExpertStack{prefix + "gate_up_proj", {}, true, {}});
    for (std::size_t e = 0; e < gate->second.size(); ++e) {
      both.modules.push_back(gate->second[e]);
      both.modules.push_back(up->second[e]);
    }
    stacks.erase(up);
    gate = stacks.erase(gate);
  }
}

}  // namespace

std::vector<ExpertStack> find_stacks(const TensorSource& tensors,
                                     const std::vector<FoundModule>& modules, bool joins_gate_up) {
  Stacks stacks = complete_stacks(modules);
  std::vector<ExpertStack> result;
  if (joins_gate_up) join_gate_up(stacks, result);
  for (auto& [name, found] : stacks) result.push_back({name, std::move(found), false, {}});
  for (ExpertStack& stack : result) stack.biases = biases_of(tensors, stack.modules);
  return result;
}

}  // namespace subbyte
