#include "models/weight_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <set>

#include "base/quote.h"
#include "matrix/alternate_rows.h"
#include "matrix/codebook.h"
#include "models/head_bits.h"
#include "models/latent_weights.h"

namespace subbyte {
namespace {

/// Modules that are read between two reports of progress, for each thread.
constexpr std::size_t kModulesOfThread = 4;

/// The result with the name of the module in front of what it says.
template <class T>
Result<T> naming(std::string_view module, Result<T> result) {
  if (result.ok()) return result;
  return Error{result.error().code,
               fmt::format("{}: {}", quote_name(module), result.error().message)};
}

/// Rows of `cols` numbers as columns.
std::vector<float> transposed(std::span<const float> numbers, int64_t cols) {
  std::vector<float> result;
  result.reserve(numbers.size());
  for (std::size_t col = 0; col < static_cast<std::size_t>(cols); ++col) {
    for (std::size_t i = col; i < numbers.size(); i += cols) result.push_back(numbers[i]);
  }
  return result;
}

/// Of each `rows` numbers the first half and the second in turns, or the inverse.
std::vector<float> reordered(std::span<const float> numbers, int64_t rows, bool in_turns) {
  std::vector<float> result(numbers.size());
  const auto size = static_cast<std::size_t>(rows);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t row = i % size;
    const std::size_t other = i - row + row / 2 + (row % 2 == 0 ? 0 : size / 2);
    if (in_turns) {
      result[i] = numbers[other];
    } else {
      result[other] = numbers[i];
    }
  }
  return result;
}

}  // namespace

WeightLoader::WeightLoader(const ImportContext& context, const ModelConfig& config,
                           Backend& backend, const LoadOptions& options, Reads reads)
    : context_(context), config_(config), backend_(&backend), options_(options), reads_(reads) {}

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

void WeightLoader::release_read() {
  if (backend_->memory() != nullptr) {
    for (const FileTensor* tensor : read_tensors_) tensor->file->release(tensor->bytes);
  }
  read_tensors_.clear();
}

Status WeightLoader::load(std::span<const FoundTensor> tensors) {
  for (const FoundTensor& tensor : tensors) SUBBYTE_CHECK(load_tensor(tensor));
  return {};
}

Status WeightLoader::load_tensor(const FoundTensor& tensor) {
  switch (tensor.spec.role) {
    case TensorRole::kTable:
      return load_table(tensor);
    case TensorRole::kLinear:
    case TensorRole::kRouter:
      return load_linear(tensor);
    case TensorRole::kExpertsGateUp: {
      SUBBYTE_TRY(gate_up_, experts_of(tensor));
      return {};
    }
    case TensorRole::kExpertsDown:
      return load_experts(tensor);
    case TensorRole::kHead:
      return load_head(tensor);
    case TensorRole::kNorm:
    case TensorRole::kVector:
    case TensorRole::kRates:
    case TensorRole::kFactors:
    case TensorRole::kFilters:
      break;
  }
  return load_vector(tensor);
}

// ---- matrices

Matrix WeightLoader::outline(WeightFormat format, int64_t rows, int64_t cols) {
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format = format;
  view.rows = rows;
  view.cols = cols;
  const auto size = [](int64_t bytes) { return static_cast<std::size_t>(bytes); };
  const std::size_t codes = size(rows * view.row_bytes());
  const std::size_t scales = size(rows * view.scale_row_bytes());
  const std::size_t zeros = size(rows * view.zero_row_bytes());
  const bool has_vectors = info(format.element).vector_size > 1;
  const std::size_t codebook = has_vectors ? size(view.num_codes()) * sizeof(float) : 0;
  const std::size_t largest = std::max({codes, scales, zeros, codebook});
  if (zeros_bytes_ < largest) {
    zeros_ = allocate_bytes(largest);
    zeros_bytes_ = largest;
  }
  view.codes = {zeros_.get(), codes};
  view.scales = {zeros_.get(), scales};
  view.zeros = {zeros_.get(), zeros};
  view.codebook = {reinterpret_cast<const float*>(zeros_.get()), codebook / sizeof(float)};
  matrix.owners.push_back(zeros_);
  return matrix;
}

Result<Matrix> WeightLoader::import_one(const FoundTensor& tensor, std::size_t idx) {
  const FileMatrix& matrix = tensor.file.matrices[idx];
  const ModuleInfo& info = tensor.infos[idx];
  SUBBYTE_CHECK(require_one_matrix(info));
  report(info.bytes());
  read_tensors_.insert(read_tensors_.end(), info.tensors.begin(), info.tensors.end());
  if (reads_ != Reads::kAll) {
    if (reads_ == Reads::kScales) SUBBYTE_CHECK(check_module_scales(context_, info));
    return outline(info.format, info.rows, info.cols);
  }
  return import_matrix(context_, matrix.module);
}

Result<std::vector<Matrix>> WeightLoader::import_modules(const FoundTensor& tensor) {
  const auto count = tensor.infos.size();
  const std::size_t at_once = kModulesOfThread * static_cast<std::size_t>(context_.pool.size());
  std::vector<Matrix> matrices;
  std::vector<std::string_view> modules;
  uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const ModuleInfo& info = tensor.infos[i];
    SUBBYTE_CHECK(require_one_matrix(info));
    read_tensors_.insert(read_tensors_.end(), info.tensors.begin(), info.tensors.end());
    modules.push_back(tensor.file.matrices[i].module);
    bytes += info.bytes();
    if (modules.size() < at_once && i + 1 < count) continue;
    SUBBYTE_TRY(auto imported, import_matrices(context_, modules));
    std::ranges::move(imported, std::back_inserter(matrices));
    report(std::exchange(bytes, 0));
    modules.clear();
  }
  return matrices;
}

Result<std::vector<Matrix>> WeightLoader::import_all(const FoundTensor& tensor, std::size_t idx) {
  const FileMatrix& matrix = tensor.file.matrices[idx];
  const ModuleInfo& info = tensor.infos[idx];
  if (matrix.experts == 1) {
    std::vector<Matrix> one(1);
    SUBBYTE_TRY(one.front(), import_one(tensor, idx));
    return one;
  }
  report(info.bytes());
  if (reads_ == Reads::kAll) {
    return import_experts(context_of(context_, matrix), matrix.module);
  }
  if (reads_ == Reads::kScales) SUBBYTE_CHECK(check_module_scales(context_, info));
  return std::vector<Matrix>(static_cast<std::size_t>(info.experts),
                             outline(info.format, info.rows, info.cols));
}

Result<Weight> WeightLoader::upload(const FoundTensor& tensor, std::vector<Matrix> matrices,
                                    std::vector<float> bias) {
  auto uploaded = matrices.size() == 1
                      ? backend_->upload(std::move(matrices.front()), std::move(bias))
                      : backend_->upload_joined(std::move(matrices), std::move(bias));
  release_read();
  return naming(tensor.file.matrices.front().module, std::move(uploaded));
}

Status WeightLoader::load_latent(const FoundTensor& tensor) {
  const TensorSpec& spec = tensor.spec;
  const bool on_host = backend_->memory() == nullptr;
  SUBBYTE_TRY(const Matrix joined, import_one(tensor, 0));
  const bool are_apart = tensor.infos.size() == 2;
  LatentMatrices apart;
  if (reads_ == Reads::kAll && are_apart) {
    SUBBYTE_TRY(const Matrix values, import_one(tensor, 1));
    apart = {latent_side(joined, on_host, context_.pool),
             latent_side(values, on_host, context_.pool)};
  } else if (reads_ == Reads::kAll) {
    apart = latent_matrices(joined.view, spec.latent, on_host, context_.pool);
  } else {
    for (const auto& [matrix, shape] : {std::pair(&apart.keys, latent_keys_shape(spec)),
                                        std::pair(&apart.values, latent_values_shape(spec))}) {
      *matrix =
          outline(latent_format(tensor.infos.front().format, on_host), shape.rows, shape.cols);
    }
  }
  LatentWeights& weights = weights_.latent_[spec.name];
  for (const auto& [weight, matrix] :
       {std::pair(&weights.keys, &apart.keys), std::pair(&weights.values, &apart.values)}) {
    std::vector<Matrix> one;
    one.push_back(std::move(*matrix));
    SUBBYTE_TRY(*weight, upload(tensor, std::move(one), {}));
    count(*weight, 1.0);
  }
  return {};
}

Status WeightLoader::load_linear(const FoundTensor& tensor) {
  if (tensor.spec.latent.count > 0) return load_latent(tensor);
  std::vector<Matrix> matrices;
  for (std::size_t i = 0; i < tensor.infos.size(); ++i) {
    SUBBYTE_TRY(Matrix matrix, import_one(tensor, i));
    matrices.push_back(std::move(matrix));
  }
  if (matrices.size() < tensor.spec.parts.size()) {
    const Matrix whole = std::exchange(matrices, {}).front();
    int64_t first = 0;
    for (const PartSpec& part : tensor.spec.parts) {
      matrices.push_back({rows_of(whole.view, first, part.rows), whole.owners});
      first += part.rows;
    }
  }
  SUBBYTE_TRY(std::vector<float> bias, bias_of(tensor));
  SUBBYTE_TRY(Weight weight, upload(tensor, std::move(matrices), std::move(bias)));
  count(weight, 1.0);
  weights_.matrices_[tensor.spec.name] = std::move(weight);
  return {};
}

Result<Matrix> WeightLoader::with_head_bits(Matrix matrix, const FileTensor& tensor) {
  if (options_.head_bits == 16 || !is_dense(matrix.view.format)) return matrix;
  return quantize_table(matrix, tensor, options_.head_bits, context_.pool);
}

/// A GPU looks up rows of floats, integers, codebooks and vectors.
Status WeightLoader::check_table(const FoundTensor& tensor) const {
  const WeightFormat& format = tensor.infos.front().format;
  const bool is_integer = format.element >= Format::kU2 && format.element <= Format::kI8;
  const bool has_values = format.element == Format::kNF4 || format.element == Format::kIQ4 ||
                          may_have_codebook(format.element);
  if (backend_->memory() == nullptr || is_dense(format) || is_integer || has_values) return {};
  return Error{"linear.unsupported",
               fmt::format("{} is an embedding of {}, which GPUs do not look up; --device cpu does",
                           quote_name(tensor.file.matrices.front().module), to_string(format))};
}

Status WeightLoader::load_table(const FoundTensor& tensor) {
  SUBBYTE_CHECK(check_table(tensor));
  SUBBYTE_TRY(Matrix found, import_one(tensor, 0));
  if (tensor.spec.is_far) return load_far_table(tensor, std::move(found));
  table_ = tensor.infos.front().tensors.front();
  std::vector<Matrix> matrices(1);
  SUBBYTE_TRY(matrices.front(), with_head_bits(std::move(found), *table_));
  SUBBYTE_TRY(Weight weight, upload(tensor, std::move(matrices), {}));
  count(weight, 0.0);  // a row of it is read
  weights_.matrices_[tensor.spec.name] = std::move(weight);
  return {};
}

Status WeightLoader::load_far_table(const FoundTensor& tensor, Matrix found) {
  SUBBYTE_TRY(Weight weight,
              naming(tensor.file.matrices.front().module, backend_->upload_far(std::move(found))));
  release_read();
  count(weight.bytes, 0.0);
  weights_.matrices_[tensor.spec.name] = std::move(weight);
  return {};
}

Status WeightLoader::load_head(const FoundTensor& tensor) {
  const TensorSpec& spec = tensor.spec;
  if (!spec.tied_to.empty()) {
    if (!tensor.infos.empty()) SUBBYTE_CHECK(check_tied(tensor, *table_));
    const Weight& other = weights_.matrix(spec.tied_to);
    bytes_per_token_ += static_cast<double>(other.bytes);
    weights_.matrices_[spec.name] = other;
    return {};
  }
  SUBBYTE_TRY(Matrix found, import_one(tensor, 0));
  std::vector<Matrix> matrices(1);
  SUBBYTE_TRY(matrices.front(),
              with_head_bits(std::move(found), *tensor.infos.front().tensors.front()));
  SUBBYTE_TRY(std::vector<float> bias, bias_of(tensor));
  SUBBYTE_TRY(Weight weight, upload(tensor, std::move(matrices), std::move(bias)));
  count(weight, 1.0);
  weights_.matrices_[spec.name] = std::move(weight);
  return {};
}

/// Some files hold the head although it is tied; then it must be the embedding.
Status WeightLoader::check_tied(const FoundTensor& tensor, const FileTensor& other) {
  const FileTensor& head = *tensor.infos.front().tensors.front();
  const bool equal = head.bytes.size() == other.bytes.size() &&
                     std::memcmp(head.bytes.data(), other.bytes.data(), head.bytes.size()) == 0;
  head.file->release(head.bytes);
  if (options_.head_bits != 16) other.file->release(other.bytes);
  if (equal) return {};
  return Error{"model.surplus",
               fmt::format("config.json says tie_word_embeddings, but {} is not the embedding",
                           quote_name(head.name))};
}

// ---- experts

/// Gate and up of each expert as the backend takes them: in turns where a file has them so, else
/// apart.
std::vector<Matrix> WeightLoader::gate_and_up(const FoundTensor& tensor,
                                              std::vector<Matrix> matrices) {
  if (tensor.spec.parts.empty() || tensor.file.rows != PartOrder::kOneByOne) return matrices;
  const int64_t rows = tensor.spec.rows / 2;
  std::vector<Matrix> result;
  for (const Matrix& both : matrices) {
    result.push_back({rows_of(both.view, 0, rows), both.owners});
    result.push_back({rows_of(both.view, rows, rows), both.owners});
  }
  return result;
}

Result<WeightLoader::ExpertLinears> WeightLoader::experts_of(const FoundTensor& tensor) {
  ExpertLinears linears;
  std::vector<Matrix> matrices;
  const bool are_many = tensor.infos.size() > 1 && std::ssize(tensor.infos) >= context_.pool.size();
  const bool are_modules = std::ranges::all_of(
      tensor.file.matrices, [](const FileMatrix& matrix) { return matrix.experts == 1; });
  if (reads_ == Reads::kAll && are_many && are_modules) {
    SUBBYTE_TRY(matrices, import_modules(tensor));
  } else {
    for (std::size_t i = 0; i < tensor.infos.size(); ++i) {
      SUBBYTE_TRY(auto imported, import_all(tensor, i));
      std::ranges::move(imported, std::back_inserter(matrices));
    }
  }
  linears.matrices = gate_and_up(tensor, std::move(matrices));
  SUBBYTE_TRY(linears.bias, bias_of(tensor));
  const double share =
      static_cast<double>(tensor.spec.use.per_token) / static_cast<double>(tensor.spec.experts);
  for (const Matrix& matrix : linears.matrices) count(matrix.view.bytes(), share);
  return linears;
}

Status WeightLoader::load_experts(const FoundTensor& tensor) {
  SUBBYTE_TRY(ExpertLinears down, experts_of(tensor));
  ExpertLinears gate_up = std::exchange(gate_up_, {});
  ExpertMatrices matrices;
  matrices.gate_up = std::move(gate_up.matrices);
  matrices.gate_up_bias = std::move(gate_up.bias);
  matrices.down = std::move(down.matrices);
  matrices.down_bias = std::move(down.bias);
  matrices.top_k = tensor.spec.use.per_token;
  matrices.gate = tensor.spec.use.gate;
  matrices.swiglu = tensor.spec.use.swiglu;
  const std::string name(tensor.spec.parent());
  SUBBYTE_TRY(weights_.experts_[name],
              naming(tensor.file.matrices.front().module, backend_->upload(std::move(matrices))));
  release_read();
  return {};
}

// ---- vectors

Result<std::vector<float>> WeightLoader::numbers(const FileVector& vector) {
  SUBBYTE_TRY(auto values, import_vector(context_.tensors, vector.name, vector.shape));
  report(context_.tensors.find(vector.name)->bytes.size());
  return values;
}

Status WeightLoader::load_vector(const FoundTensor& tensor) {
  const FileVector& vector = tensor.file.vectors.front();
  SUBBYTE_TRY(auto values, numbers(vector));
  if (tensor.spec.offset != 0) {
    for (float& value : values) value += tensor.spec.offset;
  }
  if (tensor.spec.factor != 1) {
    for (float& value : values) value *= tensor.spec.factor;
  }
  if (tensor.spec.role == TensorRole::kRates) {
    const std::span<const float> rates = context_.tensors.rates(vector.name);
    std::ranges::transform(values, values.begin(), [](float value) { return -std::exp(value); });
    std::ranges::copy(rates, values.begin());
  }
  if (tensor.spec.role == TensorRole::kFilters) values = transposed(values, tensor.spec.cols);
  SUBBYTE_TRY(weights_.vectors_[tensor.spec.name],
              naming(vector.name, backend_->upload(std::move(values))));
  return {};
}

/// The biases of all outputs, in the order of the matrices that are uploaded.
Result<std::vector<float>> WeightLoader::bias_of(const FoundTensor& tensor) {
  std::vector<std::vector<float>> parts;
  for (const FileVector& vector : tensor.file.vectors) {
    SUBBYTE_TRY(auto values, numbers(vector));
    parts.push_back(std::move(values));
  }
  std::vector<float> bias;
  for (const std::vector<float>& part : parts) bias.insert(bias.end(), part.begin(), part.end());
  if (!tensor.spec.is_of_experts() || tensor.spec.parts.empty()) return bias;
  const bool rows_alternate = tensor.file.rows == PartOrder::kAlternating;
  if (rows_alternate == (tensor.file.biases == PartOrder::kAlternating)) return bias;
  return reordered(bias, tensor.spec.rows, rows_alternate);
}

std::unique_ptr<Model> WeightLoader::finish(std::unique_ptr<CompiledStep> step,
                                            const LoadFacts& facts) const {
  auto model = std::make_unique<Model>(config_, std::move(step), facts);
  std::set<std::shared_ptr<const MappedFile>> files;
  for (const auto& [name, tensor] : context_.tensors.tensors()) files.insert(tensor.file);
  model->files_.assign(files.begin(), files.end());
  model->bytes_per_token_ = static_cast<int64_t>(bytes_per_token_);
  model->weight_bytes_ = weight_bytes_;
  model->largest_weight_ = largest_;
  if (options_.progress) {
    options_.progress(context_.tensors.total_bytes(), context_.tensors.total_bytes());
  }
  return model;
}

}  // namespace subbyte
