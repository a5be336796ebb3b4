#include "transform/gguf_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "base/quote.h"
#include "foreign_layouts/ggml_blocks.h"
#include "matrix/alternate_rows.h"
#include "matrix/dequantize.h"
#include "models/latent_weights.h"
#include "transform/format_hints.h"
#include "transform/gguf_order.h"

namespace subbyte {
namespace {

constexpr int64_t kPieceBytes = int64_t{16} << 20;

/// A matrix, or the stack of the matrices of all experts, in the file.
struct Target {
  GgufName name;
  const GgmlType* type = nullptr;
  TargetFormat format;              // that the blocks hold
  int64_t first = 0;                // row of the tensor that has it among others
  int64_t rows = 0;                 // of each expert
  std::vector<int64_t> order = {};  // of its rows; empty: as they are
  std::vector<int64_t> parts = {};  // of its columns, as many equal ones; empty: as they are
  bool joins = false;               // the rows of all matrices of the file, one after another

  bool has_factor() const { return format.factor != TensorFactor::kNone; }
};

bool is_float(Format format) {
  return format == Format::kF16 || format == Format::kBF16 || format == Format::kF32;
}

/// Says whether blocks of `to` may hold weights of `from`; `symmetric`: is_symmetric() of them.
bool may_hold(const WeightFormat& to, const WeightFormat& from, bool symmetric) {
  if (is_dense(to) || is_dense(from)) return to == from;
  const bool same_zero = to.zero == Zero::kNone ? symmetric : is_offset(from.zero);
  const bool same_scale = to.scale == Format::kF16 ? is_float(from.scale) : to.scale == from.scale;
  const Format element =
      to.zero == Zero::kNone && symmetric ? signed_element(from.element) : from.element;
  return from.rotation == 0 && same_zero && same_scale && element == to.element;
}

class Planner {
 public:
  Planner(const ImportContext& context, const ModelConfig& model,
          const GgufArchitecture& architecture, ConvertLoss& loss)
      : context_(context), architecture_(architecture), order_(model), loss_(loss) {}

  Status add(const FoundTensor& found) {
    const bool is_absent = found.file.matrices.empty() && found.file.vectors.empty();
    if (is_absent || !found.spec.tied_to.empty()) return {};
    if (found.spec.is_vector()) return add_vector(found);
    if (found.spec.latent.count > 0) return add_latent(found);
    SUBBYTE_TRY(const std::vector<Target> targets, targets_of(found));
    add_matrices(found, targets);
    return found.file.vectors.empty() ? Status() : add_biases(found, targets);
  }

  std::vector<WriteStep> take() { return std::move(steps_); }

 private:
  // ---- what becomes what

  static int64_t experts_of(const TensorSpec& spec) { return std::max<int64_t>(1, spec.experts); }

  /// The parts; or the whole where the architecture has it, and the file has it joined, too, or the
  /// architecture does not have the parts.
  std::vector<PartSpec> parts_of(const FoundTensor& found) const {
    const TensorSpec& spec = found.spec;
    const auto has_name = [&](const PartSpec& part) {
      return gguf_name_of(architecture_, part.name, ".weight").ok();
    };
    const PartSpec whole = {spec.name, spec.rows};
    const bool may_be_whole = !spec.is_of_experts() && has_name(whole);
    const bool is_joined = found.file.matrices.size() == 1;
    const bool joins = is_joined || !std::ranges::all_of(spec.parts, has_name);
    if (spec.parts.empty() || (may_be_whole && joins)) return {whole};
    return spec.parts;
  }

  Result<std::vector<Target>> targets_of(const FoundTensor& found) const {
    std::vector<Target> targets;
    int64_t first = 0;
    for (const PartSpec& part : parts_of(found)) {
      Target target;
      SUBBYTE_TRY(target.name, gguf_name_of(architecture_, part.name, ".weight"));
      target.first = first;
      target.rows = part.rows;
      target.joins = part.rows == found.spec.rows && matrices_of_expert(found) > 1;
      target.order = order_.of(target.name.change, part.rows);
      if (target.name.change == GgufChange::kTiledColumns) target.parts = order_.tiled_heads();
      SUBBYTE_CHECK(choose_type(found, targets.size(), target));
      first += part.rows;
      targets.push_back(std::move(target));
    }
    return targets;
  }

  /// Matrices of the file that a target is made of, or that have it among others.
  static std::vector<std::size_t> sources_of(const FoundTensor& found, std::size_t part,
                                             bool joins) {
    const std::size_t each = joins ? 1 : matrices_of_expert(found);
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < found.file.matrices.size(); i += each) {
      indices.push_back(each == 1 ? i : i + part);
    }
    return indices;
  }

  static std::size_t matrices_of_expert(const FoundTensor& found) {
    const bool is_apart = found.file.rows == PartOrder::kApart && !found.spec.parts.empty();
    return is_apart ? found.spec.parts.size() : 1;
  }

  Status choose_type(const FoundTensor& found, std::size_t part, Target& target) const {
    const std::vector<std::size_t> sources = sources_of(found, part, target.joins);
    const ModuleInfo& first = found.infos[sources.front()];
    bool symmetric = true;
    for (const std::size_t i : sources) {
      const ModuleInfo& info = found.infos[i];
      if (info.format.element != first.format.element || is_dense(info) != is_dense(first)) {
        return no_type(found, "matrices of two formats", i);
      }
      SUBBYTE_TRY(const bool is_so, is_symmetric_module(found.file.matrices[i], info));
      symmetric = symmetric && is_so;
    }
    const bool is_in_f32 =
        found.spec.role == TensorRole::kRouter || target.name.change == GgufChange::kRow;
    WeightFormat format = first.format;
    if (is_dense(first) && is_in_f32) format.element = Format::kF32;
    for (const GgmlType& type : ggml_types()) {
      if (!type.format || ggml_type_of(*type.format) != &type) continue;
      if (!may_hold(*type.format, format, symmetric)) continue;
      if (first.cols % type.block != 0) {
        return no_type(
            found,
            fmt::format("{} inputs, which blocks of {} do not divide", first.cols, type.block),
            sources.front());
      }
      const std::size_t parts = std::max<std::size_t>(1, target.parts.size());
      const int64_t size = first.cols / static_cast<int64_t>(parts);
      if (size % type.block != 0) {
        return no_type(
            found, fmt::format("heads of {}, which blocks of {} do not divide", size, type.block),
            sources.front());
      }
      target.type = &type;
      target.format.format = *type.format;
      if (type.format->scale == Format::kE4M3) target.format.factor = TensorFactor::kMultiplies;
      if (!target.joins || !target.has_factor()) return {};
      return no_type(found, "matrices with a factor each as one", sources.front());
    }
    return no_type(found, to_string(first.format), sources.front());
  }

  Status no_type(const FoundTensor& found, const std::string& what, std::size_t matrix) const {
    return Error{"export.format",
                 fmt::format("{}: GGUF has no type that holds {}; `subbyte convert SRC DST --to "
                             "f32`, and that --to gguf, holds the numbers, but for those that f32 "
                             "has not (--allow-lossy)",
                             quote_name(found.file.matrices[matrix].module), what)};
  }

  Result<bool> is_symmetric_module(const FileMatrix& matrix, const ModuleInfo& info) const {
    if (info.format.zero == Zero::kNone) return true;
    if (is_offset(info.format.zero)) return false;
    SUBBYTE_TRY(const auto matrices, import_experts(context_of(context_, matrix), matrix.module));
    return std::ranges::all_of(matrices, [](const Matrix& m) { return is_symmetric(m.view); });
  }

  // ---- matrices

  void add_matrices(const FoundTensor& found, const std::vector<Target>& targets) {
    WriteStep step;
    const TensorSpec& spec = found.spec;
    const auto experts = static_cast<uint64_t>(experts_of(spec));
    for (const Target& target : targets) {
      TensorDeclaration tensor;
      tensor.name = target.name.name;
      tensor.dtype = DType::kBlocks;
      tensor.ggml_type = static_cast<int32_t>(target.type->number);
      if (is_dense(target.format.format)) tensor.dtype = *find_dtype(target.type->name);
      if (spec.is_of_experts()) tensor.shape.push_back(experts);
      if (target.name.change != GgufChange::kRow) {
        tensor.shape.push_back(static_cast<uint64_t>(target.rows));
      }
      tensor.shape.push_back(static_cast<uint64_t>(spec.cols));
      step.tensors.push_back(std::move(tensor));
    }
    for (const Target& target : targets) {
      if (!target.has_factor()) continue;
      std::string name = target.name.name;
      name.replace(name.rfind('.'), name.npos, ".scale");
      step.tensors.push_back({std::move(name), DType::kF32, {experts}});
    }
    for (const ModuleInfo& info : found.infos) {
      step.sources.insert(step.sources.end(), info.tensors.begin(), info.tensors.end());
    }
    step.make = [this_context = &context_, &found, targets, loss = &loss_](const PutBytes& put) {
      return put_matrices(*this_context, found, targets, *loss, put);
    };
    steps_.push_back(std::move(step));
  }

  static Status put_matrices(const ImportContext& context, const FoundTensor& found,
                             const std::vector<Target>& targets, ConvertLoss& loss,
                             const PutBytes& put) {
    const FileTensors& file = found.file;
    const std::size_t each = matrices_of_expert(found);
    std::vector<std::vector<float>> factors(targets.size());
    for (std::size_t at = 0; at < file.matrices.size(); at += each) {
      std::vector<std::vector<Matrix>> loaded(each);
      for (std::size_t i = 0; i < each; ++i) {
        const FileMatrix& matrix = file.matrices[at + i];
        SUBBYTE_TRY(loaded[i], import_experts(context_of(context, matrix), matrix.module));
      }
      for (std::size_t e = 0; e < loaded.front().size(); ++e) {
        for (std::size_t i = 0; i < std::max(each, targets.size()); ++i) {
          const std::size_t p = targets.front().joins ? 0 : i;
          const std::string& module = file.matrices[each == 1 ? at : at + i].module;
          const Matrix part =
              each == 1 ? part_of(loaded[0][e], targets, p, file.rows) : std::move(loaded[i][e]);
          SUBBYTE_TRY(const Matrix exact,
                      is_dense(targets[p].format.format)
                          ? Result<Matrix>(part)
                          : in_target(part, targets[p].format, module, loss, context.pool));
          SUBBYTE_CHECK(put_rows(exact, targets[p], context.pool,
                                 [&](std::span<const std::byte> b) { return put(p, b); }));
          factors[p].push_back(static_cast<float>(exact.view.tensor_scale));
        }
      }
    }
    std::size_t index = targets.size();
    for (std::size_t p = 0; p < targets.size(); ++p) {
      if (!targets[p].has_factor()) continue;
      SUBBYTE_CHECK(put(index++, std::as_bytes(std::span(factors[p]))));
    }
    return {};
  }

  /// The rows of one target among those of several.
  static Matrix part_of(const Matrix& whole, const std::vector<Target>& targets, std::size_t part,
                        PartOrder order) {
    if (targets.size() == 1) return whole;
    if (order == PartOrder::kAlternating) {
      return every_second_row(whole.view, static_cast<int>(part));
    }
    return {rows_of(whole.view, targets[part].first, targets[part].rows), whole.owners};
  }

  static Status put_rows(const Matrix& matrix, const Target& target, Executor& pool,
                         const std::function<Status(std::span<const std::byte>)>& put) {
    const MatrixView& view = matrix.view;
    const bool widens = is_dense(view.format) && view.format != target.format.format;
    const int64_t row_bytes = view.cols / target.type->block * target.type->bytes;
    const int64_t piece = std::clamp<int64_t>(kPieceBytes / row_bytes, 1, view.rows);
    const auto size = static_cast<std::size_t>(row_bytes);
    std::vector<std::byte> bytes(static_cast<std::size_t>(piece) * size);
    for (int64_t first = 0; first < view.rows; first += piece) {
      const int64_t count = std::min(piece, view.rows - first);
      pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          std::byte* const to = bytes.data() + i * row_bytes;
          const int64_t row =
              target.order.empty() ? first + i : target.order[static_cast<std::size_t>(first + i)];
          if (widens) {
            dequantize_row(view, row,
                           {reinterpret_cast<float*>(to), static_cast<std::size_t>(view.cols)});
          } else {
            pack_ggml_rows(*target.type, view, row, row + 1, to);
          }
          if (!target.parts.empty()) order_parts(target.parts, {to, size});
        }
      });
      SUBBYTE_CHECK(put(std::span(bytes).first(static_cast<std::size_t>(count * row_bytes))));
    }
    return {};
  }

  /// The bytes of a row, whose equal parts are put in another order.
  static void order_parts(const std::vector<int64_t>& parts, std::span<std::byte> row) {
    const std::vector<std::byte> old(row.begin(), row.end());
    const std::size_t size = row.size() / parts.size();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::copy_n(old.begin() + parts[i] * static_cast<int64_t>(size), size,
                  row.begin() + static_cast<int64_t>(i * size));
    }
  }

  static void dequantize_row(const MatrixView& view, int64_t row, std::span<float> to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<float>(weight_at(view, row, static_cast<int64_t>(i)));
    }
  }

  // ---- latent attention, whose sides are written apart

  /// Keys of each head are transposed, which only floats may be.
  Status add_latent(const FoundTensor& found) {
    const FileMatrix& file = found.file.matrices.front();
    const TensorSpec& spec = found.spec;
    if (!is_dense(found.infos.front())) {
      return no_type(found, "both sides of " + to_string(found.infos.front().format), 0);
    }
    WriteStep step;
    const std::string place = spec.name.substr(0, spec.name.rfind('.') + 1);
    const auto heads = static_cast<uint64_t>(spec.latent.count);
    const auto rank = static_cast<uint64_t>(spec.cols);
    for (const auto& [side, rows, cols] :
         {std::tuple(kKeysApart, rank, static_cast<uint64_t>(spec.latent.keys)),
          {kValuesApart, static_cast<uint64_t>(spec.latent.values), rank}}) {
      SUBBYTE_TRY(const GgufName name,
                  gguf_name_of(architecture_, place + std::string(side), ".weight"));
      const DType dtype = found.infos.front().tensors.front()->dtype;
      step.tensors.push_back({name.name, dtype, {heads, rows, cols}});
    }
    step.sources = found.infos.front().tensors;
    step.make = [this_context = &context_, &file, &spec](const PutBytes& put) -> Status {
      SUBBYTE_TRY(const Matrix joined, import_matrix(*this_context, file.module));
      const LatentMatrices sides =
          latent_matrices(joined.view, spec.latent, true, this_context->pool);
      SUBBYTE_CHECK(put(0, sides.keys.view.codes));
      return put(1, sides.values.view.codes);
    };
    steps_.push_back(std::move(step));
    return {};
  }

  // ---- biases and other vectors, which are F32

  Status add_biases(const FoundTensor& found, const std::vector<Target>& targets) {
    const FileTensors& file = found.file;
    const TensorSpec& spec = found.spec;
    std::vector<float> all;  // of each expert those of its parts, one after another
    for (const FileVector& vector : file.vectors) {
      SUBBYTE_TRY(const auto numbers, import_vector(context_.tensors, vector.name, vector.shape));
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
    const bool alternates = file.biases == PartOrder::kAlternating && targets.size() > 1;
    for (std::size_t p = 0; p < targets.size(); ++p) {
      const Target& target = targets[p];
      std::vector<float> own;
      for (int64_t e = 0; e < experts_of(spec); ++e) {
        for (int64_t i = 0; i < target.rows; ++i) {
          const int64_t row = target.order.empty() ? i : target.order[static_cast<std::size_t>(i)];
          const int64_t place = alternates ? 2 * row + static_cast<int64_t>(p) : target.first + row;
          own.push_back(all[static_cast<std::size_t>(e * spec.rows + place)]);
        }
      }
      std::string name = target.name.name;
      name.replace(name.rfind('.'), name.npos, ".bias");
      Shape shape = {static_cast<uint64_t>(target.rows)};
      if (spec.is_of_experts()) shape.insert(shape.begin(), static_cast<uint64_t>(spec.experts));
      add_floats(std::move(name), std::move(shape), std::move(own));
    }
    return {};
  }

  Status add_vector(const FoundTensor& found) {
    const FileVector& vector = found.file.vectors.front();
    std::string_view module = found.spec.name;
    std::string_view ending = found.spec.is_plain() ? "" : ".weight";
    for (const std::string_view own : {".weight", ".bias"}) {
      if (!module.ends_with(own)) continue;
      module.remove_suffix(own.size());
      ending = own;
    }
    SUBBYTE_TRY(GgufName name, gguf_name_of(architecture_, module, ending));
    SUBBYTE_TRY(auto numbers, import_vector(context_.tensors, vector.name, vector.shape));
    Shape shape = vector.shape;
    if (found.spec.role == TensorRole::kFilters) shape.erase(shape.begin() + 1);
    if (name.change == GgufChange::kPlusOne && ending != ".bias") {
      for (float& number : numbers) number += 1;
    }
    if (name.change == GgufChange::kRow) shape = {numbers.size()};
    const bool is_column =
        name.change == GgufChange::kColumn || name.change == GgufChange::kNegativeExpColumn;
    if (is_column) shape.push_back(1);
    if (name.change == GgufChange::kGroups) {
      const auto groups = static_cast<uint64_t>(order_.groups());
      shape = {groups, numbers.size() / groups};
    }
    if (name.change == GgufChange::kNegativeExp || name.change == GgufChange::kTiledNegativeExp ||
        name.change == GgufChange::kNegativeExpColumn) {
      for (float& number : numbers) number = static_cast<float>(-std::exp(double{number}));
      std::ranges::copy(context_.tensors.rates(vector.name), numbers.begin());
    }
    if (const auto order = order_.of(name.change, found.spec.rows); !order.empty()) {
      numbers = in_order(numbers, order);
    }
    add_floats(std::move(name.name), std::move(shape), std::move(numbers));
    return {};
  }

  static std::vector<float> in_order(const std::vector<float>& numbers,
                                     const std::vector<int64_t>& rows) {
    std::vector<float> ordered;
    const std::size_t width = numbers.size() / rows.size();
    for (const int64_t row : rows) {
      const auto from = numbers.begin() + row * static_cast<int64_t>(width);
      ordered.insert(ordered.end(), from, from + static_cast<int64_t>(width));
    }
    return ordered;
  }

  void add_floats(std::string name, Shape shape, std::vector<float> numbers) {
    WriteStep step;
    step.tensors = {{std::move(name), DType::kF32, std::move(shape)}};
    step.make = [numbers = std::move(numbers)](const PutBytes& put) {
      return put(0, std::as_bytes(std::span(numbers)));
    };
    steps_.push_back(std::move(step));
  }

  const ImportContext& context_;
  const GgufArchitecture& architecture_;
  GgufOrder order_;
  ConvertLoss& loss_;
  std::vector<WriteStep> steps_;
};

}  // namespace

Result<std::vector<WriteStep>> plan_gguf_steps(const ImportContext& context,
                                               const ModelConfig& model,
                                               const GgufArchitecture& architecture,
                                               const std::vector<FoundTensor>& tensors,
                                               ConvertLoss& loss) {
  Planner planner(context, model, architecture, loss);
  for (const FoundTensor& found : tensors) SUBBYTE_CHECK(planner.add(found));
  return planner.take();
}

}  // namespace subbyte
