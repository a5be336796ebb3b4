#pragma once
// Pieces that kbit and vq share, importers and exporters: codes whose values are a codebook of the
// matrix, and a scale for 32 inputs. With K inputs, a multiple of 32, N outputs and codes of b bits
// a weight:
//
//   codes     U8 [N, K/32 * 4b]
//   scales    U8 or F16 [N, K/32]  E4M4 (2^(e - 11) (1 + m/16), e the upper four bits, m the lower;
//                                  e = 0: 2^-10 m/16), or numbers
//   codebook  as each has it
//   factor    F32 [1]              optional, a power of two as a rule

#include <span>
#include <string_view>
#include <vector>

#include "checkpoints/export_parts.h"
#include "checkpoints/import_parts.h"
#include "json/strict_json.h"
#include "quantize/quantizers.h"

namespace subbyte::codebook_blocks {

inline constexpr int kBlock = 32;

/// Names of the tensors of a flavour, as suffixes of the module's.
struct Names {
  std::string_view flavour;
  std::string_view codes;
  std::string_view scales;
  std::string_view codebook;
  std::string_view factor;
};

/// The tensors of one module; there may be no factor.
struct Tensors {
  const FileTensor* codes;
  const FileTensor* scales;
  const FileTensor* codebook;
  const FileTensor* factor;
};

/// Finds them, and checks codes, scales and factor as far as they go without the element.
Result<Tensors> find_tensors(const ImportContext& context, std::string_view module,
                             const Names& names);

template <const Names& names>
bool matches(const TensorSource& tensors, std::string_view module) {
  return find_tensor(tensors, module, names.codes) != nullptr;
}

/// Describes a module whose element the codebook, or the shapes, have told: checks that the codes
/// have its width, which is one of `bits` of the config.
Result<ModuleInfo> describe_codes(const ImportContext& context, const Tensors& tensors,
                                  Format element, std::span<const int> bits);

/// Reads "bits" that `known` has, one or a list, and "block_size". Codes quantization.bits,
/// quantization.group_size, json.*.
Result<std::vector<int>> read_bits_and_block(const json::Object& section,
                                             std::span<const int> known, std::string_view expected);

/// The matrix of such a module without its codebook; codes and scales lie where the file has them.
Result<Matrix> import_codes(const ImportContext& context, const ModuleInfo& info);

/// Checks that `format` is one of these with scales for blocks of 32.
bool has_blocks(const WeightFormat& format);

/// The tensors of a matrix, with a codebook of `dtype` and `shape`. There is always a factor:
/// describe() of an exporter does not know whether it is 1.
Result<std::vector<ExportedTensor>> describe_tensors(const ExportShape& shape,
                                                     std::string_view module, const Names& names,
                                                     DType dtype, Shape codebook);

/// Stores all of describe_tensors() but the codebook.
Status store_codes(std::vector<ExportedTensor>& tensors, const MatrixView& matrix,
                   std::string_view module);

/// The keys of quantization_config that both have.
json::Value config_of(const ExportedModel& model, const Names& names);

TargetFormat codes_target(const ExportShape& from);

/// A format of `quantize`, named by its usual width: rules give single matrices others.
constexpr QuantizeFormat quantized(const Names& names, std::string_view name,
                                   std::span<const int> bits, int usual_bits, MadeFormat* format,
                                   Quantizer* quantize) {
  const bool is_series = name == names.flavour;
  return {.name = name,
          .bits = bits,
          .default_bits = usual_bits,
          .series = is_series ? "" : names.flavour,
          .is_series = is_series,
          .group_sizes = kGroupsOf32,
          .default_group = kBlock,
          .mixed = true,
          .f16_scales = true,
          .format = format,
          .quantize = quantize};
}

inline constexpr RandomElements kRandom[] = {RandomElements::kCodes, RandomElements::kE4M4,
                                             RandomElements::kCodebook, RandomElements::kFactor};

constexpr SyntheticFormat synthetic(std::string_view name, Format element, int64_t rotation = 0) {
  return {.name = name,
          .format = {element, Format::kE4M4, Zero::kNone, kBlock, rotation},
          .tensors = kRandom};
}

}  // namespace subbyte::codebook_blocks
