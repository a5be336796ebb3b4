#include "verify/checksums.h"

#include <algorithm>
#include <atomic>

#include "base/sha256.h"

namespace subbyte {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;  // in memory, of each tensor
constexpr uint64_t kBatchBytes = uint64_t{512} << 20;      // between two reports of progress

std::string hash_tensor(const FileTensor& tensor) {
  Sha256 hash;
  for (std::size_t begin = 0; begin < tensor.bytes.size(); begin += kPieceBytes) {
    const auto piece =
        tensor.bytes.subspan(begin, std::min(kPieceBytes, tensor.bytes.size() - begin));
    hash.update(piece);
    tensor.file->release(piece);
  }
  return hash.finish();
}

}  // namespace

Result<std::map<std::string, std::string>> compute_checksums(VerifyContext& context) {
  std::vector<const FileTensor*> tensors;
  for (const auto& [name, tensor] : context.tensors.tensors()) tensors.push_back(&tensor);
  std::vector<std::string> checksums(tensors.size());
  for (std::size_t begin = 0; begin < tensors.size();) {
    uint64_t bytes = 0;
    std::size_t end = begin;
    while (end < tensors.size() && bytes < kBatchBytes) {
      SUBBYTE_CHECK(tensors[end]->file->verify_unchanged());
      bytes += tensors[end++]->bytes.size();
    }
    // Tensors differ much in size, so a thread that is done takes the next one.
    std::atomic<std::size_t> next = begin;
    context.pool.run(context.pool.size(), [&](int) {
      for (std::size_t i = next++; i < end; i = next++) {
        checksums[i] = hash_tensor(*tensors[i]);
      }
    });
    begin = end;
    context.advance(bytes);
  }
  std::map<std::string, std::string> by_name;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    by_name[tensors[i]->name] = std::move(checksums[i]);
  }
  return by_name;
}

}  // namespace subbyte
