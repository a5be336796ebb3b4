#pragma once
// Model files of OrinMLLM and of what it grew from (KuiperLLama, llama2.c): a header of 256 bytes,
// then all tensors one after the other, without names.
//
//   offset  0   u32 magic     "ak42", "ak47" or "ak48" read as a number: bytes 38 34 6b 61
//           4   i32 version
//           8   i32 hidden_size, intermediate_size, layers, heads, kv heads, vocabulary, positions
//          36   u8  1 when the head is the embedding
//          37   i32 head_dim    (version 4 and 5)   i32 group size    (version 2)
//          41   i32 group size  (version 5)
//               zeros to 256
//
//   version  magic  weights
//   1        ak42   F32                                              llama2.c
//   2        ak42   Q8_0: I8, then F32 scales of flat blocks         llama2.c
//   3        ak42   F16; at the end biases of q, k, v                Qwen2.5
//   4        ak47   F16; at the end q_norm and k_norm                Qwen3
//   5        ak48   AWQ: qweight, qzeros I32, scales F16             Qwen3
//
// The order is: input norms of all layers, post-attention norms of all layers, final norm,
// embedding; then for q, k, v, o, gate, down and up one after another, the weights of all layers;
// the head unless it is the embedding; then what the table has at the end, tensor kind by kind.
//
// Nothing in a file says its rotary base, its epsilon or its tokens of end.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/containers/safetensors.h"
#include "checkpoints/containers/tensor_source.h"
#include "checkpoints/exporter.h"
#include "json/strict_json.h"

namespace subbyte {

inline constexpr uint64_t kOrinHeaderBytes = 256;
/// Name of such a file in a directory that subbyte writes, beside tokenizer.json.
inline constexpr std::string_view kOrinFileName = "model.ak48";

struct OrinHeader {
  int version = 5;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  bool tied = false;       // the head is the embedding
  int64_t head_dim = 0;    // hidden_size / num_heads in versions 1 to 3
  int64_t group_size = 0;  // versions 2 and 5, else 0

  bool operator==(const OrinHeader&) const = default;
};

struct OrinModel {
  OrinHeader header;
  std::vector<TensorEntry> tensors;  // in the order of the file; offsets from the end of the header
};

/// Says whether these bytes begin with one of the magic numbers. No safetensors file does: its
/// header would be longer than they may be.
bool is_orin_model(std::span<const std::byte> head);
/// The same of a file; false when there is none, or it cannot be read.
bool is_orin_model(const std::filesystem::path& path);

/// Lists the tensors of a file with that header, by the names of Hugging Face. Q8_0 scales are
/// "X.weight.scales", [rows][cols / group] or, where blocks cross rows, flat. Codes: orin.range for
/// sizes that no model has, orin.shape when they do not fill words and groups.
Result<std::vector<TensorEntry>> orin_tensors(const OrinHeader& header, std::string_view where);

/// Checks and reads a header: `head` is the start of a file of `file_size` bytes, at least
/// min(file_size, 256) of them. Codes: orin.too_small, orin.magic, orin.version, orin.range,
/// orin.shape, orin.padding (bytes that are not 0 after the header), orin.truncated,
/// orin.trailing_bytes.
Result<OrinModel> read_orin_model(std::span<const std::byte> head, uint64_t file_size,
                                  std::string_view where);

/// The exporter of the tensors of version 5.
const Exporter& orin_exporter();

/// The header in the words of config.json; model_type is "ak42", "ak47" or "ak48". What files of
/// Qwen3 do not say is what Qwen3 has:
/// epsilon 1e-6, rotary base 10^6, tokens of end 151645 and 151643; but a base is not claimed for
/// more than 40960 positions, which only later releases with another base have.
json::Value orin_config(const OrinHeader& header);

/// The header for a checkpoint of Qwen3 in AWQ, from its config.json. Code export.format when
/// anything in it is not what readers of the file take for granted.
Result<OrinHeader> orin_header(const json::Object& config);

/// model.ak48 of these steps, whose tensors are those of a file of version 5 with that header, byte
/// for byte. Codes: import.missing, import.dtype, import.shape for a tensor that is not what the
/// header says; export.surplus for one that the file has no place for; those of orin_tensors.
Result<WeightFiles> lay_out_orin(const OrinHeader& header, std::span<const WriteStep> steps);

}  // namespace subbyte
