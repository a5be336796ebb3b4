#include "transform/compared_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "checkpoints/modules.h"
#include "matrix/alternate_rows.h"
#include "models/latent_weights.h"
#include "models/model_family.h"
#include "transform/expert_stacks.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUsualPrefix = "model.";

/// A name of one prefix with another one.
std::string with_prefix(const std::string& name, std::string_view prefix, std::string_view head,
                        std::string_view other_prefix, std::string_view other_head) {
  const auto replaced = [&](std::string_view begin, std::string_view other) {
    return std::string(other) + name.substr(begin.size());
  };
  if (name == head || name.starts_with(std::string(head) + ".")) {
    return replaced(head, other_head);
  }
  return name.starts_with(prefix) ? replaced(prefix, other_prefix) : name;
}

}  // namespace

Result<ComparedModel> ComparedModel::open(const fs::path& directory, Executor& pool) {
  SUBBYTE_TRY(CheckpointParts checkpoint, open_weights(directory));
  SUBBYTE_TRY(checkpoint.tensors, with_joined_latents(checkpoint.context(pool)));
  const ModelFamily* family = find_family(checkpoint.kind());
  const bool alternates = family == nullptr || family->experts == ExpertLayout::kAlternatingStacks;
  return ComparedModel(std::move(checkpoint), alternates);
}

ComparedModel::ComparedModel(CheckpointParts checkpoint, bool alternates)
    : checkpoint_(std::move(checkpoint)), alternates_(alternates) {
  const auto names = CheckpointNames::find(tensors(), ExpertLayout());
  if (!names.ok()) return;
  prefix_ = names->prefix();
  head_ = names->head();
}

std::string ComparedModel::shown(const std::string& name) const {
  return has_usual_names_ ? with_prefix(name, prefix_, head_, kUsualPrefix, kHead) : name;
}

const FileTensor* ComparedModel::find(const std::string& shown_name) const {
  const FileTensor* const plain = tensors().find(shown_name);
  if (!has_usual_names_) return plain;
  const auto own = with_prefix(shown_name, kUsualPrefix, kHead, prefix_, head_);
  const FileTensor* const found = tensors().find(own);
  return found == nullptr ? plain : found;
}

Status ComparedModel::find_units(const std::set<std::string>& stacks, Executor& pool) {
  const ImportContext context = context_with(pool);
  modules_ = checkpoint_.find_modules(context);
  // Of parts that nobody reads the bytes are compared.
  std::erase_if(modules_, [](const FoundModule& module) { return !module.is_read; });
  find_family_names();
  for (const std::string& stack : stacks) {
    const FileTensor* tensor = find(stack);
    if (tensor == nullptr || tensor->shape.size() != 3) continue;
    const auto found = std::ranges::find(modules_, tensor->name, &FoundModule::name);
    if (found != modules_.end()) continue;
    modules_.push_back({tensor->name, describe_module(context, tensor->name)});
  }
  for (std::size_t m = 0; m < modules_.size(); ++m) {
    if (!modules_[m].info.ok()) return modules_[m].info.error();
    add_units(m);
    for (const FileTensor* tensor : modules_[m].info->tensors) used_.insert(tensor->name);
  }
  return {};
}

/// Stacks and joint matrices of a family that is known, under whatever names it has them.
void ComparedModel::find_family_names() {
  if (!checkpoint_.model.ok()) return;
  const auto names = CheckpointNames::find(tensors(), family_of(*checkpoint_.model).experts);
  if (!names.ok()) return;
  for (const TensorSpec& spec : tensors_of(*checkpoint_.model)) {
    const FileTensors file = names->tensors_of(spec);
    if (spec.parts.size() > 1 && file.rows != PartOrder::kApart) {
      JointParts& joint = joints_[shown(names->full(spec.name))];
      joint = {names->parts_of(spec), file.rows == PartOrder::kAlternating};
      for (PartSpec& part : joint.parts) part.name = shown(part.name);
    }
    if (!spec.is_of_experts()) continue;
    for (const PartSpec& part : names->parts_of(spec)) expert_stacks_.insert(shown(part.name));
    if (names->has_experts_apart(spec)) continue;
    const FileMatrix& stack = file.matrices.front();
    stacks_[stack.module] = stack;
  }
}

void ComparedModel::add_units(std::size_t m) {
  const FoundModule& module = modules_[m];
  const std::string name = shown(module.name);
  if (module.info->experts == 1) {
    units_[key_of(name)] = {m, 0};
    return;
  }
  for (int64_t e = 0; e < module.info->experts; ++e) {
    units_[{name, e}] = {m, static_cast<std::size_t>(e)};
  }
}

/// That of a module which is no stack.
ComparedKey ComparedModel::key_of(const std::string& name) const {
  if (const auto expert = parse_expert_name(name)) return {expert->stack, expert->expert};
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos || !expert_stacks_.contains(name.substr(0, dot))) return {name};
  int64_t expert = -1;
  std::from_chars(name.data() + dot + 1, name.data() + name.size(), expert);
  return {name.substr(0, dot), expert};
}

std::set<std::string> ComparedModel::stacks() const {
  std::set<std::string> names;
  for (const auto& [key, unit] : units_) {
    if (key.expert < 0) continue;
    names.insert(key.stack);
    if (const std::string joint = joint_name(key.stack); !joint.empty()) names.insert(joint);
  }
  return names;
}

void ComparedModel::take_apart_as(const ComparedModel& other) {
  const std::map<ComparedKey, ComparedUnit> whole = units_;
  for (const auto& [key, unit] : whole) {
    const JointParts joint = joint_of(key, rows(unit));
    if (joint.parts.empty() || unit.part >= 0) continue;
    if (!other.units_.contains({joint.parts.front().name, key.expert})) continue;
    units_.erase(key);
    ComparedUnit own = unit;
    own.alternates = joint.alternates;
    for (const PartSpec& part : joint.parts) {
      ++own.part;
      own.rows = part.rows;
      units_[{part.name, key.expert}] = own;
      own.first += part.rows;
    }
  }
}

/// What the matrix `key` of so many rows is made of; no parts: it is whole in any file.
JointParts ComparedModel::joint_of(const ComparedKey& key, int64_t rows) const {
  JointParts joint = {{}, alternates_};
  if (const auto found = joints_.find(key.stack); found != joints_.end()) {
    joint = found->second;
  } else if (rows % 2 == 0) {
    for (std::string& name : names_apart(key.stack)) {
      joint.parts.push_back({std::move(name), rows / 2});
    }
  }
  int64_t sum = 0;
  for (const PartSpec& part : joint.parts) sum += part.rows;
  if (sum != rows) joint.parts.clear();
  return joint;
}

void ComparedModel::untie_as(const ComparedModel& other) {
  if (!checkpoint_.model.ok() || !checkpoint_.model->tie_word_embeddings) return;
  const auto names = CheckpointNames::find(tensors(), ExpertLayout());
  if (!names.ok()) return;
  const ComparedKey head = {shown(names->full(kHead))};
  const auto table = units_.find({shown(names->full(kTable))});
  if (table == units_.end() || !other.units_.contains(head)) return;
  units_.try_emplace(head, table->second);
}

Result<MatrixView> ComparedModel::matrix(const ComparedUnit& unit, Executor& pool) {
  if (imported_ != static_cast<int64_t>(unit.module)) {
    release();
    const FoundModule& module = modules_[unit.module];
    for (const FileTensor* tensor : module.info->tensors) {
      SUBBYTE_CHECK(tensor->file->verify_unchanged());
    }
    SUBBYTE_TRY(matrices_, import_experts(context_for(module.name, pool), module.name));
    imported_ = static_cast<int64_t>(unit.module);
  }
  const MatrixView& whole = matrices_[unit.index].view;
  if (unit.part < 0) return whole;
  if (!unit.alternates) return rows_of(whole, unit.first, unit.rows);
  part_ = every_second_row(whole, unit.part);
  return part_.view;
}

/// Gives up the imported module and its pages of the file.
void ComparedModel::release() {
  matrices_.clear();
  if (imported_ < 0) return;
  for (const FileTensor* tensor : modules_[imported_].info->tensors) {
    tensor->file->release(tensor->bytes);
  }
  imported_ = -1;
}

uint64_t ComparedModel::bytes(const ComparedUnit& unit) const {
  const ModuleInfo& info = *modules_[unit.module].info;
  uint64_t all = 0;
  for (const FileTensor* tensor : info.tensors) all += tensor->bytes.size();
  all /= static_cast<uint64_t>(info.experts);
  return unit.part < 0 ? all
                       : all * static_cast<uint64_t>(unit.rows) / static_cast<uint64_t>(info.rows);
}

std::string ComparedModel::describe(const ComparedUnit& unit) const {
  const ModuleInfo& info = *modules_[unit.module].info;
  return fmt::format("{} {} [{}, {}]", info.importer, to_string(info.format), rows(unit),
                     info.cols);
}

ImportContext ComparedModel::context_with(Executor& pool) const {
  ImportContext context = checkpoint_.context(pool);
  context.stacks_have_inputs_first = alternates_;  // stacks of either kind
  return context;
}

/// The same for a module, of which the family may say more.
ImportContext ComparedModel::context_for(const std::string& module, Executor& pool) const {
  const auto stack = stacks_.find(module);
  return stack == stacks_.end() ? context_with(pool)
                                : context_of(checkpoint_.context(pool), stack->second);
}

}  // namespace subbyte
