#pragma once
// What the importers and exporters of compressed-tensors share.

#include <string>
#include <string_view>

#include "checkpoints/config/exported_config.h"
#include "checkpoints/flavours/ct_config.h"

namespace subbyte {

/// For people: "pack-quantized 4 bits symmetric group 128, or nvfp4-pack-quantized".
std::string list_of(const std::vector<CompressedScheme>& schemes);

/// Groups of a row, where one scale serves the whole tensor.
inline constexpr int64_t kOneForTensor = 0;

/// Groups of a row of `rows` as the scales have them: [rows, groups], [rows], or one number for the
/// tensor. Codes import.dtype, import.shape.
Result<int64_t> groups_of_rows(const FileTensor& scale, uint64_t rows);
/// The same as a scheme has them for so many inputs; the last one may be short.
int64_t groups_of_rows(const CompressedScheme& scheme, int64_t cols);
/// For people: "3 groups".
std::string groups_text(int64_t groups);

/// The canonical format of a scheme's integers: iN where they have no zero points, else uN.
WeightFormat integers_of(const CompressedScheme& scheme, const FileTensor& scale, int64_t groups,
                         bool has_zeros);

/// Scales as a canonical matrix has them: the number of a tensor is repeated. What keeps them alive
/// is added to `owners`.
std::span<const std::byte> scales_of_rows(const FileTensor& scale, int64_t rows,
                                          std::vector<std::shared_ptr<const void>>& owners);

/// The config groups, some of which have the format that the tensors of `module` have. Code
/// import.config.
Result<const CompressedState*> require_scheme(const ImportContext& context, std::string_view module,
                                              CompressedScheme::Format format);

/// Says whether compressed_config() has words for it: FP8, and what compressed-tensors said itself.
bool says_compressed_kv_cache(const KvCacheScheme& scheme, const Flavour* from);

/// Groups with formats of their own.
inline constexpr std::string_view kMixedPrecision = "mixed-precision";

/// The quantization_config of a checkpoint all of whose modules have `format`
/// ("pack-quantized"), or each its own with kMixedPrecision: a config group for each kind of
/// weights.
ExportedConfig compressed_config(const ExportedModel& model, std::string_view format);

/// The exporter whose format holds weights in all of `formats`: that of integers where there are
/// none, which will say why.
const Exporter* choose_compressed(std::span<const WeightFormat> formats);

extern const Importer pack_quantized_importer, naive_quantized_importer;
extern const Importer nvfp4_pack_quantized_importer, mxfp4_pack_quantized_importer;
extern const Exporter pack_quantized_exporter, pack_quantized_lanes_exporter;
extern const Exporter nvfp4_pack_quantized_exporter, mxfp4_pack_quantized_exporter;
extern const Exporter float_quantized_exporter, mixed_precision_exporter, naive_quantized_exporter;

}  // namespace subbyte
