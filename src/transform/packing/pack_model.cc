#include "transform/packing/pack_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/cpu_features.h"
#include "base/model_file.h"
#include "base/output_directory.h"
#include "checkpoints/config/config_file.h"
#include "checkpoints/containers/orin_model.h"
#include "models/checkpoint.h"
#include "transform/config_dtype.h"
#include "transform/format_hints.h"
#include "transform/packing/pack_plan.h"
#include "transform/packing/pack_tensors.h"
#include "transform/packing/packed_directory.h"
#include "transform/quantize_tensor.h"
#include "transform/resume.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

Result<PackTarget> choose_target(const PackOptions& options, const json::Value& config) {
  PackTarget target = {find_pack_layout(options.layout), options.tile, Format::kNone, options.keep};
  if (target.layout == nullptr) {
    return unknown_format("pack.layout", options.layout, pack_layout_names());
  }
  const auto tiles = target.layout->tiles;
  if (options.tile.empty() && target.layout->needs_tile) {
    const auto [tile, instructions] = tile_of_this_cpu();
    return Error{"pack.tile",
                 fmt::format("{} needs a tile, one of {}: PyTorch takes {} on this machine ({}), "
                             "and such files are for machines of that kind",
                             target.layout->name, fmt::join(tiles, ", "), tile, instructions)};
  }
  if (options.tile.empty()) target.tile = tiles.front();
  if (std::ranges::find(tiles, target.tile) == tiles.end()) {
    return Error{"pack.tile",
                 fmt::format("expected {} for the tile of {}, found {}", fmt::join(tiles, ", "),
                             target.layout->name, quote(target.tile))};
  }
  if (!target.layout->has_activations) {
    if (options.activations.empty()) return target;
    return Error{"pack.activations",
                 fmt::format("{} is the same for all types of activations", target.layout->name)};
  }
  if (options.activations.empty()) {
    target.activations = dtype_of(config) == "float16" ? Format::kF16 : Format::kBF16;
    return target;
  }
  if (options.activations != "f16" && options.activations != "bf16") {
    return Error{"pack.activations",
                 fmt::format("expected f16 or bf16 for the activations, found {}",
                             quote(options.activations))};
  }
  target.activations = options.activations == "f16" ? Format::kF16 : Format::kBF16;
  return target;
}

Status write_packed(const ImportContext& context, const PackJob& job, const PutBytes& put) {
  SUBBYTE_TRY(const std::vector<Matrix> matrices, import_job(context, job));
  SUBBYTE_TRY(const auto tensors, pack_matrices(job.packed, matrices, context.pool));
  for (std::size_t i = 0; i < tensors.size(); ++i) SUBBYTE_CHECK(put(i, tensors[i]));
  if (!job.biases.empty()) {
    std::vector<std::byte> biases;
    for (const FileTensor* bias : job.biases) {
      SUBBYTE_CHECK(bias->file->verify_unchanged());
      biases.insert(biases.end(), bias->bytes.begin(), bias->bytes.end());
    }
    SUBBYTE_CHECK(put(tensors.size(), pack_biases(job.packed, biases)));
  }
  for (const FoundModule* source : job.sources) {
    for (const FileTensor* tensor : source->info->tensors) tensor->file->release(tensor->bytes);
  }
  return {};
}

Status write_job(const ImportContext& context, const PackJob& job, const PutBytes& put) {
  if (job.tensor == nullptr) return write_packed(context, job, put);
  SUBBYTE_CHECK(job.tensor->file->verify_unchanged());
  return write_as_it_is(*job.tensor,
                        [&](std::span<const std::byte> bytes) { return put(0, bytes); });
}

CheckpointFiles files_of(const PackPlan& plan) {
  CheckpointFiles files;
  files.stem = "packed";
  for (const PackJob& job : plan.jobs) {
    std::pair<std::string, std::string> line;
    if (job.tensor == nullptr) {
      line = {job.packed.name + std::string(kPackedSuffix), to_line(job.packed)};
    }
    files.group_metadata.push_back(std::move(line));
  }
  return files;
}

std::vector<std::string> remarks_on(const PackTarget& target, const PackPlan& plan) {
  std::vector<std::string> remarks;
  const PackLayout& layout = *target.layout;
  if (!layout.remark.empty()) remarks.emplace_back(layout.remark);
  const auto any = [&](const auto& says) {
    return std::ranges::any_of(plan.jobs, [&](const PackJob& job) {
      return job.tensor == nullptr && says(job.packed.shape);
    });
  };
  const bool ordered = any([](const PackedShape& shape) { return shape.act_order; });
  if (ordered && !layout.act_order.empty()) remarks.emplace_back(layout.act_order);
  const bool other =
      any([](const PackedShape& shape) { return shape.format.scale != Format::kBF16; });
  if (layout.name == "int4pack-cuda" && other) {
    remarks.emplace_back(
        "PyTorch's product on CUDA takes scales_and_zeros in bf16, and these are in the type of "
        "the model's scales: whoever loads them rounds them");
  }
  return remarks;
}

PackReport report_of(const PackTarget& target, const PackPlan& plan, uint64_t source_bytes) {
  PackReport report;
  report.layout = target.layout->name;
  report.tile = target.tile;
  for (const PackJob& job : plan.jobs) {
    report.modules += static_cast<int64_t>(job.sources.size());
    ++(job.tensor == nullptr ? report.packed_modules : report.kept_tensors);
  }
  report.source_bytes = source_bytes;
  report.result_bytes = count_bytes(plan.groups);
  report.remarks = remarks_on(target, plan);
  return report;
}

Status check_container(const fs::path& model) {
  if (!is_orin_model(model) && !is_openai_directory(model)) return {};
  return Error{
      "pack.container",
      fmt::format("{}: expected a directory of Hugging Face, found a model of {}; `subbyte "
                  "convert` makes one of it",
                  model.string(), is_orin_model(model) ? "OrinMLLM" : "OpenAI")};
}

}  // namespace

std::pair<std::string_view, std::string_view> tile_of_this_cpu() {
  const uint32_t features = cpu_features();
  if ((features & kCpuAvx512) != 0) return {"64", "AVX-512"};
  if ((features & kCpuAvx2) != 0) return {"32", "AVX2"};
#if defined(__aarch64__)
  return {"pairs-16", "NEON"};
#else
  return {"pairs-32", "neither AVX2 nor AVX-512"};
#endif
}

Result<PackReport> pack_model(const fs::path& source, const fs::path& destination,
                              const PackOptions& options, Executor& pool,
                              const ByteProgress& progress) {
  SUBBYTE_CHECK(check_container(source));
  SUBBYTE_TRY(const CheckpointParts checkpoint, open_weights(source));
  SUBBYTE_TRY(PackTarget target, choose_target(options, checkpoint.config->value));
  target.expert_count = ExpertCount::of(checkpoint.config, checkpoint.model);
  const TensorSource& tensors = *checkpoint.tensors;
  const ImportContext context = checkpoint.context(pool);
  // Every weight is read twice: to prove that it comes back, and to write it.
  const uint64_t first_pass = tensors.total_bytes();
  SUBBYTE_TRY(const PackPlan plan,
              plan_packing(context, target, [&](uint64_t done, uint64_t total) {
                if (progress) progress(done, total * 2);
              }));
  SUBBYTE_TRY(OutputDirectory directory, OutputDirectory::create(destination, options.notice));
  SUBBYTE_CHECK(copy_all_side_files(source, directory.path(), options.notice));
  const uint64_t second_pass = count_bytes(plan.groups);
  Status written = write_checkpoint(
      directory.path(), plan.groups, options.shard_bytes,
      [&](std::size_t group, const PutBytes& put) {
        return write_job(context, plan.jobs[group], put);
      },
      [&](uint64_t done, uint64_t) {
        if (progress) progress(first_pass + done, first_pass + second_pass);
      },
      files_of(plan));
  if (Status same = tensors.verify_unchanged(); !same.ok()) written = std::move(same);
  if (written.ok()) written = directory.commit();
  if (!written.ok()) return stopped_by(std::move(written).error(), directory);
  return report_of(target, plan, tensors.total_bytes());
}

}  // namespace subbyte
