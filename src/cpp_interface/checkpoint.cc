#include "subbyte/checkpoint.h"

#include <utility>

#include "base/quote.h"
#include "checkpoints/model_path.h"
#include "cpp_interface/matrix_data.h"
#include "cpp_interface/threads.h"
#include "models/checkpoint.h"

namespace subbyte::wrapped {

struct Checkpoint::State {
  subbyte::Checkpoint files;
  std::shared_ptr<Executor> threads;

  ImportContext context() const { return files.context(*threads); }
};

namespace {

Result<subbyte::Checkpoint> open_files(const std::filesystem::path& model) {
  SUBBYTE_TRY(const auto path, find_checkpoint(model.string()));
  return open_matrices(path);
}

Tensor to_public(const FileTensor& tensor) {
  return {tensor.name, std::string(subbyte::name(tensor.dtype)), tensor.shape, tensor.bytes,
          tensor.file};
}

Module to_public(const FoundModule& found) {
  Module module;
  module.name = found.name;
  if (!found.info.ok()) {
    module.error = found.info.error();
    return module;
  }
  const subbyte::ModuleInfo& info = *found.info;
  module.flavour = info.importer;
  module.format = info.format;
  module.experts = info.experts;
  module.rows = info.rows;
  module.cols = info.cols;
  module.act_order = info.act_order;
  module.bytes = info.bytes();
  return module;
}

Error missing(std::string_view name) {
  return Error{"import.missing",
               "expected a tensor " + quote_name(name) + ", found none of that name"};
}

}  // namespace

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& model,
                                    std::shared_ptr<Executor> threads) {
  auto opened = open_files(model);
  if (!opened.ok()) return std::move(opened).error();
  return Checkpoint(std::unique_ptr<State>(
      new State{std::move(opened).value(), threads_or_own(std::move(threads))}));
}

const std::vector<std::filesystem::path>& Checkpoint::files() const {
  return state_->files.tensors->files();
}

std::vector<Tensor> Checkpoint::tensors() const {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : state_->files.tensors->tensors()) {
    tensors.push_back(to_public(tensor));
  }
  return tensors;
}

Result<Tensor> Checkpoint::tensor(std::string_view name) const {
  const FileTensor* found = state_->files.tensors->find(name);
  if (found == nullptr) return missing(name);
  return to_public(*found);
}

Result<std::vector<float>> Checkpoint::numbers(std::string_view name) const {
  const FileTensor* found = state_->files.tensors->find(name);
  if (found == nullptr) return missing(name);
  return import_vector(*state_->files.tensors, name, found->shape);
}

std::vector<Module> Checkpoint::modules() const {
  std::vector<Module> modules;
  for (const FoundModule& found : find_modules(state_->context())) {
    modules.push_back(to_public(found));
  }
  return modules;
}

Result<Matrix> Checkpoint::matrix(std::string_view module) const {
  auto matrix = import_matrix(state_->context(), module);
  if (!matrix.ok()) return std::move(matrix).error();
  return to_public(std::move(matrix).value());
}

Result<std::vector<Matrix>> Checkpoint::experts(std::string_view module) const {
  auto found = import_experts(state_->context(), module);
  if (!found.ok()) return std::move(found).error();
  std::vector<Matrix> experts;
  for (subbyte::Matrix& expert : *found) experts.push_back(to_public(std::move(expert)));
  return experts;
}

Status Checkpoint::verify_unchanged() const {
  return state_->files.tensors->verify_unchanged();
}

}  // namespace subbyte::wrapped
