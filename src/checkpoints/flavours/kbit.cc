// kbit: codes of k = 2, 3, 4 or 5 bits, whose values are a codebook, and a scale for 32 inputs. No
// other software has files of it; docs/kbit.md says what they are. With K inputs, a multiple of 32,
// and N outputs:
//
//   X.kbit_codes     U8 [N, K/32 * 4k]   the codes of a row as one stream of bits, from bit 0 of
//                                        byte 0 up: code k of input i are the bits from k * i on
//   X.kbit_absmax    U8 or F16 [N, K/32] as codebook_blocks.h has it
//   X.kbit_codebook  F32 [2^k]           increasing
//   X.kbit_factor    F32 [1]             optional, a power of two as a rule
//   w(n, i) = codebook[code] * absmax[n, i / 32] * factor
//
// That is the canonical form, so the bytes are used where they lie in the file. A codebook that is
// not the one of nfl2 to nfl5 goes with the matrix.

#include <algorithm>

#include "checkpoints/config/exported_config.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/codebook_blocks.h"
#include "matrix/codebook.h"

namespace subbyte {
namespace {

constexpr codebook_blocks::Names kNames = {"kbit", ".kbit_codes", ".kbit_absmax", ".kbit_codebook",
                                           ".kbit_factor"};
constexpr int kBits[] = {2, 3, 4, 5};

/// What a config says.
struct State : FlavourState {
  std::vector<int> bits;
};

constexpr Format kElements[] = {Format::kNFL2, Format::kNFL3, Format::kNFL4, Format::kNFL5};

/// The element, of codes [N, K/32 * 4k] with absmax [N, K/32].
Result<Format> element_of(const FileTensor& codes, const FileTensor& absmax) {
  const uint64_t blocks = absmax.shape.back();
  for (uint64_t bits = 2; bits <= 5; ++bits) {
    if (blocks <= codes.shape.back() && codes.shape.back() == blocks * 4 * bits) {
      return kElements[bits - 2];
    }
  }
  return tensor_error("import.shape", codes,
                      fmt::format("expected 8, 12, 16 or 20 bytes for each of {} blocks, found {}",
                                  blocks, codes.shape.back()));
}

Status check_codebook(const FileTensor& tensor, Format element) {
  SUBBYTE_CHECK(require_dtype(tensor, DType::kF32));
  SUBBYTE_CHECK(require_shape(tensor, {uint64_t{1} << info(element).bits}));
  std::vector<float> values(tensor.shape[0]);
  __builtin_memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  const std::string fault = codebook_fault(values, element);
  if (fault.empty()) return {};
  return tensor_error("import.codebook", tensor, "expected " + fault);
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const auto tensors, codebook_blocks::find_tensors(context, module, kNames));
  SUBBYTE_TRY(const Format element, element_of(*tensors.codes, *tensors.scales));
  SUBBYTE_CHECK(check_codebook(*tensors.codebook, element));
  SUBBYTE_TRY(const State* const said, require_state<State>(context, module, kNames.flavour));
  return codebook_blocks::describe_codes(context, tensors, element, said->bits);
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  SUBBYTE_TRY(Matrix matrix, codebook_blocks::import_codes(context, info));
  const std::span<const std::byte> values = aligned_bytes(*info.tensors[2], matrix.owners);
  const std::span codebook(reinterpret_cast<const float*>(values.data()), values.size() / 4);
  if (!std::ranges::equal(codebook, default_codebook(info.format.element))) {
    matrix.view.codebook = codebook;
  }
  return std::vector<Matrix>{std::move(matrix)};
}

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_plain(shape, module));
  const WeightFormat& format = shape.format;
  if (!codebook_blocks::has_blocks(format) || needs_codebook(format.element) ||
      format.rotation != 0) {
    return not_held(module,
                    "kbit is nfl2, nfl3, nfl4 or nfl5 with scales in e4m4 or f16 for 32 inputs",
                    format);
  }
  return codebook_blocks::describe_tensors(shape, module, kNames, DType::kF32,
                                           {uint64_t{1} << info(format.element).bits});
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  SUBBYTE_TRY(auto tensors, describe(shape_of(matrix), module));
  allocate(tensors);
  SUBBYTE_CHECK(codebook_blocks::store_codes(tensors, matrix, module));
  const std::vector<float> values = default_codebook(matrix.format.element);
  const std::span<const float> codebook = matrix.codebook.empty() ? values : matrix.codebook;
  std::ranges::copy(std::as_bytes(codebook), tensors[2].bytes.begin());
  return tensors;
}

ExportedConfig config(const ExportedModel& model) {
  return {codebook_blocks::config_of(model, kNames)};
}

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_FLAVOUR_KEY("kbit", "bits", kComputed, "", "2 to 5, or a list where modules differ"),
};

Status read(const json::Object& section, QuantizationConfig& config) {
  auto state = std::make_shared<State>();
  SUBBYTE_TRY(state->bits, codebook_blocks::read_bits_and_block(section, kBits,
                                                                "2, 3, 4 or 5, or a list of them"));
  config.state = state;
  return {};
}

constexpr Importer kImporter = {kNames.flavour, kNames.codes, codebook_blocks::matches<kNames>,
                                describe,       import,       check_scales};
constexpr QuantizeFormat quantized(std::string_view name, int bits) {
  return codebook_blocks::quantized(kNames, name, kBits, bits, kbit_format, to_kbit);
}

constexpr QuantizeFormat kQuantized[] = {quantized("kbit2", 2), quantized("kbit3", 3),
                                         quantized("kbit4", 4), quantized("kbit5", 5),
                                         quantized("kbit", 4)};
constexpr SyntheticFormat kSynthetic[] = {codebook_blocks::synthetic("kbit2", Format::kNFL2),
                                          codebook_blocks::synthetic("kbit3", Format::kNFL3),
                                          codebook_blocks::synthetic("kbit4", Format::kNFL4),
                                          codebook_blocks::synthetic("kbit5", Format::kNFL5)};
constexpr Exporter kExporter = {.name = kNames.flavour,
                                .quantized = kQuantized,
                                .synthetic = kSynthetic,
                                .has_factor = true,
                                .describe = describe,
                                .target = codebook_blocks::codes_target,
                                .config = config,
                                .write = write};

}  // namespace

const Flavour kbit_flavour = {.name = kNames.flavour,
                              .keys = kKeys,
                              .read = read,
                              .importers = {&kImporter},
                              .exporters = {&kExporter}};

}  // namespace subbyte
