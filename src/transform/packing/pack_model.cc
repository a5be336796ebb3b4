#include "transform/packing/pack_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/cpu_features.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/containers/orin_model.h"
#include "models/checkpoint.h"
#include "transform/config_dtype.h"
#include "transform/format_hints.h"
#include "transform/packing/pack_plan.h"
#include "transform/rewrite.h"

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

std::vector<std::string> remarks_on(const PackLayout& layout, const PackPlan& plan) {
  std::vector<std::string> remarks;
  if (!layout.remark.empty()) remarks.emplace_back(layout.remark);
  if (plan.has_act_order && !layout.act_order.empty()) remarks.emplace_back(layout.act_order);
  if (!plan.all_scales_bf16 && !layout.other_scales.empty()) {
    remarks.emplace_back(layout.other_scales);
  }
  return remarks;
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
  SUBBYTE_TRY(PackPlan plan, plan_packing(context, target, [&](uint64_t done, uint64_t total) {
                if (progress) progress(done, total * 2);
              }));
  Rewrite rewrite = {.source = source,
                     .tensors = tensors,
                     .steps = std::move(plan.steps),
                     // A revision of the bytes of layouts: one that changes them counts up.
                     .resumes = {{{"pack_revision", 1},
                                  {"pack", target.layout->name},
                                  {"tile", target.tile},
                                  {"activations", static_cast<int>(target.activations)},
                                  {"keep", target.keep},
                                  {"shard_bytes", options.shard_bytes}}},
                     .notice = options.notice};
  const uint64_t second_pass = count_bytes(rewrite.steps);
  rewrite.progress = [&](uint64_t done, uint64_t) {
    if (progress) progress(first_pass + done, first_pass + second_pass);
  };
  SUBBYTE_TRY(rewrite.weights, lay_out_shards(rewrite.steps, options.shard_bytes, "packed"));
  SUBBYTE_TRY(rewrite.texts, read_config_texts(source));
  SUBBYTE_CHECK(write_rewrite(rewrite, destination));
  return PackReport{.layout = std::string(target.layout->name),
                    .tile = target.tile,
                    .modules = plan.packed,
                    .packed_modules = plan.packed_modules,
                    .kept_tensors = std::ssize(rewrite.steps) - plan.packed_modules,
                    .source_bytes = tensors.total_bytes(),
                    .result_bytes = second_pass,
                    .remarks = remarks_on(*target.layout, plan)};
}

}  // namespace subbyte
