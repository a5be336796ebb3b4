#include "transform/packing/pack_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoints/expert_names.h"
#include "foreign_layouts/marlin.h"

namespace subbyte {
namespace {

using Bytes = std::vector<std::byte>;

/// Names the module, or the expert of a stack.
Error of_matrix(const Error& error, const PackedModule& module, int64_t index) {
  const std::string name = module.experts == 0 ? module.name : expert_name(module.name, index);
  return {error.code, fmt::format("{}: {}", quote_name(name), error.message)};
}

/// The part of one matrix in a tensor of all.
template <typename Span>
Span part_of(Span tensor, int64_t index, int64_t count) {
  const std::size_t size = tensor.size() / static_cast<std::size_t>(count);
  return tensor.subspan(static_cast<std::size_t>(index) * size, size);
}

/// The error of the first matrix that has one.
Status first_error(std::span<const Status> statuses) {
  for (const Status& status : statuses) SUBBYTE_CHECK(status);
  return {};
}

template <typename Body>
Status for_each_matrix(const PackedModule& module, Executor& pool, const Body& body) {
  std::vector<Status> statuses(module.num_matrices());
  pool.parallel_for(module.num_matrices(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Status status = body(i);
      if (!status.ok()) statuses[i] = of_matrix(status.error(), module, i);
    }
  });
  return first_error(statuses);
}

Status pack_one(const PackedModule& module, const MatrixView& matrix, int64_t index,
                std::vector<Bytes>& tensors) {
  std::vector<std::span<std::byte>> parts;
  for (Bytes& tensor : tensors) {
    parts.push_back(part_of(std::span(tensor), index, module.num_matrices()));
  }
  return module.layout->pack(matrix, module.shape, parts);
}

std::vector<Bytes> make_tensors(const PackedModule& module) {
  std::vector<Bytes> tensors;
  for (const ExportedTensor& tensor : module.layout->describe(module.shape)) {
    tensors.emplace_back(tensor.num_bytes() * static_cast<uint64_t>(module.num_matrices()));
  }
  return tensors;
}

}  // namespace

Result<std::vector<Bytes>> pack_matrices(const PackedModule& module,
                                         std::span<const Matrix> matrices, Executor& pool) {
  std::vector<Bytes> tensors = make_tensors(module);
  SUBBYTE_CHECK(for_each_matrix(
      module, pool, [&](int64_t i) { return pack_one(module, matrices[i].view, i, tensors); }));
  return tensors;
}

Result<std::vector<Matrix>> unpack_matrices(const PackedModule& module,
                                            std::span<const std::span<const std::byte>> tensors,
                                            Executor& pool) {
  std::vector<Matrix> matrices(module.num_matrices());
  SUBBYTE_CHECK(for_each_matrix(module, pool, [&](int64_t i) -> Status {
    std::vector<std::span<const std::byte>> parts;
    for (const auto tensor : tensors) parts.push_back(part_of(tensor, i, module.num_matrices()));
    SUBBYTE_TRY(matrices[i], module.layout->unpack(module.shape, parts));
    matrices[i].view.tensor_scale = module.factor(i);
    return {};
  }));
  SUBBYTE_TRY(const std::vector<Bytes> again, pack_matrices(module, matrices, pool));
  const auto names = packed_tensors(module);
  for (std::size_t t = 0; t < again.size(); ++t) {
    const auto different = std::ranges::mismatch(again[t], tensors[t]);
    if (different.in1 == again[t].end()) continue;
    return Error{"pack.not_exact",
                 fmt::format("{}: expected what {} makes of these weights, 0x{:02X} at byte {}, "
                             "found 0x{:02X}",
                             quote_name(names[t].name), module.layout->name,
                             std::to_integer<int>(*different.in1), different.in1 - again[t].begin(),
                             std::to_integer<int>(*different.in2))};
  }
  return matrices;
}

std::vector<std::byte> pack_biases(const PackedModule& module, std::span<const std::byte> biases) {
  const int64_t count = module.num_matrices();
  Bytes packed(biases.size());
  for (int64_t i = 0; i < count; ++i) {
    pack_marlin_bias(part_of(std::span(packed), i, count).data(), part_of(biases, i, count).data(),
                     module.shape.rows, bits(module.bias->dtype) / 8);
  }
  return packed;
}

std::vector<std::byte> unpack_biases(const PackedModule& module,
                                     std::span<const std::byte> packed) {
  const int64_t count = module.num_matrices();
  Bytes biases(packed.size());
  for (int64_t i = 0; i < count; ++i) {
    unpack_marlin_bias(part_of(std::span(biases), i, count).data(),
                       part_of(packed, i, count).data(), module.shape.rows,
                       bits(module.bias->dtype) / 8);
  }
  return biases;
}

}  // namespace subbyte
