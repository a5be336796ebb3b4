#pragma once
// What a family says of GGUF files that hold its models: the names that keys and tensors have
// there, and what the software that wrote them changed. One table for each architecture, in the
// family's file.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoints/containers/gguf_parts.h"
#include "checkpoints/containers/gguf_writer.h"
#include "json/strict_json.h"

namespace subbyte {

struct ModelConfig;

enum GgufKeyHow {
  kGgufFloat = 1,     // F32 there, also where config.json has a whole number
  kGgufByFamily = 2,  // complete() and add_keys() say the one by the other
  kGgufByLayer = 4,   // what each layer of the step has is written, as a list where it differs
};

/// A key of the metadata, after "ARCHITECTURE.", and the key of config.json that says the same.
struct GgufKeyRule {
  std::string_view name;
  std::string_view key;
  /// JSON of config.json's value without the key; "": tensors say it, or the key must be there.
  std::string_view absent = {};
  int how = 0;                  // GgufKeyHow
  std::string_view times = {};  // the other key there that it is config.json's number times

  bool is(GgufKeyHow one) const { return (how & one) != 0; }
};

/// Change of the software that wrote the file, which is undone.
enum class GgufChange : uint8_t {
  kNone,
  kPairedQueries,      // the rows of each head lie in pairs that turn together, and not in halves
  kPairedKeys,         // the same of keys, of which there may be fewer heads
  kPlusOne,            // 1 + w of a norm; not its biases
  kExperts,            // a stack of the matrices, or biases, of all experts
  kFilters,            // those of a convolution have no dimension of 1
  kRow,                // a matrix of one output is a list
  kColumn,             // a list lies in a column
  kGroups,             // a list lies in rows, one for each group of heads of Mamba 2
  kHeads,              // a matrix for each head: one below another
  kNegativeExp,        // -exp(w)
  kNegativeExpColumn,  // the same in a column
  // Of delta nets with value heads in tiles: value head i has the key head i modulo their number,
  // and not that of its place among them.
  kTiledHeads,        // the rows
  kTiledValues,       // the rows after those of queries and keys
  kTiledFilters,      // the same, without a dimension of 1
  kTiledColumns,      // the columns
  kTiledNegativeExp,  // -exp(w) of each
  kBetaAlpha,         // by key head: the rows of in_proj_b, then those of in_proj_a
};

/// A tensor, without "blk.N." and ".weight" or ".bias", and the module of transformers that it is,
/// without "model.layers.N."; of experts that of their stack. "": the config says what it has; a
/// module without a name there is a part of another one. With a "!" it is a parameter, whose name
/// has no ".weight" there; what follows is the ending here.
struct GgufTensorRule {
  std::string_view name;
  std::string_view module;
  GgufChange change = GgufChange::kNone;
};

/// A key of config.json that says whether layers have a bias, which is seen by its tensor.
struct GgufBias {
  std::string_view key;
  std::string_view tensor;
};
inline constexpr GgufBias kUsualGgufBiases[] = {{"attention_bias", "attn_q"},
                                                {"mlp_bias", "ffn_down"}};

struct GgufArchitecture {
  std::string_view name;        // general.architecture
  std::string_view model_type;  // of config.json
  /// Files whose number by this key is above 0; another row of the name reads the others.
  std::string_view with = {};
  int gating = 1;  // expert_gating_func of its routers, said or not: 1 softmax, 2 sigmoids
  /// Rows of a head of queries and of keys lie in pairs that turn together, and not in halves.
  bool pairs_heads = false;
  /// Beside those that all have, or instead of them.
  std::span<const GgufKeyRule> keys = {};
  std::span<const GgufTensorRule> tensors = {};
  std::span<const GgufTensorRule> own_tensors = {};  // beside those of other architectures
  /// Adds all that no table says; nullptr: nothing. Codes: gguf.value.
  Status (*complete)(const GgufModel& model, json::Value& config) = nullptr;
  /// Its inverse: adds keys that no table has, and those that must be otherwise; nullptr: nothing.
  void (*add_keys)(const GgufArchitecture& architecture, const ModelConfig& model,
                   GgufKeys& keys) = nullptr;
  /// Says whether files of it hold a model of that model_type; the first row that does is written.
  /// nullptr: any.
  bool (*holds)(const ModelConfig& model) = nullptr;
  /// rope.scaling.yarn_log_multiplier is so many times mscale_all_dim; 0: there is no such key.
  double yarn_log = 0;
  /// Files are read as the model_type of another row of that name, which computes the same.
  bool is_written_only = false;
  std::span<const GgufBias> biases = {};

  std::string key(std::string_view after) const {
    return std::string(name) + "." + std::string(after);
  }
};

/// Finds the rule of a tensor; nullptr where the architecture has none. `tensor` is a name there as
/// in GgufTensorRule, `module` one of transformers, without layer and ending.
const GgufTensorRule* find_gguf_tensor(const GgufArchitecture& architecture,
                                       std::string_view tensor);
const GgufTensorRule* find_gguf_module(const GgufArchitecture& architecture,
                                       std::string_view module);

/// The architecture that a file names. Codes: gguf.architecture for others, gguf.value.
Result<const GgufArchitecture*> gguf_architecture_of(const GgufFile& file);

/// Says "\"llama\", \"qwen3\"...".
std::string gguf_architecture_names();

}  // namespace subbyte
