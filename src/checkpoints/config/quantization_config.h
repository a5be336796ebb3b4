#pragma once
// What a model directory says about how its weights are quantized: config.json's
// quantization_config, or a file beside it of other tools (quantize_config.json of GPTQ,
// hf_quant_config.json of ModelOpt). The tensors decide; this is what they are checked against.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/config/agreement.h"
#include "checkpoints/config/kept_modules.h"
#include "json/side_files.h"

namespace subbyte {

struct Flavour;  // flavour.h

/// Facts that a flavour has read of a config, in a type of its own.
struct FlavourState {
  virtual ~FlavourState() = default;
};

/// How keys and values of a cache are to be quantized, for software that does so with the scales
/// beside the weights.
struct KvCacheScheme {
  enum class Form : uint8_t { kNone, kFp8, kOther };  // kFp8: E4M3, a scale for each tensor

  Form form = Form::kNone;
  std::string text;  // JSON of the value, in the words of who said it

  bool operator==(const KvCacheScheme&) const = default;
};

/// The kv_cache_scheme of compressed-tensors, which configs of others have, too. Code json.*.
Status read_kv_cache_scheme(const json::Object& object, KvCacheScheme& scheme);

struct QuantizationConfig {
  const Flavour* flavour = nullptr;  // whose layout it is; nullptr: nothing is quantized
  std::shared_ptr<const FlavourState> state = {};
  std::string where = "config.json";  // the file that said so, for messages
  /// Fields of which other sections and files say something else, which changes no number.
  std::vector<Disagreement> differs = {};
  /// Names and patterns of modules that the config says are not quantized.
  KeptModules kept = {};
  /// Errors of entries for single modules, by their names: they concern who reads that module.
  std::map<std::string, Error, std::less<>> refused = {};
  KvCacheScheme kv_cache = {};
  /// Inputs that share a factor, where they are made for being rounded to E4M3, too; else 0.
  int64_t rounded_inputs = 0;
  bool by_gptqmodel = false;
  bool by_auto_round = false;

  /// "none" where nothing is quantized.
  std::string method_name() const;
  /// The state, if it is one that says this; nullptr otherwise.
  template <typename State>
  const State* says() const {
    return dynamic_cast<const State*>(state.get());
  }
  void refuse(std::string_view module, Error error);
  /// The error of the entry that names the module, if it has one.
  Status check_named(std::string_view module) const;
};

/// A module's name in a text model: "model.layers.0" for "model.language_model.layers.0".
std::string without_wrapper(std::string_view module);

/// Keys of the section, and of what is in it, that no rule names.
std::vector<std::string> unknown_quantization_keys(const json::Object& config);

/// Reads the section out of a parsed config.json, or one of `files` when there is none.
/// Codes: quantization.method, config.not_computed, json.*, those of the flavours, such as
/// quantization.bits, and of compare_sections().
Result<QuantizationConfig> read_quantization_config(const json::Object& config,
                                                    const SideFiles& files);

}  // namespace subbyte
