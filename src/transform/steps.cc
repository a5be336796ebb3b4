#include "transform/steps.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace subbyte {

WriteStep split_bias(const FileTensor& tensor, const BiasParts& parts) {
  WriteStep step;
  for (const std::string& name : parts.names) {
    step.tensors.push_back({name, tensor.dtype, {parts.rows}});
  }
  step.sources = {&tensor};
  step.make = [&tensor, parts](const PutBytes& put) -> Status {
    for (std::size_t i = 0; i < parts.names.size(); ++i) {
      SUBBYTE_CHECK(put(i, bias_part(tensor, parts, i)));
    }
    return {};
  };
  return step;
}

WriteStep join_biases(std::string name, const ExpertStack& stack) {
  const FileTensor& first = *stack.biases.front();
  const std::size_t turns = stack.gate_up ? 2 : 1;
  WriteStep step;
  step.tensors = {
      {std::move(name), first.dtype, {stack.biases.size() / turns, first.shape[0] * turns}}};
  step.sources = stack.biases;
  step.make = [biases = stack.biases, turns,
               width =
                   static_cast<std::size_t>(bits(first.dtype)) / 8](const PutBytes& put) -> Status {
    for (std::size_t i = 0; i < biases.size(); i += turns) {
      const std::size_t size = biases[i]->bytes.size();
      std::vector<std::byte> row(size * turns);
      for (std::size_t at = 0; at < size * turns; at += width) {
        const std::size_t turn = at / width % turns;
        const auto from = biases[i + turn]->bytes.subspan(at / turns / width * width, width);
        std::ranges::copy(from, row.data() + at);
      }
      SUBBYTE_CHECK(put(0, row));
    }
    return {};
  };
  return step;
}

std::vector<const FileTensor*> sources_of(std::span<const FoundModule* const> modules) {
  std::vector<const FileTensor*> tensors;
  for (const FoundModule* const module : modules) {
    const auto& own = module->info->tensors;
    tensors.insert(tensors.end(), own.begin(), own.end());
  }
  return tensors;
}

Result<std::vector<Matrix>> import_modules(const ImportContext& context,
                                           std::span<const FoundModule* const> modules) {
  std::vector<Matrix> matrices;
  for (const FoundModule* const module : modules) {
    SUBBYTE_TRY(auto imported, import_experts(context, module->name));
    std::ranges::move(imported, std::back_inserter(matrices));
  }
  return matrices;
}

Error in_file(const Error& error, const FileTensor& tensor) {
  const std::string where = tensor.file->path().string() + ": ";
  return {error.code, error.message.starts_with(where) ? error.message : where + error.message};
}

Result<std::vector<TensorDeclaration>> declare_exported(const Exporter& exporter,
                                                        const ExportShape& shape,
                                                        const std::string& module,
                                                        ExportedModel& exported) {
  SUBBYTE_TRY(const auto described, exporter.describe(shape, module));
  exported.modules.push_back({module, shape});
  return declarations(described, module);
}

Status put_exported(const Exporter& exporter, std::span<const Matrix> matrices,
                    std::string_view module, Executor& pool, const PutBytes& put,
                    std::size_t& index) {
  SUBBYTE_TRY(const auto tensors, write_module(exporter, matrices, module, pool));
  for (const ExportedTensor& tensor : tensors) SUBBYTE_CHECK(put(index++, tensor.bytes));
  return {};
}

std::vector<std::string> kept_layers(std::span<const FoundModule> modules,
                                     const std::set<std::string_view>& rewritten) {
  std::vector<std::string> kept;
  bool head = false;
  for (const FoundModule& module : modules) {
    head = head || module.name.ends_with("lm_head");
    if (module.name.ends_with("embed_tokens") || (module.is_read && !module.info.ok())) continue;
    const auto is_rewritten = [&](const FileTensor* tensor) {
      return rewritten.contains(tensor->name);
    };
    if (!module.is_read || std::ranges::none_of(module.info->tensors, is_rewritten)) {
      kept.push_back(module.name);
    }
  }
  if (!head) kept.emplace_back("lm_head");  // tied to the embedding
  return kept;
}

std::vector<std::string> unread_quantized(std::span<const FoundModule> modules) {
  std::vector<std::string> names;
  for (const FoundModule& module : modules) {
    const bool is_plain = module.info.ok() && is_dense(*module.info);
    if (!module.is_read && !is_plain) names.push_back(module.name);
  }
  return names;
}

}  // namespace subbyte
