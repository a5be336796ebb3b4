#include "subbyte/transform.h"

#include <utility>

#include "checkpoints/model_path.h"
#include "cpp_interface/threads.h"
#include "transform/convert_model.h"
#include "transform/quantize_model.h"
#include "verify/written_model.h"

namespace subbyte::wrapped {
namespace {

WorstLoss to_public(const subbyte::WorstLoss& worst) {
  return {worst.name, worst.signal_to_noise_db};
}

Result<subbyte::QuantizeReport> quantize(const std::filesystem::path& given,
                                         const std::filesystem::path& destination,
                                         const QuantizeOptions& options) {
  const auto threads = threads_or_own(options.threads);
  SUBBYTE_TRY(const auto source, find_model(given.string()));
  subbyte::QuantizeOptions own;
  own.format = options.format;
  own.group_size = options.group_size;
  own.allow_lossy = options.allow_lossy;
  own.bits = options.bits;
  own.symmetric = options.symmetric;
  own.ignore = options.ignore;
  own.head = options.head;
  own.embedding = options.embedding;
  own.experts_only = options.experts_only;
  own.shard_bytes = options.shard_bytes;
  own.check = [&](const std::filesystem::path& result) {
    return check_written(source, result, "quantize.result", *threads);
  };
  return subbyte::quantize_model(source, destination, own, *threads, options.progress);
}

Result<subbyte::ConvertReport> convert(const std::filesystem::path& given,
                                       const std::filesystem::path& destination,
                                       const ConvertOptions& options) {
  const auto threads = threads_or_own(options.threads);
  SUBBYTE_TRY(const auto source, find_model(given.string()));
  subbyte::ConvertOptions own;
  own.format = options.format;
  own.allow_lossy = options.allow_lossy;
  own.shard_bytes = options.shard_bytes;
  own.check = [&](const std::filesystem::path& result) {
    return check_written(source, result, "convert.result", *threads);
  };
  return subbyte::convert_model(source, destination, own, *threads, options.progress);
}

}  // namespace

Result<QuantizeReport> quantize_model(const std::filesystem::path& source,
                                      const std::filesystem::path& destination,
                                      const QuantizeOptions& options) {
  const auto made = quantize(source, destination, options);
  if (!made.ok()) return made.error();
  return QuantizeReport{.format = made->format,
                        .group_size = made->group_size,
                        .symmetric = made->symmetric,
                        .quantized_matrices = made->quantized_tensors,
                        .kept_tensors = made->kept_tensors,
                        .source_bytes = made->source_bytes,
                        .result_bytes = made->result_bytes,
                        .matrices_of_bits = made->modules_of_bits,
                        .bits_per_weight = made->bits_per_weight,
                        .signal_to_noise_db = made->signal_to_noise_db,
                        .worst = to_public(made->worst)};
}

std::vector<std::string> conversion_formats() {
  return subbyte::conversion_formats();
}

Result<ConvertReport> convert_model(const std::filesystem::path& source,
                                    const std::filesystem::path& destination,
                                    const ConvertOptions& options) {
  const auto made = convert(source, destination, options);
  if (!made.ok()) return made.error();
  return ConvertReport{.format = made->format,
                       .converted_matrices = made->converted_modules,
                       .kept_tensors = made->kept_tensors,
                       .rounded_matrices = made->rounded_modules,
                       .source_bytes = made->source_bytes,
                       .result_bytes = made->result_bytes,
                       .signal_to_noise_db = made->loss.signal_to_noise_db(),
                       .worst = to_public(made->worst)};
}

}  // namespace subbyte::wrapped
