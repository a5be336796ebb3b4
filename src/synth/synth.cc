#include "synth/synth.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/output_directory.h"
#include "base/quote.h"
#include "synth/synth_config.h"
#include "synth/synth_shapes.h"
#include "synth/synth_tensors.h"
#include "synth/synth_tokenizer.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kChunkBytes = uint64_t{16} << 20;  // made at once, then written
constexpr uint64_t kPieceBytes = uint64_t{64} << 10;  // made by one thread; a multiple of 8

Result<const ModelShape*> choose_shape(const SynthOptions& options) {
  const std::string names = shape_names(options.arch);
  if (names.empty()) {
    return Error{"synth.arch", fmt::format("unknown architecture {}, expected one of {}",
                                           quote(options.arch), shape_archs())};
  }
  const ModelShape* shape = find_shape(options.arch, options.shape);
  if (shape == nullptr) {
    return Error{"synth.shape", fmt::format("unknown {} shape {}, expected one of {}", options.arch,
                                            quote(options.shape), names)};
  }
  return shape;
}

Status check_group(const std::string& name, int64_t size) {
  const SyntheticFormat* const format = find_synthetic_format(name).format;
  const auto refuse = [&](const std::string& expected) {
    return Error{"synth.group_size", fmt::format("group size {}, {}", size, expected)};
  };
  if (format == nullptr) return refuse(fmt::format("but {} has no groups", name));
  const int64_t own = format->format.group_size;
  if (own != 0 && own != size) return refuse(fmt::format("but that of {} is always {}", name, own));
  if (size <= 0 || size % 8 != 0) return refuse("expected a positive multiple of 8");
  return {};
}

Status check_options(const ModelShape& shape, const SynthOptions& options) {
  const auto formats = synthetic_formats(family_of(shape));
  if (std::ranges::find(formats, options.format) == formats.end()) {
    return Error{"synth.format",
                 fmt::format("unknown format {} for {}, expected one of {}", quote(options.format),
                             options.arch, fmt::join(formats, ", "))};
  }
  if (options.layers < 0 || options.layers > shape.layers) {
    return Error{"synth.layers", fmt::format("{} layers, but {} {} has {}", options.layers,
                                             options.arch, options.shape, shape.layers)};
  }
  return options.group_size ? check_group(options.format, *options.group_size) : Status();
}

Status write_tensor(const SynthTensor& tensor, uint64_t seed, Executor& pool,
                    std::vector<std::byte>& buffer, const PutBytes& put) {
  const uint64_t size = tensor.declaration.num_bytes();
  for (uint64_t begin = 0; begin < size; begin += kChunkBytes) {
    const std::span<std::byte> chunk(buffer.data(), std::min(kChunkBytes, size - begin));
    const auto pieces = static_cast<int64_t>((chunk.size() + kPieceBytes - 1) / kPieceBytes);
    pool.parallel_for(pieces, 1, [&](int64_t first, int64_t last, int) {
      const uint64_t from = first * kPieceBytes;
      const uint64_t to = std::min<uint64_t>(last * kPieceBytes, chunk.size());
      tensor.fill(chunk.subspan(from, to - from), begin + from, seed);
    });
    SUBBYTE_CHECK(put(0, chunk));
  }
  return {};
}

Status write_weights(const fs::path& directory, const std::vector<SynthTensor>& tensors,
                     const SynthOptions& options, Executor& pool, const ByteProgress& progress) {
  std::vector<WriteStep> steps;
  std::vector<std::byte> buffer(kChunkBytes);
  for (const SynthTensor& tensor : tensors) {
    steps.push_back({{tensor.declaration}, [&](const PutBytes& put) {
                       return write_tensor(tensor, options.seed, pool, buffer, put);
                     }});
  }
  SUBBYTE_TRY(const WeightFiles weights, lay_out_shards(steps, options.shard_bytes));
  return write_checkpoint(directory, weights, steps, progress);
}

}  // namespace

Status synthesize(const fs::path& destination, const SynthOptions& given, Executor& pool,
                  const ByteProgress& progress) {
  SynthOptions options = given;
  if (options.arch.empty()) options.arch = usual_arch();
  SUBBYTE_TRY(const ModelShape* shape, choose_shape(options));
  if (options.format.empty()) options.format = synthetic_formats(family_of(*shape)).front();
  SUBBYTE_CHECK(check_options(*shape, options));
  const int64_t layers = options.layers == 0 ? shape->layers : options.layers;
  SUBBYTE_TRY(const auto tensors, synthetic_tensors(*shape, layers, options));
  SUBBYTE_TRY(OutputDirectory directory, OutputDirectory::create(destination, options.notice));
  const fs::path& path = directory.path();
  SUBBYTE_CHECK(write_text(path / "config.json", synthetic_config(*shape, layers, options)));
  SUBBYTE_CHECK(write_text(path / "generation_config.json", synthetic_generation_config(*shape)));
  SUBBYTE_CHECK(write_text(path / "tokenizer.json", synthetic_tokenizer(*shape)));
  SUBBYTE_CHECK(write_weights(path, tensors, options, pool, progress));
  return directory.commit();
}

}  // namespace subbyte
