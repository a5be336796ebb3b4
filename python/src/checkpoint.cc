// The class Checkpoint of the module: matrices and tensors of a checkpoint, one by one.

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "checkpoints/model_path.h"
#include "errors.h"
#include "gil.h"
#include "held_matrix.h"
#include "host.h"
#include "models/checkpoint.h"
#include "models/model_family.h"
#include "watch.h"

namespace subbyte::python {

namespace nb = nanobind;

namespace {

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& name, Executor& pool) {
    SUBBYTE_TRY(const auto path, find_checkpoint(name));
    SUBBYTE_TRY(CheckpointParts files, open_matrices(path));
    const ModelFamily* const family = find_family(files.kind());
    const bool alternates =
        family == nullptr || family->experts == ExpertLayout::kAlternatingStacks;
    Checkpoint checkpoint(std::move(files), alternates);
    for (FoundModule& module : find_modules(checkpoint.context(pool))) {
      checkpoint.modules_.emplace(std::move(module.name), std::move(module.info));
    }
    return checkpoint;
  }

  const std::map<std::string, Result<ModuleInfo>>& modules() const { return modules_; }
  const TensorSource& tensors() const { return *files_.tensors; }
  const QuantizationConfig& config() const { return *files_.quantization; }

  /// What the tensors of a module hold; nullptr where there is none of that name.
  const Result<ModuleInfo>* find(const std::string& name) const {
    const auto found = modules_.find(name);
    return found == modules_.end() ? nullptr : &found->second;
  }

  Result<std::vector<Matrix>> import(const std::string& name, Executor& pool) const {
    for (const FileTensor* tensor : (*find(name))->tensors) {
      SUBBYTE_CHECK(tensor->file->verify_unchanged());
    }
    return import_experts(context(pool), name);
  }

 private:
  Checkpoint(CheckpointParts files, bool alternates)
      : files_(std::move(files)), alternates_(alternates) {}

  ImportContext context(Executor& pool) const {
    ImportContext context = files_.context(pool);
    context.stacks_have_inputs_first = alternates_;
    return context;
  }

  CheckpointParts files_;
  bool alternates_;  // gate and up in a stack of experts
  std::map<std::string, Result<ModuleInfo>> modules_;
};

Checkpoint open(const std::string& name) {
  Watch watch{nb::none()};
  return take(without_gil([&]() -> Result<Checkpoint> {
    SUBBYTE_TRY(Host host, Host::take());
    WatchedExecutor pool(host.execution().pool(), watch);
    return Checkpoint::open(name, pool);
  }));
}

const ModuleInfo& info_of(const Checkpoint& checkpoint, const std::string& name) {
  const Result<ModuleInfo>* const found = checkpoint.find(name);
  if (found == nullptr) throw nb::key_error(name.c_str());
  if (!found->ok()) raise(found->error());
  return **found;
}

/// A matrix, or a list of the experts of a stack.
nb::object import_module(const Checkpoint& checkpoint, const std::string& name) {
  const int64_t experts = info_of(checkpoint, name).experts;
  Watch watch{nb::none()};
  std::vector<Matrix> matrices = take(without_gil([&]() -> Result<std::vector<Matrix>> {
    SUBBYTE_TRY(Host host, Host::take());
    WatchedExecutor pool(host.execution().pool(), watch);
    return checkpoint.import(name, pool);
  }));
  if (experts == 1 && matrices.size() == 1) {
    return nb::cast(HeldMatrix(std::move(matrices.front())));
  }
  nb::list list;
  for (Matrix& matrix : matrices) list.append(nb::cast(HeldMatrix(std::move(matrix))));
  return list;
}

nb::dict describe(const Checkpoint& checkpoint, const std::string& name) {
  const ModuleInfo& info = info_of(checkpoint, name);
  nb::dict result;
  result["kind"] = std::string(info.importer);
  result["format"] = to_string(info.format);
  result["shape"] = nb::make_tuple(info.rows, info.cols);
  result["experts"] = info.experts;
  result["bytes"] = info.bytes();
  result["act_order"] = info.act_order;
  nb::list tensors;
  for (const FileTensor* tensor : info.tensors) tensors.append(nb::str(tensor->name.c_str()));
  result["tensors"] = tensors;
  return result;
}

const FileTensor& tensor_of(const Checkpoint& checkpoint, const std::string& name) {
  const FileTensor* const tensor = checkpoint.tensors().find(name);
  if (tensor == nullptr) throw nb::key_error(name.c_str());
  return *tensor;
}

/// The type of an array with the bits of a tensor: that of numpy, or integers as wide.
nb::dlpack::dtype numpy_type(DType dtype) {
  const auto as = [&](nb::dlpack::dtype_code code) {
    return nb::dlpack::dtype{static_cast<uint8_t>(code), static_cast<uint8_t>(bits(dtype)), 1};
  };
  switch (dtype) {
    case DType::kF16:
    case DType::kF32:
    case DType::kF64:
      return as(nb::dlpack::dtype_code::Float);
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      return as(nb::dlpack::dtype_code::Int);
    case DType::kC64:
      return as(nb::dlpack::dtype_code::Complex);
    case DType::kBool:
      return as(nb::dlpack::dtype_code::Bool);
    default:
      return as(nb::dlpack::dtype_code::UInt);
  }
}

/// A tensor where it lies in the file, which the array keeps open.
template <typename Array>
nb::object array_of(const FileTensor& tensor, nb::dlpack::dtype type) {
  std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
  if (bits(tensor.dtype) < 8) {  // several in a byte
    shape = {tensor.bytes.size()};
    type = nb::dtype<uint8_t>();
  }
  auto* const file = new std::shared_ptr<const MappedFile>(tensor.file);
  const nb::capsule owner(file, [](void* held) noexcept {
    delete static_cast<std::shared_ptr<const MappedFile>*>(held);
  });
  return nb::cast(Array(tensor.bytes.data(), shape.size(), shape.data(), owner, nullptr, type));
}

/// The same for those who know bfloat16.
nb::object dlpack_of(const FileTensor& tensor) {
  using Array = nb::ndarray<nb::array_api, nb::ro>;
  return array_of<Array>(tensor,
                         tensor.dtype == DType::kBF16 ? kBfloat16 : numpy_type(tensor.dtype));
}

}  // namespace

void add_checkpoint(nb::module_& module) {
  nb::class_<Checkpoint>(module, "Checkpoint", "An open checkpoint.")
      .def(
          "__init__",
          [](Checkpoint* self, const std::string& name) { new (self) Checkpoint(open(name)); },
          nb::arg("path"))
      .def_prop_ro("modules",
                   [](const Checkpoint& self) {
                     std::vector<std::string> names;
                     for (const auto& [name, info] : self.modules()) names.push_back(name);
                     return names;
                   })
      .def_prop_ro("tensors",
                   [](const Checkpoint& self) {
                     std::vector<std::string> names;
                     for (const auto& [name, unused] : self.tensors().tensors()) {
                       names.push_back(name);
                     }
                     return names;
                   })
      .def_prop_ro("quantization",
                   [](const Checkpoint& self) { return self.config().method_name(); })
      .def("load", &import_module, nb::arg("module"),
           nb::sig("def load(self, module: str) -> Matrix | list[Matrix]"))
      .def("describe", &describe, nb::arg("module"))
      .def(
          "dtype",
          [](const Checkpoint& self, const std::string& name) {
            return std::string(subbyte::name(tensor_of(self, name).dtype));
          },
          nb::arg("tensor"))
      .def(
          "shape",
          [](const Checkpoint& self, const std::string& name) {
            return tensor_of(self, name).shape;
          },
          nb::arg("tensor"))
      .def(
          "array",
          [](const Checkpoint& self, const std::string& name) {
            const FileTensor& tensor = tensor_of(self, name);
            return array_of<nb::ndarray<nb::numpy, nb::ro>>(tensor, numpy_type(tensor.dtype));
          },
          nb::arg("tensor"), nb::sig("def array(self, tensor: str) -> typing.Any"))
      .def(
          "dlpack",
          [](const Checkpoint& self, const std::string& name) {
            return dlpack_of(tensor_of(self, name));
          },
          nb::arg("tensor"), nb::sig("def dlpack(self, tensor: str) -> typing.Any"));
}

}  // namespace subbyte::python
