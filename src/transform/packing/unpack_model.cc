#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "checkpoints/import_parts.h"
#include "models/checkpoint.h"
#include "transform/expert_stacks.h"
#include "transform/packing/pack_model.h"
#include "transform/packing/packed_module.h"
#include "transform/rewrite.h"
#include "transform/steps.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// Makes the tensors of a module again.
struct UnpackJob {
  PackedModule packed;
  std::vector<const FileTensor*> tensors;  // of packed_tensors(), but for the bias
  const FileTensor* bias = nullptr;        // in Marlin's order
  std::vector<SourceTensors> sources;      // of each module
};

struct UnpackPlan {
  std::vector<WriteStep> steps;
  PackReport report;
};

Status put_biases(const UnpackJob& job, std::size_t first, const PutBytes& put) {
  const auto bytes = unpack_biases(job.packed, job.bias->bytes);
  const std::size_t count = source_biases(job.packed).size();
  const std::size_t size = bytes.size() / count;
  for (std::size_t i = 0; i < count; ++i) {
    SUBBYTE_CHECK(put(first + i, std::span(bytes).subspan(i * size, size)));
  }
  return {};
}

Status put_module(const UnpackJob& job, Executor& pool, const PutBytes& put) {
  const FileTensor& first = *job.tensors.front();
  std::vector<std::span<const std::byte>> views;
  for (const FileTensor* tensor : job.tensors) views.push_back(tensor->bytes);
  const auto matrices = unpack_matrices(job.packed, views, pool);
  if (!matrices.ok()) return in_file(matrices.error(), first);
  const auto names = job.packed.sources();
  const std::size_t experts = matrices->size() / names.size();
  std::size_t next = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto of_source = std::span(*matrices).subspan(i * experts, experts);
    const auto written = write_module(*job.packed.flavour, of_source, names[i], pool);
    if (!written.ok()) return in_file(written.error(), first);
    for (const std::size_t index : job.sources[i].indices) {
      SUBBYTE_CHECK(put(next++, (*written)[index].bytes));
    }
  }
  return job.bias != nullptr ? put_biases(job, next, put) : Status();
}

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
  Planner(const TensorSource& tensors, const ExpertCount& count, Executor& pool)
      : tensors_(tensors), count_(count), pool_(pool) {}

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
    plan_.report.source_bytes = tensors_.total_bytes();
    plan_.report.result_bytes = count_bytes(plan_.steps);
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
    WriteStep step;
    step.sources = job.tensors;
    if (job.packed.bias) {
      job.bias = job.tensors.back();
      job.tensors.pop_back();
    }
    for (const std::string& source : job.packed.sources()) {
      auto written = source_tensors(job.packed, source);
      if (!written.ok()) return in_file(written.error(), *job.tensors.front());
      for (const auto& tensor : written->tensors) step.tensors.push_back(tensor);
      job.sources.push_back(std::move(written).value());
    }
    for (const auto& bias : source_biases(job.packed)) step.tensors.push_back(bias);
    plan_.report.layout = job.packed.layout->name;
    plan_.report.modules += std::ssize(job.sources);
    ++plan_.report.packed_modules;
    step.make = [&pool = pool_, job = std::move(job)](const PutBytes& put) {
      return put_module(job, pool, put);
    };
    return add(std::move(step));
  }

  /// A tensor of a module, which must be as the line says.
  Result<const FileTensor*> find(const TensorDeclaration& expected, const fs::path& file) {
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

  Status add(WriteStep step) {
    for (const TensorDeclaration& tensor : step.tensors) {
      if (names_.insert(tensor.name).second) continue;
      return Error{"pack.metadata",
                   fmt::format("{}: tensor {}: expected it once in the model, found it twice",
                               tensors_.files().front().string(), quote_name(tensor.name))};
    }
    plan_.steps.push_back(std::move(step));
    return {};
  }

  Status add_kept() {
    for (const auto& [name, tensor] : tensors_.tensors()) {
      if (used_.contains(name)) continue;
      if (name.find(".packed.") != std::string::npos) {
        return tensor_error("pack.tensor_unlisted", tensor,
                            "expected a line of metadata for it, found none");
      }
      SUBBYTE_CHECK(add(keep(tensor)));
      ++plan_.report.kept_tensors;
    }
    return {};
  }

  const TensorSource& tensors_;
  const ExpertCount& count_;
  Executor& pool_;
  UnpackPlan plan_;
  std::set<std::string, std::less<>> used_;   // packed tensors
  std::set<std::string, std::less<>> names_;  // that the model will have
};

}  // namespace

Result<PackReport> unpack_model(const fs::path& source, const fs::path& destination,
                                const UnpackOptions& options, Executor& pool,
                                const ByteProgress& progress) {
  SUBBYTE_TRY(const TensorSource tensors, TensorSource::open_packed(source));
  const CheckpointParts beside = open_checkpoint(source);  // config.json is that of the model
  const ExpertCount experts = ExpertCount::of(beside.config, beside.model);
  SUBBYTE_CHECK(beside.beside);
  SUBBYTE_TRY(UnpackPlan plan, Planner(tensors, experts, pool).plan());
  Rewrite rewrite = {.source = source,
                     .tensors = tensors,
                     .steps = std::move(plan.steps),
                     .resumes = {{{"unpack_revision", 1},
                                  {"unpack", plan.report.layout},
                                  {"shard_bytes", options.shard_bytes}}},
                     .notice = options.notice,
                     .progress = progress};
  SUBBYTE_TRY(rewrite.weights, lay_out_shards(rewrite.steps, options.shard_bytes));
  SUBBYTE_TRY(rewrite.texts, read_config_texts(source));
  SUBBYTE_CHECK(write_rewrite(rewrite, destination));
  return plan.report;
}

}  // namespace subbyte
