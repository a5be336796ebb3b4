#include "transform/expert_stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/quote.h"
#include "checkpoints/expert_names.h"
#include "models/tensor_spec.h"

namespace subbyte {
namespace {

constexpr std::string_view kGate = "gate_proj";
constexpr std::string_view kUp = "up_proj";
constexpr std::string_view kGateUp = "gate_up_proj";

using Stacks = std::map<std::string, std::vector<const FoundModule*>>;

bool alike(const FoundModule& a, const FoundModule& b) {
  return a.info->experts == 1 && b.info->experts == 1 && a.info->format == b.info->format &&
         a.info->rows == b.info->rows && a.info->cols == b.info->cols;
}

Stacks complete_stacks(const std::vector<FoundModule>& modules) {
  std::map<std::string, std::map<int64_t, const FoundModule*>> experts;
  for (const FoundModule& module : modules) {
    if (!module.is_read) continue;
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
    ExpertStack& both =
        result.emplace_back(ExpertStack{prefix + std::string(kGateUp), {}, true, {}});
    for (std::size_t e = 0; e < gate->second.size(); ++e) {
      both.modules.push_back(gate->second[e]);
      both.modules.push_back(up->second[e]);
    }
    stacks.erase(up);
    gate = stacks.erase(gate);
  }
}

/// "experts.gate_up_proj" of "experts.gate_up_proj_bias", "experts.3.up_proj" of
/// "experts.3.up_proj.bias".
std::string_view without_bias(std::string_view name) {
  name.remove_suffix(std::string_view("_bias").size());
  return name;
}

/// The modules, or stacks of them, that a stacked bias is for, or that of one expert's joined gate
/// and up; none of other tensors.
std::vector<std::string> biased_modules(const FileTensor& tensor) {
  const std::string_view name = tensor.name;
  const bool is_of_all = tensor.shape.size() == 2 && name.ends_with("_bias");
  const bool is_of_one = tensor.shape.size() == 1 && name.ends_with(".bias");
  if (!is_of_all && !is_of_one) return {};
  if (tensor.shape.back() == 0) return {};  // then there may be any number of rows
  const std::string_view module = without_bias(name);
  std::vector<std::string> modules = names_apart(module);
  if (is_of_all && module.ends_with("experts.down_proj")) modules = {std::string(module)};
  if (!modules.empty() && tensor.shape.back() % modules.size() != 0) modules.clear();
  return modules;
}

/// Keys of config.json that say how many experts a layer has, whoever wrote it.
constexpr const char* kExpertKeys[] = {"num_local_experts", "num_experts", "n_routed_experts",
                                       "moe_num_experts"};

Error not_asked_for(const std::filesystem::path& file, std::string_view module,
                    const std::string& found, int64_t expected) {
  return {"model.weight_shape",
          fmt::format("{}: {}: expected {} experts of a layer (config.json), found {}",
                      file.string(), quote_name(module), expected, found)};
}

}  // namespace

ExpertCount ExpertCount::of(const Result<SideFile>& config, const Result<ModelConfig>& model) {
  if (model.ok()) {
    const auto stack = expert_stack_of(*model);
    return {stack ? stack->experts : 0, true};
  }
  ExpertCount count;
  if (!config.ok() || !config->value.is_object()) return count;
  const auto text = config->value.find(kTextConfig);
  const bool is_wrapper = text != nullptr && text->is_object();
  for (const char* const key : kExpertKeys) {
    const auto& section = is_wrapper ? *text : config->value;
    const auto found = section.find(key);
    if (found == nullptr || !found->is_number_unsigned()) continue;
    count.experts = static_cast<int64_t>(std::min<uint64_t>(found->get<uint64_t>(), kMaxExperts));
    break;
  }
  return count;
}

Status ExpertCount::check_stack(std::string_view stack, int64_t count,
                                const std::filesystem::path& file) const {
  if (count <= experts && (count == experts || !is_exact)) return {};
  return not_asked_for(file, stack, std::to_string(count), experts);
}

Status ExpertCount::check_module(const FoundModule& module) const {
  const std::filesystem::path& file = module.info->tensors.front()->file->path();
  if (module.info->experts > 1) return check_stack(module.name, module.info->experts, file);
  const auto name = parse_expert_name(module.name);
  if (!name || name->expert < experts) return {};
  return not_asked_for(file, module.name, fmt::format("number {}", name->expert), experts);
}

std::vector<std::string> names_apart(std::string_view joint) {
  if (!joint.ends_with("." + std::string(kGateUp))) return {};
  if (joint.find("experts.") == std::string_view::npos) return {};
  const std::string prefix(joint.substr(0, joint.size() - kGateUp.size()));
  return {prefix + std::string(kGate), prefix + std::string(kUp)};
}

std::string joint_name(std::string_view gate) {
  if (!gate.ends_with("." + std::string(kGate))) return {};
  return std::string(gate.substr(0, gate.size() - kGate.size())) + std::string(kGateUp);
}

bool has_bias_parts(const FileTensor& tensor) {
  return !biased_modules(tensor).empty();
}

std::optional<BiasParts> bias_parts(const FileTensor& tensor, bool joint) {
  std::vector<std::string> modules = biased_modules(tensor);
  if (modules.empty() || (joint && tensor.shape.size() != 2)) return std::nullopt;
  if (joint) modules = {std::string(without_bias(tensor.name))};
  BiasParts parts = {{}, modules.size(), tensor.shape.back() / modules.size()};
  if (tensor.shape.size() == 1) {
    for (const std::string& module : modules) parts.names.push_back(module + ".bias");
    return parts;
  }
  for (uint64_t e = 0; e < tensor.shape[0]; ++e) {
    for (const std::string& module : modules) {
      parts.names.push_back(expert_name(module, static_cast<int64_t>(e)) + ".bias");
    }
  }
  return parts;
}

std::vector<std::byte> bias_part(const FileTensor& tensor, const BiasParts& parts,
                                 std::size_t index) {
  const auto width = static_cast<std::size_t>(bits(tensor.dtype)) / 8;
  const std::size_t row = parts.rows * parts.turns * width;
  const std::byte* from =
      tensor.bytes.data() + index / parts.turns * row + index % parts.turns * width;
  std::vector<std::byte> bytes(row / parts.turns);
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    std::copy_n(from + at * parts.turns, width, bytes.data() + at);
  }
  return bytes;
}

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
