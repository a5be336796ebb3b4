#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/quote.h"
#include "checkpoints/expert_names.h"
#include "matrix/alternate_rows.h"
#include "transform/convert_plan.h"
#include "transform/dense_writer.h"

namespace subbyte {
namespace {

/// The matrices of a job in the order of the file; gate and up have become one.
Result<std::vector<Matrix>> import_job(const ImportContext& context, const ConvertJob& job) {
  SUBBYTE_TRY(std::vector<Matrix> matrices, import_modules(context, job.modules));
  if (!job.gate_up) return matrices;
  std::vector<Matrix> joined;
  for (std::size_t i = 0; i < matrices.size(); i += 2) {
    auto both = alternate_rows(matrices[i].view, matrices[i + 1].view);
    if (!both.ok()) {
      return Error{both.error().code,
                   fmt::format("{}, {}: {}", quote_name(job.modules[i]->name),
                               quote_name(job.modules[i + 1]->name), both.error().message)};
    }
    joined.push_back(std::move(both).value());
  }
  return joined;
}

/// Gate and up of each matrix; only after they were recast, since both need one factor.
std::vector<Matrix> taken_apart(const std::vector<Matrix>& joint) {
  std::vector<Matrix> apart;
  for (const Matrix& both : joint) {
    apart.push_back(every_second_row(both.view, 0));
    apart.push_back(every_second_row(both.view, 1));
  }
  return apart;
}

void add_loss(ConvertLoss& loss, const Difference& difference, std::string_view name) {
  if (difference.unequal == 0) return;
  loss.all += difference;
  loss.worst.add(name, difference.signal_to_noise_db());
}

DenseRounding rounding_of(const ConvertLoss& loss) {
  return loss.allowed ? DenseRounding::kNearest : DenseRounding::kNone;
}

Status put_floats(const ImportContext& context, const ConvertTarget& target, const ConvertJob& job,
                  std::span<const Matrix> matrices, ConvertLoss& loss, const PutBytes& put) {
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const std::string name = matrices.size() == 1
                                 ? job.names.front()
                                 : expert_name(job.names.front(), static_cast<int64_t>(i));
    SUBBYTE_TRY(
        const Difference lost,
        write_dense(matrices[i].view, name, target.dense, matrices.size() > 1, rounding_of(loss),
                    context.pool, [&](std::span<const std::byte> bytes) { return put(0, bytes); }));
    add_loss(loss, lost, name);
    if (lost.unequal > 0) ++loss.rounded;
  }
  return {};
}

/// Adds what became of one module or tensor.
void add(ConvertLoss& all, const ConvertLoss& one) {
  all.rounded += one.rounded > 0 ? 1 : 0;
  all.all += one.all;
  if (one.rounded > 0) all.worst.add(one.worst.name, one.worst.signal_to_noise_db);
}

}  // namespace

Result<Matrix> in_target(const Matrix& matrix, const TargetFormat& target, std::string_view module,
                         ConvertLoss& loss, Executor& pool) {
  auto exact = recast(matrix, target);
  if (!exact.ok() && target.largest_scale > 0) {  // rather a factor of its own than a loss
    TargetFormat alone = target;
    alone.largest_scale = 0;
    exact = recast(matrix, alone);
  }
  if (exact.ok()) return exact;
  auto near = loss.allowed ? recast(matrix, target, Rounded::kScales) : std::move(exact);
  if (!near.ok()) {
    return Error{near.error().code,
                 fmt::format("{}: {}", quote_name(module), near.error().message)};
  }
  const Difference lost = difference(matrix.view, near->view, pool);
  loss.all += lost;
  loss.worst.add(module, lost.signal_to_noise_db());
  ++loss.rounded;
  return near;
}

Status convert_modules(const ImportContext& context, const ConvertTarget& target,
                       const ConvertJob& job, ConvertLoss& loss, const PutBytes& put) {
  SUBBYTE_TRY(std::vector<Matrix> matrices, import_job(context, job));
  ConvertLoss own = {loss.allowed};
  if (target.exporter == nullptr) {
    SUBBYTE_CHECK(put_floats(context, target, job, matrices, own, put));
    add(loss, own);
    return {};
  }
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const std::size_t name = job.names.size() * i / matrices.size();
    SUBBYTE_TRY(matrices[i],
                in_target(matrices[i], job.target, job.names[name], own, context.pool));
  }
  add(loss, own);
  if (job.apart) matrices = taken_apart(matrices);
  std::size_t index = 0;
  const std::size_t experts = matrices.size() / job.names.size();  // of each name
  for (std::size_t i = 0; i < job.names.size(); ++i) {
    SUBBYTE_CHECK(put_exported(*target.exporter,
                               std::span<const Matrix>(matrices).subspan(i * experts, experts),
                               job.names[i], context.pool, put, index));
  }
  return {};
}

WriteStep as_other_floats(const FileTensor& tensor, DType dtype, ConvertLoss& loss,
                          Executor& pool) {
  const auto make = [&tensor, dtype, &loss, &pool](const PutBytes& put) -> Status {
    SUBBYTE_TRY(const Difference lost, write_dense(tensor, dtype, rounding_of(loss), pool, put));
    add_loss(loss, lost, tensor.name);
    if (lost.unequal > 0) ++loss.rounded;
    return {};
  };
  return {{{tensor.name, dtype, tensor.shape}}, make, {&tensor}};
}

}  // namespace subbyte
