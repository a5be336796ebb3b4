#include "checkpoints/containers/checkpoint_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/free_space.h"
#include "base/output_file.h"
#include "base/quote.h"
#include "checkpoints/containers/safetensors_codes.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;     // of a tensor that is copied
constexpr std::size_t kPrefetchBytes = std::size_t{64} << 20;  // of each tensor of the next step

/// Bytes of a tensor that are missing in the file.
struct Gap {
  uint64_t next = 0;
  uint64_t end = 0;
};
using Gaps = std::map<std::string_view, Gap>;

Error incomplete(const std::string& tensor, const Gap& gap, std::string_view found) {
  return {safetensors_codes::kIncomplete, fmt::format("tensor {}: expected {} more bytes, found {}",
                                                      quote(tensor), gap.end - gap.next, found)};
}

/// Makes a step, whose tensors begin at `data` and have `gaps`. `written` is told how many bytes
/// were.
Status make(const WriteStep& step, OutputFile& output, uint64_t data, Gaps& gaps,
            const std::function<void(std::size_t bytes)>& written) {
  for (const FileTensor* source : step.sources) SUBBYTE_CHECK(source->file->verify_unchanged());
  const PutBytes put = [&](std::size_t index, std::span<const std::byte> bytes) -> Status {
    const std::string& name = step.tensors[index].name;
    Gap& gap = gaps.at(name);
    if (bytes.size() > gap.end - gap.next) return incomplete(name, gap, "more");
    SUBBYTE_CHECK(output.write_at(data + gap.next, bytes));
    gap.next += bytes.size();
    written(bytes.size());
    return {};
  };
  SUBBYTE_CHECK(step.make(put));
  for (const TensorDeclaration& tensor : step.tensors) {
    const Gap& gap = gaps.at(tensor.name);
    if (gap.next != gap.end) return incomplete(tensor.name, gap, "fewer");
  }
  for (const FileTensor* source : step.sources) source->file->release(source->bytes);
  return {};
}

void prefetch(const WriteStep& step) {
  for (const FileTensor* source : step.sources) {
    source->file->prefetch(source->bytes.first(std::min(source->bytes.size(), kPrefetchBytes)));
  }
}

std::string index_of(std::span<const WeightFile> files, uint64_t total) {
  std::map<std::string, std::string> names;
  for (const WeightFile& file : files) {
    for (const TensorEntry& tensor : file.tensors) names[tensor.name] = file.name;
  }
  const json::Value index = {{"metadata", {{"total_size", total}}},
                             {"weight_map", JsonMaker::object({names.begin(), names.end()})}};
  return json::to_text(index, 2) + "\n";
}

/// Cuts steps into files, without names and tensors.
std::vector<WeightFile> cut(std::span<const WriteStep> steps, uint64_t shard_bytes) {
  std::vector<WeightFile> files;
  uint64_t used = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const uint64_t size = count_bytes(steps.subspan(i, 1));
    if (files.empty() || used + size > shard_bytes) {
      files.emplace_back().begin = i;
      used = 0;
    }
    files.back().end = i + 1;
    used += size;
  }
  return files;
}

}  // namespace

FileTensor in_order(const FileTensor& tensor) {
  if (tensor.rows == nullptr && tensor.cols == nullptr) return tensor;
  FileTensor ordered = tensor;
  ordered.rows = ordered.cols = nullptr;
  std::size_t size = static_cast<std::size_t>(bits(tensor.dtype)) / 8;  // of a row
  for (const uint64_t inputs : std::span(tensor.shape).subspan(1)) size *= inputs;
  const std::size_t parts = tensor.cols == nullptr ? 1 : tensor.cols->size();
  const std::size_t part = size / parts;
  std::vector<std::byte> bytes;
  bytes.reserve(tensor.shape.front() * size);
  for (std::size_t i = 0; i < tensor.shape.front(); ++i) {
    const std::size_t row = tensor.rows == nullptr ? i : (*tensor.rows)[i];
    for (std::size_t p = 0; p < parts; ++p) {
      const std::size_t of_part = tensor.cols == nullptr ? p : (*tensor.cols)[p];
      const auto from = tensor.bytes.subspan(row * size + of_part * part, part);
      bytes.insert(bytes.end(), from.begin(), from.end());
    }
  }
  ordered.file = std::make_shared<const MappedFile>(MappedFile::of(bytes, tensor.file->path()));
  ordered.bytes = ordered.file->bytes();
  return ordered;
}

WriteStep keep(const FileTensor& tensor) {
  const auto make = [&tensor](const PutBytes& put) -> Status {
    if (tensor.rows != nullptr || tensor.cols != nullptr) return put(0, in_order(tensor).bytes);
    for (std::size_t i = 0; i < tensor.bytes.size(); i += kPieceBytes) {
      const auto piece = tensor.bytes.subspan(i, std::min(kPieceBytes, tensor.bytes.size() - i));
      SUBBYTE_CHECK(put(0, piece));
      tensor.file->release(piece);
    }
    return {};
  };
  return {{{tensor.name, tensor.dtype, tensor.shape}}, make, {&tensor}};
}

uint64_t count_bytes(std::span<const WriteStep> steps) {
  uint64_t total = 0;
  for (const WriteStep& step : steps) {
    for (const TensorDeclaration& tensor : step.tensors) total += tensor.num_bytes();
  }
  return total;
}

Status write_text(const fs::path& path, std::string_view text) {
  SUBBYTE_TRY(OutputFile file, OutputFile::create(path, false));
  SUBBYTE_CHECK(file.write(text));
  return file.commit();
}

Result<WeightFiles> lay_out_shards(std::span<const WriteStep> steps, uint64_t shard_bytes,
                                   std::string_view stem) {
  WeightFiles weights = {cut(steps, shard_bytes)};
  const std::size_t count = weights.files.size();
  for (std::size_t i = 0; i < count; ++i) {
    WeightFile& file = weights.files[i];
    file.name = count == 1 ? fmt::format("{}.safetensors", stem)
                           : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, count);
    std::vector<TensorDeclaration> tensors;
    std::map<std::string, std::string> metadata = {{"format", "pt"}};  // other readers look for it
    for (const WriteStep& step : steps.subspan(file.begin, file.end - file.begin)) {
      tensors.insert(tensors.end(), step.tensors.begin(), step.tensors.end());
      if (!step.metadata.first.empty()) metadata.insert(step.metadata);
    }
    SUBBYTE_TRY(auto start, lay_out_safetensors(std::move(tensors), metadata, file.name));
    file.head = std::move(start.head);
    file.tensors = std::move(start.tensors);
  }
  if (count > 1) {
    weights.texts.push_back({fmt::format("{}.safetensors.index.json", stem),
                             index_of(weights.files, count_bytes(steps))});
  }
  return weights;
}

Status write_checkpoint(const fs::path& directory, const WeightFiles& weights,
                        std::span<const WriteStep> steps, const ByteProgress& progress) {
  uint64_t total = 0;
  uint64_t done = 0;
  std::vector<const WeightFile*> missing;
  for (const WeightFile& file : weights.files) {
    const fs::path path = directory / file.name;
    total += file.data_bytes();
    if (is_file_with(path, std::as_bytes(std::span(file.head)),
                     file.head.size() + file.data_bytes())) {
      done += file.data_bytes();
    } else {
      remove_output(path);
      missing.push_back(&file);
    }
  }
  const auto written = [&](std::size_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  };
  if (done > 0) written(0);
  SUBBYTE_CHECK(check_free_space(directory, total - done));
  for (const WeightFile* file : missing) {
    SUBBYTE_TRY(OutputFile output, OutputFile::create(directory / file->name, false));
    SUBBYTE_CHECK(output.write(file->head));
    Gaps gaps;
    for (const TensorEntry& tensor : file->tensors) gaps[tensor.name] = {tensor.begin, tensor.end};
    for (std::size_t i = file->begin; i < file->end; ++i) {
      if (i + 1 < file->end) prefetch(steps[i + 1]);
      SUBBYTE_CHECK(make(steps[i], output, file->head.size(), gaps, written));
    }
    if (file->padding > 0) {
      const std::vector<std::byte> zeros(file->padding);
      const uint64_t end = file->head.size() + file->data_bytes();
      SUBBYTE_CHECK(output.write_at(end - file->padding, zeros));
      written(zeros.size());
    }
    SUBBYTE_CHECK(output.commit());
  }
  for (const TextFile& text : weights.texts) {
    SUBBYTE_CHECK(write_text(directory / text.name, text.text));
  }
  return {};
}

}  // namespace subbyte
