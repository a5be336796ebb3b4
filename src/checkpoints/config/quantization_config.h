#pragma once
// What a model directory says about how its weights are quantized: config.json's
// quantization_config, or the side files of other tools (quantize_config.json of GPTQ,
// quant_config.json of AWQ, hf_quant_config.json of ModelOpt). The tensors decide; this is what
// they are checked against.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoints/config/agreement.h"
#include "checkpoints/config/kept_modules.h"
#include "json/key_rules.h"

namespace subbyte {

/// The weights of one config group of compressed-tensors.
struct CompressedScheme {
  enum class Format : uint8_t { kPackQuantized, kNvfp4, kMxfp4, kNaive, kFp8 };

  Format format = Format::kPackQuantized;
  int64_t bits = 4;
  bool symmetric = true;
  int64_t group_size = -1;  // -1: the whole row
  bool act_order = false;
  int64_t block_rows = 1;  // outputs that share a scale; -1: all of them

  bool operator==(const CompressedScheme&) const = default;
};

/// For people: "pack-quantized 4 bits symmetric group 128".
std::string to_string(const CompressedScheme& scheme);

/// How keys and values of a cache are to be quantized, for software that does so with the scales
/// beside the weights: what compressed-tensors says as kv_cache_scheme, ModelOpt as
/// kv_cache_quant_algo.
struct KvCacheScheme {
  enum class Form : uint8_t { kNone, kFp8, kOther };  // kFp8: E4M3, a scale for each tensor

  Form form = Form::kNone;
  std::string text;  // JSON of the value, in the words of who said it

  bool operator==(const KvCacheScheme&) const = default;
};

/// Kinds of weights that algorithms of ModelOpt make.
enum class ModeloptWeights : uint8_t { kNvfp4, kMxfp4, kFp8, kMxfp8, kInt8, kInt4 };

/// "NVFP4"
std::string_view name_of(ModeloptWeights weights);

struct QuantizationConfig {
  enum class Method : uint8_t {
    kNone,
    kAwq,
    kGptq,
    kMxfp4,
    kCompressedTensors,
    kModelopt,
    kBitsandbytes,
    kFp8,
    kKbit,
    kVq
  };

  Method method = Method::kNone;
  std::string where = "config.json";  // the file that said so, for messages

  // AWQ, GPTQ, kbit, vq. `bits` and `group_sizes` hold the general value and those of the overrides
  // ("dynamic"), which name single modules by regular expressions: the tensors of a module may
  // agree with any of them. ModelOpt: the sizes that are said of formats with groups.
  std::vector<int64_t> bits = {};
  std::vector<int64_t> group_sizes = {};  // -1: the whole row
  bool has_unsaid_group_size = false;     // of ModelOpt: tensors of some modules tell theirs
  bool zero_point = true;                 // AWQ
  bool sym = false;                       // GPTQ
  bool sym_differs = false;               // GPTQ: an override says the opposite
  bool desc_act = false;                  // GPTQ
  bool stores_zero_minus_one = true;      // GPTQ: checkpoint_format "gptq" (v1), not "gptq_v2"
  bool zeros_borrow = false;              // GPTQ v1 by GPTQModel: gptq.cc says how it subtracts
  /// Fields of which other sections and files say something else, which changes no number.
  std::vector<Disagreement> differs = {};
  bool marlin = false;         // GPTQ: words and scales in Marlin's order, no zero points
  bool by_gptqmodel = false;   // meta.quantizer
  bool by_auto_round = false;  // its own method or provider

  /// Names and patterns of modules that the config says are not quantized (KeptModules).
  KeptModules kept = {};

  std::vector<CompressedScheme> schemes = {};  // compressed-tensors: agree with any of them
  /// compressed-tensors: which of `schemes` names a module, for named_scheme().
  std::map<std::string, std::size_t, std::less<>> scheme_of = {};
  /// Errors of entries for single modules, by their names: they concern who reads that module.
  std::map<std::string, Error, std::less<>> refused = {};
  bool double_quant = false;                   // bitsandbytes: the scales are quantized too
  KvCacheScheme kv_cache = {};                 // compressed-tensors and ModelOpt
  std::vector<ModeloptWeights> modelopt = {};  // ModelOpt: a module may be any of them
  /// FP8: outputs and inputs that share a factor; 0: factors are of rows or of tensors.
  int64_t block_rows = 0;
  int64_t block_cols = 0;
  /// FP8 in blocks: inputs are made for being rounded to E4M3 too, with a factor for as many inputs
  /// of a token as a block has ("activation_scheme": "dynamic").
  bool rounds_inputs = false;
  int64_t rotation = 0;  // vq: the largest run of inputs that are rotated (formats/rotation.h)

  std::string method_name() const;
  /// The one of `schemes` whose targets have this module by its name; nullptr if none has. Wrappers
  /// of text models may stand in either name.
  const CompressedScheme* named_scheme(std::string_view module) const;
  void name_scheme(std::string_view module, std::size_t scheme);
  void refuse(std::string_view module, Error error);
  /// The error of the entry that names the module, if it has one.
  Status check_named(std::string_view module) const;
};

/// The rules of the section of a method, and of "ct-group" and "ct-weights".
std::vector<json::KeyRule> quantization_rules(std::string_view method);

/// Keys of the section, and of what is in it, that no rule names.
std::vector<std::string> unknown_quantization_keys(const json::Object& config);

/// Reads the section out of a parsed config.json, or the side file in `directory` when there is
/// none. Codes: quantization.method, quantization.version, quantization.bits,
/// quantization.group_size, config.not_computed, those of quantization_methods.h, json.*.
Result<QuantizationConfig> read_quantization_config(const json::Object& config,
                                                    const std::filesystem::path& directory);

}  // namespace subbyte
