#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/output_directory.h"
#include "checkpoints/import_parts.h"
#include "models/checkpoint.h"
#include "transform/expert_stacks.h"
#include "transform/packing/pack_model.h"
#include "transform/packing/pack_tensors.h"
#include "transform/packing/packed_directory.h"
#include "transform/quantize_tensor.h"
#include "transform/resume.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// Makes the tensors of one group: those of a packed module, or one that is as it was.
struct UnpackJob {
  PackedModule packed;
  std::vector<const FileTensor*> tensors;  // of packed_tensors(), but for the bias
  const FileTensor* bias = nullptr;        // in Marlin's order
  std::vector<SourceTensors> sources;      // of each module
  const FileTensor* kept = nullptr;        // without packed tensors
};

struct UnpackPlan {
  std::vector<UnpackJob> jobs;
  std::vector<TensorGroup> groups;  // of each job
};

/// The lines of metadata of all files: module's name and line, and the file that has it.
struct FoundLine {
  std::string module;
  std::string line;
  const fs::path* file;
};

std::vector<FoundLine> find_lines(const TensorSource& tensors) {
  std::vector<FoundLine> lines;
  for (std::size_t i = 0; i < tensors.files().size(); ++i) {
    for (const auto& [key, value] : tensors.metadata()[i]) {
      if (!key.ends_with(kPackedSuffix)) continue;
      lines.push_back(
          {key.substr(0, key.size() - kPackedSuffix.size()), value, &tensors.files()[i]});
    }
  }
  return lines;
}

class Planner {
 public:
  Planner(const TensorSource& tensors, const ExpertCount& count)
      : tensors_(tensors), count_(count) {}

  Result<UnpackPlan> plan() {
    const auto lines = find_lines(tensors_);
    if (lines.empty()) {
      return Error{"pack.metadata",
                   fmt::format("{}: expected lines of metadata that `subbyte pack` writes, found "
                               "none",
                               tensors_.files().front().string())};
    }
    for (const FoundLine& line : lines) SUBBYTE_CHECK(add_module(line));
    SUBBYTE_CHECK(add_kept());
    return std::move(plan_);
  }

 private:
  Status add_module(const FoundLine& line) {
    UnpackJob job;
    SUBBYTE_TRY(job.packed, parse_line(line.module, line.line, line.file->string()));
    if (job.packed.experts > 0) {
      SUBBYTE_CHECK(count_.check_stack(line.module, job.packed.experts, *line.file));
    }
    for (const auto& expected : packed_tensors(job.packed)) {
      SUBBYTE_TRY(const FileTensor* tensor, find(expected, *line.file));
      job.tensors.push_back(tensor);
    }
    if (job.packed.bias) {
      job.bias = job.tensors.back();
      job.tensors.pop_back();
    }
    TensorGroup group;
    for (const std::string& source : job.packed.sources()) {
      auto written = source_tensors(job.packed, source);
      if (!written.ok()) {
        return Error{written.error().code,
                     fmt::format("{}: {}", line.file->string(), written.error().message)};
      }
      for (const auto& tensor : written->tensors) SUBBYTE_CHECK(add(tensor, group));
      job.sources.push_back(std::move(written).value());
    }
    for (const auto& bias : source_biases(job.packed)) SUBBYTE_CHECK(add(bias, group));
    plan_.jobs.push_back(std::move(job));
    plan_.groups.push_back(std::move(group));
    return {};
  }

  /// A tensor of a module, which must be as the line says.
  Result<const FileTensor*> find(const SafetensorsWriter::Declaration& expected,
                                 const fs::path& file) {
    const FileTensor* tensor = tensors_.find(expected.name);
    if (tensor == nullptr) {
      return Error{"pack.missing", fmt::format("{}: the metadata says that there is a tensor {}, "
                                               "found none",
                                               file.string(), quote_name(expected.name))};
    }
    if (tensor->dtype != expected.dtype || tensor->shape != expected.shape) {
      return tensor_error(
          "pack.tensor", *tensor,
          fmt::format("expected {} {}, found {} {}", name(expected.dtype),
                      to_string(expected.shape), name(tensor->dtype), to_string(tensor->shape)));
    }
    if (!used_.insert(tensor->name).second) {
      return tensor_error("pack.metadata", *tensor, "expected it in one module, found two");
    }
    return tensor;
  }

  Status add(const SafetensorsWriter::Declaration& tensor, TensorGroup& group) {
    if (!names_.insert(tensor.name).second) {
      return Error{"pack.metadata",
                   fmt::format("{}: tensor {}: expected it once in the model, found it twice",
                               tensors_.files().front().string(), quote_name(tensor.name))};
    }
    group.push_back(tensor);
    return {};
  }

  Status add_kept() {
    for (const auto& [name, tensor] : tensors_.tensors()) {
      if (used_.contains(name)) continue;
      if (name.find(".packed.") != std::string::npos) {
        return tensor_error("pack.tensor_unlisted", tensor,
                            "expected a line of metadata for it, found none");
      }
      UnpackJob job;
      job.kept = &tensor;
      TensorGroup group;
      SUBBYTE_CHECK(add({tensor.name, tensor.dtype, tensor.shape}, group));
      plan_.jobs.push_back(std::move(job));
      plan_.groups.push_back(std::move(group));
    }
    return {};
  }

  const TensorSource& tensors_;
  const ExpertCount& count_;
  UnpackPlan plan_;
  std::set<std::string, std::less<>> used_;   // packed tensors
  std::set<std::string, std::less<>> names_;  // that the model will have
};

Error in_file(const Error& error, const UnpackJob& job) {
  return {error.code,
          fmt::format("{}: {}", job.tensors.front()->file->path().string(), error.message)};
}

Status put_biases(const UnpackJob& job, std::size_t first, const PutBytes& put) {
  const auto bytes = unpack_biases(job.packed, job.bias->bytes);
  const std::size_t count = source_biases(job.packed).size();
  const std::size_t size = bytes.size() / count;
  for (std::size_t i = 0; i < count; ++i) {
    SUBBYTE_CHECK(put(first + i, std::span(bytes).subspan(i * size, size)));
  }
  return {};
}

Status write_module(const UnpackJob& job, Executor& pool, const PutBytes& put) {
  std::vector<std::span<const std::byte>> views;
  for (const FileTensor* tensor : job.tensors) {
    SUBBYTE_CHECK(tensor->file->verify_unchanged());
    views.push_back(tensor->bytes);
  }
  const auto matrices = unpack_matrices(job.packed, views, pool);
  if (!matrices.ok()) return in_file(matrices.error(), job);
  const Exporter& exporter = *job.packed.flavour;
  const auto names = job.packed.sources();
  const std::size_t experts = matrices->size() / names.size();
  std::size_t next = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::span<const Matrix> of_source = std::span(*matrices).subspan(i * experts, experts);
    const auto written = exporter.write_experts != nullptr
                             ? exporter.write_experts(of_source, names[i], pool)
                             : exporter.write(of_source.front().view, names[i], pool);
    if (!written.ok()) return in_file(written.error(), job);
    for (const std::size_t index : job.sources[i].indices) {
      SUBBYTE_CHECK(put(next++, (*written)[index].bytes));
    }
  }
  if (job.bias != nullptr) SUBBYTE_CHECK(put_biases(job, next, put));
  for (const FileTensor* tensor : job.tensors) tensor->file->release(tensor->bytes);
  return {};
}

Status write_job(const UnpackJob& job, Executor& pool, const PutBytes& put) {
  if (job.kept == nullptr) return write_module(job, pool, put);
  SUBBYTE_CHECK(job.kept->file->verify_unchanged());
  return write_as_it_is(*job.kept, [&](std::span<const std::byte> bytes) { return put(0, bytes); });
}

}  // namespace

Result<UnpackReport> unpack_model(const fs::path& source, const fs::path& destination,
                                  const UnpackOptions& options, Executor& pool,
                                  const ByteProgress& progress) {
  SUBBYTE_TRY(const TensorSource tensors, TensorSource::open_packed(source));
  const CheckpointParts beside = open_checkpoint(source);  // config.json is that of the model
  const ExpertCount experts = ExpertCount::of(beside.config, beside.model);
  SUBBYTE_CHECK(beside.beside);
  SUBBYTE_TRY(const UnpackPlan plan, Planner(tensors, experts).plan());
  SUBBYTE_TRY(OutputDirectory directory, OutputDirectory::create(destination, options.notice));
  SUBBYTE_CHECK(copy_all_side_files(source, directory.path(), options.notice));
  Status written = write_checkpoint(
      directory.path(), plan.groups, options.shard_bytes,
      [&](std::size_t group, const PutBytes& put) {
        return write_job(plan.jobs[group], pool, put);
      },
      progress);
  if (Status same = tensors.verify_unchanged(); !same.ok()) written = std::move(same);
  if (written.ok()) written = directory.commit();
  if (!written.ok()) return stopped_by(std::move(written).error(), directory);
  UnpackReport report;
  for (const UnpackJob& job : plan.jobs) {
    if (job.kept != nullptr) {
      ++report.kept_tensors;
      continue;
    }
    report.layout = job.packed.layout->name;
    report.modules += static_cast<int64_t>(job.sources.size());
  }
  report.source_bytes = tensors.total_bytes();
  report.result_bytes = count_bytes(plan.groups);
  return report;
}

}  // namespace subbyte
