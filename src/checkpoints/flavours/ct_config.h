#pragma once
// What a config of compressed-tensors says, and what is asked of it and of configs of others whose
// modules may have the same tensors.

#include <map>
#include <string>
#include <vector>

#include "checkpoints/flavours/fp8_parts.h"
#include "checkpoints/import_parts.h"

namespace subbyte {

/// The weights of one config group.
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

/// The tensors of a module whose integers are bytes (ct_naive_quantized.cc).
struct ByteIntegers {
  const FileTensor* weight;
  const FileTensor* scale;
  const FileTensor* zero_point;  // nullptr when absent
  int64_t rows, cols, groups;    // groups_of_rows()

  /// Says whether a scheme is one of such tensors.
  bool agree_with(const CompressedScheme& scheme) const;
};

/// Is said by the state of a config that may have such modules.
class SaysByteIntegers {
 public:
  /// The scheme that the tensors of `module` agree with. Bytes do not tell how many of their bits
  /// are used, so several that could be meant are refused. Codes import.config, import.shape,
  /// naive_quantized.bits.
  virtual Result<CompressedScheme> scheme_of(const ImportContext& context, std::string_view module,
                                             const ByteIntegers& tensors) const = 0;

 protected:
  ~SaysByteIntegers() = default;
};

struct CompressedState : FlavourState, SaysByteIntegers, fp8::SaysBlocks {
  std::vector<CompressedScheme> schemes = {};  // a module agrees with any of them
  std::map<std::string, std::size_t, std::less<>> scheme_of_module = {};

  /// The scheme whose targets have this module by its name; nullptr if none has. Wrappers of text
  /// models may stand in either name.
  const CompressedScheme* named_scheme(std::string_view module) const;
  void name_scheme(std::string_view module, std::size_t scheme);

  Result<CompressedScheme> scheme_of(const ImportContext& context, std::string_view module,
                                     const ByteIntegers& tensors) const override;
  Result<std::vector<fp8::Block>> blocks(const ImportContext& context,
                                         std::string_view module) const override;
};

}  // namespace subbyte
