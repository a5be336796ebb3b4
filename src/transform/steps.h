#pragma once
// Steps that several rewrites have (rewrite.h): what becomes of tensors and matrices.

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/exporter.h"
#include "checkpoints/modules.h"
#include "transform/expert_stacks.h"

namespace subbyte {

/// Splits a bias of experts into `parts`.
WriteStep split_bias(const FileTensor& tensor, const BiasParts& parts);

/// Joins biases of experts under `name`, one after the other; those of gate and up in turns, as
/// their rows are.
WriteStep join_biases(std::string name, const ExpertStack& stack);

/// The tensors of all modules that find_modules() knows by one of them.
std::vector<const FileTensor*> sources_of(std::span<const FoundModule* const> modules);

/// The matrices of the modules, in their order. Codes: those of import_experts().
Result<std::vector<Matrix>> import_modules(const ImportContext& context,
                                           std::span<const FoundModule* const> modules);

/// "FILE: MESSAGE", unless the message has it: of errors that name a tensor.
Error in_file(const Error& error, const FileTensor& tensor);

/// Describes the tensors of a module that an exporter writes, and adds it to `exported`. Codes:
/// those of Exporter::describe.
Result<std::vector<TensorDeclaration>> declare_exported(const Exporter& exporter,
                                                        const ExportShape& shape,
                                                        const std::string& module,
                                                        ExportedModel& exported);

/// Puts the tensors of a module, the first as tensor `index` of the step, and counts `index` on.
Status put_exported(const Exporter& exporter, std::span<const Matrix> matrices,
                    std::string_view module, Executor& pool, const PutBytes& put,
                    std::size_t& index);

/// Linear layers that stay what they are, as `rewritten` has none of their tensors; lm_head is
/// among them where it is no module. Embeddings are none: no reader looks for them there.
std::vector<std::string> kept_layers(std::span<const FoundModule> modules,
                                     const std::set<std::string_view>& rewritten);

/// Quantized modules that no model here reads: they stay what they are.
std::vector<std::string> unread_quantized(std::span<const FoundModule> modules);

}  // namespace subbyte
