#pragma once
// A model in GGUF: one file, or parts NAME-00001-of-0000N.gguf of which the first has the keys.
//
//   split.no, split.count, split.tensors.count    in each part

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoints/containers/gguf_file.h"

namespace subbyte {

class GgufModel {
 public:
  /// Opens the model that `path` is, or is a part of. Files of other things (a part that sees, an
  /// adapter, an imatrix) are refused by name. Codes: those of GgufFile::open and of
  /// open_model_file for other parts; gguf.kind, gguf.parts. With `problems` as GgufFile::open has
  /// them.
  static Result<GgufModel> open(const std::filesystem::path& path,
                                std::vector<Error>* problems = nullptr);

  /// A model of one file.
  static GgufModel of(GgufFile file);

  /// The file with the keys.
  const GgufFile& keys() const { return parts_.front(); }
  std::span<const GgufFile> parts() const { return parts_; }
  /// nullptr where no part has a tensor of that name.
  const GgufTensor* find(std::string_view name) const;

 private:
  explicit GgufModel(std::vector<GgufFile> parts) : parts_(std::move(parts)) {}

  std::vector<GgufFile> parts_;
};

/// Kind of a GGUF file that holds no model ("an adapter..."); empty for a model, and for what
/// cannot be read.
std::string_view other_kind_of_gguf(const std::filesystem::path& path);

}  // namespace subbyte
