#include "models/weight_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/quote.h"
#include "checkpoints/expert_names.h"
#include "matrix/alternate_rows.h"
#include "matrix/zero_points.h"
#include "models/head_bits.h"

namespace subbyte {
namespace {

/// The result with the name of the module in front of what it says.
template <class T>
Result<T> naming(std::string_view module, Result<T> result) {
  if (result.ok()) return result;
  return Error{result.error().code,
               fmt::format("{}: {}", quote_name(module), result.error().message)};
}

/// Of the bytes of an expert that a token reads, in the mean.
double share_of(const ExpertShape& shape) {
  return static_cast<double>(shape.used) / static_cast<double>(shape.experts);
}

}  // namespace

bool is_ignored_tensor(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".k_scale") ||
         name.ends_with(".v_scale");
}

WeightLoader::WeightLoader(const ImportContext& context, Backend& backend,
                           const LoadOptions& options, Reads reads)
    : context_(context), backend_(&backend), options_(options), reads_(reads) {}

void WeightLoader::count(int64_t bytes, double share) {
  weight_bytes_ += bytes;
  bytes_per_token_ += static_cast<double>(bytes) * share;
}

void WeightLoader::count(const Weight& weight, double share) {
  count(weight.bytes, share);
  if (weight.bytes > largest_.bytes) largest_ = weight;
}

void WeightLoader::report(uint64_t bytes) {
  read_bytes_ += bytes;
  if (options_.progress) options_.progress(read_bytes_, context_.tensors.total_bytes());
}

Status WeightLoader::check_shape(std::string_view module, const MatrixView& view, int64_t rows,
                                 int64_t cols) {
  if (view.rows == rows && view.cols == cols) return {};
  return Error{"model.weight_shape",
               fmt::format("{} has {} outputs and {} inputs, config.json asks for {} and {}",
                           quote_name(module), view.rows, view.cols, rows, cols)};
}

Result<Weight> WeightLoader::upload(std::string_view module, Matrix matrix,
                                    std::vector<float> bias) {
  auto uploaded = naming(module, backend_->upload(std::move(matrix), std::move(bias)));
  release_read();
  return uploaded;
}

Result<Experts> WeightLoader::upload(std::string_view where, ExpertMatrices experts) {
  return naming(where, backend_->upload(std::move(experts)));
}

Status WeightLoader::take_bias(std::string_view module, int64_t rows, Bias bias,
                               std::vector<float>& to) {
  if (bias == Bias::kNone) return refuse_bias(module);
  SUBBYTE_TRY(const auto values, numbers(fmt::format("{}.bias", module), rows));
  to.insert(to.end(), values.begin(), values.end());
  return {};
}

Result<Weight> WeightLoader::linear(std::string_view module, int64_t rows, int64_t cols,
                                    Bias bias) {
  SUBBYTE_TRY(Matrix found, matrix(module, rows, cols));
  std::vector<float> values;
  SUBBYTE_CHECK(take_bias(module, rows, bias, values));
  SUBBYTE_TRY(Weight weight, upload(module, std::move(found), std::move(values)));
  count(weight, 1.0);
  return weight;
}

Result<Weight> WeightLoader::joined(const std::vector<JoinedModule>& modules, int64_t cols,
                                    Bias bias) {
  std::vector<Matrix> matrices;
  std::vector<float> values;
  for (const JoinedModule& module : modules) {
    SUBBYTE_TRY(Matrix found, matrix(module.name, module.rows, cols));
    matrices.push_back(std::move(found));
    SUBBYTE_CHECK(take_bias(module.name, module.rows, bias, values));
  }
  SUBBYTE_TRY(Weight weight,
              naming(modules.front().name,
                     backend_->upload_joined(std::move(matrices), std::move(values))));
  release_read();
  count(weight, 1.0);
  return weight;
}

Result<Matrix> WeightLoader::matrix(std::string_view module, int64_t rows, int64_t cols) {
  SUBBYTE_TRY(const ModuleInfo info, use_module(module));
  SUBBYTE_TRY(Matrix matrix, import_one(module, info));
  SUBBYTE_CHECK(check_shape(module, matrix.view, rows, cols));
  report(info.bytes());
  read_tensors_.insert(read_tensors_.end(), info.tensors.begin(), info.tensors.end());
  return matrix;
}

Result<Matrix> WeightLoader::import_one(std::string_view module, const ModuleInfo& info) {
  if (reads_ != Reads::kAll) {
    SUBBYTE_CHECK(require_one_matrix(info));
    if (reads_ == Reads::kScales) SUBBYTE_CHECK(check_module_scales(context_, info));
    const Matrix row = with_zero_points(outline(info.format, 1, info.cols));
    return outline(row.view.format, info.rows, info.cols);
  }
  SUBBYTE_TRY(auto imported, import_matrix(context_, module));
  // What the kernels of the host read; others take symmetric integers as they are.
  const bool on_host = backend_->memory() == nullptr;
  return on_host ? with_zero_points(std::move(imported)) : std::move(imported);
}

Result<std::vector<Matrix>> WeightLoader::import_all(std::string_view module,
                                                     const ModuleInfo& info) {
  if (reads_ == Reads::kAll) return import_experts(context_, module);
  if (reads_ == Reads::kScales) SUBBYTE_CHECK(check_module_scales(context_, info));
  return std::vector<Matrix>(static_cast<std::size_t>(info.experts),
                             outline(info.format, info.rows, info.cols));
}

Matrix WeightLoader::outline(WeightFormat format, int64_t rows, int64_t cols) {
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format = format;
  view.rows = rows;
  view.cols = cols;
  const auto size = [](int64_t bytes) { return static_cast<std::size_t>(bytes); };
  const int64_t groups = rows * view.groups();
  const std::size_t codes = size(rows * view.row_bytes());
  const std::size_t scales = groups == 0 ? 0 : size(groups * info(format.scale).bits / 8);
  const std::size_t zeros = size(groups * zero_bytes(format.zero));
  const std::size_t largest = std::max({codes, scales, zeros});
  if (zeros_bytes_ < largest) {
    zeros_ = allocate_bytes(largest);
    zeros_bytes_ = largest;
  }
  view.codes = {zeros_.get(), codes};
  view.scales = {zeros_.get(), scales};
  view.zeros = {zeros_.get(), zeros};
  matrix.owners.push_back(zeros_);
  return matrix;
}

Result<Matrix> WeightLoader::alternate(const Matrix& even, const Matrix& odd) {
  if (reads_ == Reads::kAll) return alternate_rows(even.view, odd.view);
  const MatrixView& view = even.view;
  const Matrix first = outline(view.format, 1, view.cols);
  const Matrix second = outline(odd.view.format, 1, odd.view.cols);
  SUBBYTE_TRY(const Matrix both, alternate_rows(first.view, second.view));
  return outline(both.view.format, 2 * view.rows, view.cols);
}

void WeightLoader::release_read() {
  if (backend_->memory() != nullptr) {
    for (const FileTensor* tensor : read_tensors_) tensor->file->release(tensor->bytes);
  }
  read_tensors_.clear();
}

Result<ExpertLinears> WeightLoader::experts(std::string_view module, const ExpertShape& shape,
                                            Bias bias) {
  ExpertLinears linears;
  const bool apart =
      !has_module(context_.tensors, module) && has_module(context_.tensors, expert_name(module, 0));
  if (apart) {
    for (int64_t e = 0; e < shape.experts; ++e) {
      SUBBYTE_TRY(Matrix one, matrix(expert_name(module, e), shape.rows, shape.cols));
      linears.matrices.push_back(std::move(one));
    }
  } else {
    SUBBYTE_TRY(linears.matrices, stack(module, shape));
  }
  for (const Matrix& matrix : linears.matrices) count(matrix.view.bytes(), share_of(shape));
  if (bias == Bias::kRequired) {
    SUBBYTE_TRY(linears.bias, expert_bias(module, shape));
  }
  return linears;
}

Result<ExpertLinears> WeightLoader::alternating_experts(std::string_view module,
                                                        std::string_view even, std::string_view odd,
                                                        const ExpertShape& shape) {
  if (!has_module(context_.tensors, expert_name(even, 0))) return experts(module, shape);
  SUBBYTE_CHECK(check_gate_of_expert(context_.config, expert_name(even, 0)));
  SUBBYTE_TRY(ExpertLinears linears, paired_experts(even, odd, shape));
  if (context_.tensors.find(fmt::format("{}_bias", module)) != nullptr) {
    SUBBYTE_TRY(linears.bias, expert_bias(module, shape));
    return linears;
  }
  const int64_t rows = shape.rows / 2;
  for (int64_t e = 0; e < shape.experts; ++e) {
    SUBBYTE_TRY(const auto first, numbers(expert_name(even, e) + ".bias", rows));
    SUBBYTE_TRY(const auto second, numbers(expert_name(odd, e) + ".bias", rows));
    for (int64_t i = 0; i < rows; ++i) {
      linears.bias.push_back(first[i]);
      linears.bias.push_back(second[i]);
    }
  }
  return linears;
}

Result<ExpertLinears> WeightLoader::paired_experts(std::string_view even, std::string_view odd,
                                                   const ExpertShape& shape) {
  ExpertLinears linears;
  for (int64_t e = 0; e < shape.experts; ++e) {
    SUBBYTE_TRY(Matrix both, paired_expert(expert_name(even, e), expert_name(odd, e), shape));
    count(both.view.bytes(), share_of(shape));
    linears.matrices.push_back(std::move(both));
  }
  return linears;
}

Result<Matrix> WeightLoader::paired_expert(const std::string& even, const std::string& odd,
                                           const ExpertShape& shape) {
  SUBBYTE_TRY(const Matrix first, matrix(even, shape.rows / 2, shape.cols));
  SUBBYTE_TRY(const Matrix second, matrix(odd, shape.rows / 2, shape.cols));
  auto both = alternate(first, second);
  if (both.ok()) return both;
  return Error{both.error().code,
               fmt::format("{}, {}: {}", quote_name(even), quote_name(odd), both.error().message)};
}

Result<std::vector<Matrix>> WeightLoader::stack(std::string_view module, const ExpertShape& shape) {
  SUBBYTE_TRY(const ModuleInfo info, use_module(module));
  SUBBYTE_TRY(auto matrices, import_all(module, info));
  if (static_cast<int64_t>(matrices.size()) != shape.experts) {
    return Error{"model.weight_shape",
                 fmt::format("{} has {} experts, config.json asks for {}", quote_name(module),
                             matrices.size(), shape.experts)};
  }
  for (const Matrix& matrix : matrices) {
    SUBBYTE_CHECK(check_shape(module, matrix.view, shape.rows, shape.cols));
  }
  report(info.bytes());
  return matrices;
}

Result<std::vector<float>> WeightLoader::expert_bias(std::string_view module,
                                                     const ExpertShape& shape) {
  const std::string name = fmt::format("{}_bias", module);
  const bool apart = context_.tensors.find(name) == nullptr &&
                     context_.tensors.find(expert_name(module, 0) + ".bias") != nullptr;
  if (!apart) return matrix_as_numbers(name, shape.experts, shape.rows);
  std::vector<float> bias;
  for (int64_t e = 0; e < shape.experts; ++e) {
    SUBBYTE_TRY(const auto one, numbers(expert_name(module, e) + ".bias", shape.rows));
    bias.insert(bias.end(), one.begin(), one.end());
  }
  return bias;
}

Result<Weight> WeightLoader::table(std::string_view module, int64_t rows, int64_t cols) {
  SUBBYTE_TRY(Matrix found, matrix(module, rows, cols));
  if (!is_dense(found.view.format)) {
    return Error{
        "model.unsupported",
        fmt::format("{} is quantized; embeddings must be F16, BF16 or F32", quote_name(module))};
  }
  SUBBYTE_TRY(const ModuleInfo info, describe_module(context_, module));
  table_ = info.tensors.front();
  SUBBYTE_TRY(Matrix quantized, with_head_bits(std::move(found), module));
  SUBBYTE_TRY(Weight table, upload(module, std::move(quantized)));
  count(table, 0.0);
  return table;
}

Result<Matrix> WeightLoader::with_head_bits(Matrix matrix, std::string_view module) {
  if (options_.head_bits == 16 || !is_dense(matrix.view.format)) return matrix;
  SUBBYTE_TRY(const ModuleInfo info, describe_module(context_, module));
  return quantize_table(matrix, *info.tensors.front(), options_.head_bits, context_.pool);
}

Result<std::vector<float>> WeightLoader::numbers(std::string_view name, int64_t size) {
  SUBBYTE_TRY(auto values, import_vector(context_.tensors, name, {static_cast<uint64_t>(size)}));
  used_tensors_.insert(std::string(name));
  report(context_.tensors.find(name)->bytes.size());
  return values;
}

Result<Vector> WeightLoader::vector(std::string_view name, int64_t size) {
  SUBBYTE_TRY(auto values, numbers(name, size));
  return naming(name, backend_->upload(std::move(values)));
}

Result<Norm> WeightLoader::norm(std::string_view name, const ModelConfig& config) {
  SUBBYTE_TRY(Vector weight, vector(name, config.hidden_size));
  return Norm{std::move(weight), config.rms_norm_eps};
}

Result<std::vector<float>> WeightLoader::matrix_as_numbers(std::string_view name, int64_t rows,
                                                           int64_t cols) {
  SUBBYTE_TRY(auto values,
              import_vector(context_.tensors, name,
                            {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)}));
  used_tensors_.insert(std::string(name));
  report(context_.tensors.find(name)->bytes.size());
  return values;
}

Result<Weight> WeightLoader::head(const ModelConfig& config, const Weight& embedding) {
  if (config.tie_word_embeddings) {
    SUBBYTE_CHECK(check_tied_head());
    bytes_per_token_ += static_cast<double>(embedding.bytes);
    return embedding;
  }
  if (options_.head_bits == 16) return linear(kHeadModule, config.vocab_size, config.hidden_size);
  SUBBYTE_CHECK(refuse_bias(kHeadModule));
  SUBBYTE_TRY(Matrix found, matrix(kHeadModule, config.vocab_size, config.hidden_size));
  SUBBYTE_TRY(Matrix quantized, with_head_bits(std::move(found), kHeadModule));
  SUBBYTE_TRY(Weight head, upload(kHeadModule, std::move(quantized)));
  count(head, 1.0);
  return head;
}

Status WeightLoader::refuse_bias(std::string_view module) const {
  if (context_.tensors.find(fmt::format("{}.bias", module)) == nullptr) return {};
  return Error{"model.surplus",
               fmt::format("{} has a bias, which this model does not use", quote_name(module))};
}

Result<ModuleInfo> WeightLoader::use_module(std::string_view module) {
  SUBBYTE_TRY(ModuleInfo info, describe_module(context_, module));
  used_importers_.insert(info.importer);
  for (const FileTensor* tensor : info.tensors) used_tensors_.insert(tensor->name);
  return info;
}

/// Some files hold the head although it is tied; then it must be the embedding.
Status WeightLoader::check_tied_head() {
  const FileTensor* head = context_.tensors.find("lm_head.weight");
  if (head == nullptr) return {};
  used_tensors_.insert(head->name);
  const bool equal = head->bytes.size() == table_->bytes.size() &&
                     std::memcmp(head->bytes.data(), table_->bytes.data(), head->bytes.size()) == 0;
  head->file->release(head->bytes);
  if (options_.head_bits != 16) table_->file->release(table_->bytes);
  if (equal) return {};
  return Error{"model.surplus",
               "config.json says tie_word_embeddings, but 'lm_head.weight' is not the embedding"};
}

Status WeightLoader::finish(Model& model) const {
  for (const auto& [name, tensor] : context_.tensors.tensors()) {
    if (used_tensors_.contains(name) || is_ignored_tensor(name)) continue;
    return Error{"model.surplus",
                 fmt::format("{}: tensor {}: not part of the model that config.json describes",
                             tensor.file->path().string(), quote_name(name))};
  }
  const QuantizationConfig& config = context_.config;
  const bool quantized =
      std::ranges::any_of(used_importers_, [](std::string_view name) { return name != "dense"; });
  if (config.method != QuantizationConfig::Method::kNone && !quantized) {
    return Error{"import.config", fmt::format("{}: the method is {}, but no weight is quantized",
                                              config.where, quote(config.method_name()))};
  }
  std::set<std::shared_ptr<const MappedFile>> files;
  for (const auto& [name, tensor] : context_.tensors.tensors()) files.insert(tensor.file);
  model.files_.assign(files.begin(), files.end());
  model.bytes_per_token_ = static_cast<int64_t>(bytes_per_token_);
  model.weight_bytes_ = weight_bytes_;
  model.largest_weight_ = largest_;
  if (options_.progress) {
    options_.progress(context_.tensors.total_bytes(), context_.tensors.total_bytes());
  }
  return {};
}

}  // namespace subbyte
