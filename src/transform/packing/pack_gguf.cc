#include "transform/packing/pack_gguf.h"

#include <system_error>

#include "base/partial_name.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// A directory that goes with this.
struct Between {
  fs::path path;

  explicit Between(const fs::path& destination) {
    const fs::path named = destination.has_filename() ? destination : destination.parent_path();
    // Of another target: what is left of `destination` itself is removed when it is begun.
    path = named.parent_path() / partial_name(named.filename().string() + ".directory");
  }
  Between(const Between&) = delete;
  Between& operator=(const Between&) = delete;
  ~Between() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

Result<PackReport> pack_gguf(const fs::path& source, const fs::path& destination,
                             const PackOptions& options, Executor& pool,
                             const ByteProgress& progress) {
  const Between between(destination);
  const ConvertOptions convert = {.format = "compressed-tensors",
                                  .shard_bytes = options.shard_bytes};
  SUBBYTE_TRY(const ConvertReport made, convert_model(source, between.path, convert, pool));
  SUBBYTE_TRY(PackReport report, pack_model(between.path, destination, options, pool, progress));
  report.source_bytes = made.source_bytes;
  return report;
}

}  // namespace subbyte
