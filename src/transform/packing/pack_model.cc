#include "transform/packing/pack_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/cpu_features.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/containers/gguf_parts.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/import_parts.h"
#include "matrix/recast.h"
#include "models/checkpoint.h"
#include "transform/config_texts.h"
#include "transform/expert_stacks.h"
#include "transform/format_hints.h"
#include "transform/module_pattern.h"
#include "transform/packing/pack_gguf.h"
#include "transform/packing/packed_module.h"
#include "transform/rewrite.h"
#include "transform/steps.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

struct PackPlan {
  std::vector<FoundModule> modules;  // that the steps point to
  std::vector<WriteStep> steps;
  int64_t packed = 0;          // of `modules`
  int64_t packed_modules = 0;  // that they became
  bool has_act_order = false;  // any of them
  bool all_scales_bf16 = true;
};

/// The layout that was asked for, with all that decides its bytes.
struct PackTarget {
  const PackLayout* layout = nullptr;
  std::string tile;
  Format activations = Format::kNone;
  std::vector<std::string> keep;
  ExpertCount expert_count = {};  // of the model
};

/// "FILE: 'MODULE': WHAT".
Error module_error(const Error& error, const FoundModule& module) {
  return {error.code, fmt::format("{}: {}: {}", module.info->tensors.front()->file->path().string(),
                                  quote_name(module.name), error.message)};
}

/// The order of inputs, where none is that of the layer.
bool same_order(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  if (a.empty() == b.empty()) return std::ranges::equal(a, b);
  const std::span<const uint32_t> order = a.empty() ? b : a;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (order[k] != k) return false;
  }
  return true;
}

bool same_matrix(const MatrixView& a, const MatrixView& b) {
  return a.format == b.format && std::ranges::equal(a.codes, b.codes) &&
         std::ranges::equal(a.scales, b.scales) && std::ranges::equal(a.zeros, b.zeros) &&
         std::ranges::equal(a.codebook, b.codebook) && a.tensor_scale == b.tensor_scale &&
         same_order(a.input_order, b.input_order);
}

/// How a module goes back into its own tensors.
struct WayBack {
  const Exporter* exporter = nullptr;
  std::vector<std::string> suffixes;  // of the tensors that the exporter gives bit for bit
};

/// Makes the tensors of one packed module.
struct PackJob {
  std::vector<const FoundModule*> sources;  // several: experts that become one stack
  PackedModule packed;                      // of the sources
  std::vector<const FileTensor*> biases;    // in Marlin's order, of each source
};

Status put_packed(const ImportContext& context, const PackJob& job, const PutBytes& put) {
  SUBBYTE_TRY(const std::vector<Matrix> matrices, import_modules(context, job.sources));
  SUBBYTE_TRY(const auto tensors, pack_matrices(job.packed, matrices, context.pool));
  for (std::size_t i = 0; i < tensors.size(); ++i) SUBBYTE_CHECK(put(i, tensors[i]));
  if (job.biases.empty()) return {};
  std::vector<std::byte> biases;
  for (const FileTensor* bias : job.biases) {
    biases.insert(biases.end(), bias->bytes.begin(), bias->bytes.end());
  }
  return put(tensors.size(), pack_biases(job.packed, biases));
}

class Planner {
 public:
  Planner(const ImportContext& context, const PackTarget& target, const ByteProgress& progress)
      : context_(context), target_(target), progress_(progress) {}

  Result<PackPlan> plan() {
    SUBBYTE_CHECK(find());
    for (PackJob& job : jobs_) {
      SUBBYTE_CHECK(complete(job));
      add_step(std::move(job));
    }
    for (const auto& [name, tensor] : context_.tensors.tensors()) {
      if (!replaced_.contains(name)) plan_.steps.push_back(keep(tensor));
    }
    SUBBYTE_CHECK(check_names());
    return std::move(plan_);
  }

 private:
  /// A pattern that names nothing keeps nothing, and is a mistake.
  Status check_effect(const ModulePattern& pattern) const {
    const auto is_named = [&](const FoundModule& module) { return pattern.matches(module.name); };
    if (std::ranges::any_of(plan_.modules, is_named)) return {};
    return Error{"quantize.pattern",
                 fmt::format("pattern {}: no matrix of the model is called so (--keep)",
                             quote(pattern.text()))};
  }

  Status find() {
    std::vector<ModulePattern> keep;
    for (const std::string& text : target_.keep) {
      SUBBYTE_TRY(ModulePattern pattern, ModulePattern::parse(text));
      keep.push_back(std::move(pattern));
    }
    plan_.modules = find_modules(context_);
    for (const ModulePattern& pattern : keep) SUBBYTE_CHECK(check_effect(pattern));
    std::set<std::string_view> chosen;
    for (const FoundModule& module : plan_.modules) {
      if (!module.is_read) continue;
      if (!module.info.ok()) return module.info.error();
      SUBBYTE_CHECK(target_.expert_count.check_module(module));
      const bool kept = std::ranges::any_of(
          keep, [&](const ModulePattern& pattern) { return pattern.matches(module.name); });
      if (!is_dense(*module.info) && !kept) chosen.insert(module.name);
    }
    if (chosen.empty()) {
      return Error{"pack.not_quantized",
                   fmt::format("{}: no weights are quantized that could be packed; `subbyte "
                               "quantize` makes some",
                               context_.config.where)};
    }
    std::map<std::string_view, const ExpertStack*> stack_of;
    const auto stacks = find_stacks(context_.tensors, plan_.modules, false);
    for (const ExpertStack& stack : stacks) {
      const auto is_chosen = [&](const FoundModule* module) {
        return chosen.contains(module->name);
      };
      if (!std::ranges::all_of(stack.modules, is_chosen)) continue;
      for (const FoundModule* module : stack.modules) stack_of[module->name] = &stack;
    }
    for (const FoundModule& module : plan_.modules) {
      if (!chosen.contains(module.name)) continue;
      const auto stack = stack_of.find(module.name);
      if (stack != stack_of.end() && stack->second->modules.front() != &module) continue;
      PackJob job;
      job.packed.name = stack == stack_of.end() ? module.name : stack->second->name;
      job.packed.from_modules = stack != stack_of.end();
      job.sources = job.packed.from_modules ? stack->second->modules : std::vector{&module};
      jobs_.push_back(std::move(job));
    }
    return {};
  }

  /// All of a job that depends on its weights.
  Status complete(PackJob& job) {
    const std::vector<const FileTensor*> sources = sources_of(job.sources);
    for (const FileTensor* tensor : sources) SUBBYTE_CHECK(tensor->file->verify_unchanged());
    SUBBYTE_TRY(const std::vector<Matrix> matrices, import_modules(context_, job.sources));
    SUBBYTE_CHECK(describe(job, matrices));
    SUBBYTE_CHECK(prove(job, matrices));
    SUBBYTE_CHECK(find_flavour(job, matrices));
    SUBBYTE_CHECK(find_biases(job));
    for (const FileTensor* tensor : sources) {
      tensor->file->release(tensor->bytes);
      done_ += tensor->bytes.size();
    }
    if (progress_) progress_(done_, context_.tensors.total_bytes());
    return {};
  }

  Status describe(PackJob& job, std::span<const Matrix> matrices) const {
    const FoundModule& first = *job.sources.front();
    PackedModule& packed = job.packed;
    packed.layout = target_.layout;
    if (packed.from_modules || first.info->experts > 1) {
      packed.experts = static_cast<int64_t>(matrices.size());
    }
    PackedShape& shape = packed.shape;
    shape.format = first.info->format;
    shape.rows = first.info->rows;
    shape.cols = first.info->cols;
    shape.tile = target_.tile;
    shape.activations = target_.activations;
    shape.symmetric = shape.format.zero != Zero::kNone &&
                      std::ranges::all_of(matrices, is_symmetric, &Matrix::view);
    shape.act_order = std::ranges::any_of(
        matrices, [](const Matrix& matrix) { return !matrix.view.input_order.empty(); });
    shape.has_factor = std::ranges::any_of(
        matrices, [](const Matrix& matrix) { return matrix.view.tensor_scale != 1; });
    if (shape.has_factor) {
      for (const Matrix& matrix : matrices) packed.factors.push_back(matrix.view.tensor_scale);
    }
    Status fits = target_.layout->check(shape);
    if (fits.ok() && target_.layout->complete != nullptr) {
      fits = target_.layout->complete(shape, matrices);
    }
    return fits.ok() ? Status() : Status(module_error(fits.error(), first));
  }

  /// Checks that what the layout holds is all that the matrices are.
  Status prove(const PackJob& job, std::span<const Matrix> matrices) const {
    const FileTensor& first = *job.sources.front()->info->tensors.front();
    const auto packed = pack_matrices(job.packed, matrices, context_.pool);
    if (!packed.ok()) return in_file(packed.error(), first);
    const std::vector<std::span<const std::byte>> views(packed->begin(), packed->end());
    const auto back = unpack_matrices(job.packed, views, context_.pool);
    if (!back.ok()) return in_file(back.error(), first);
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      if (same_matrix(matrices[i].view, (*back)[i].view)) continue;
      return module_error(
          {"pack.not_exact",
           fmt::format("{} does not hold these weights bit for bit{}", target_.layout->name,
                       matrices.size() > 1 ? fmt::format(" (expert {})", i) : "")},
          *job.sources.front());
    }
    return {};
  }

  Status find_flavour(PackJob& job, std::span<const Matrix> matrices) {
    const std::size_t experts = matrices.size() / job.sources.size();
    std::optional<WayBack> common;
    for (std::size_t i = 0; i < job.sources.size(); ++i) {
      SUBBYTE_TRY(WayBack flavour,
                  flavour_of(*job.sources[i], matrices.subspan(i * experts, experts)));
      if (!common) common = flavour;
      if (common->exporter != flavour.exporter) {
        return module_error({"pack.flavour", "its experts are stored in different ways"},
                            *job.sources[i]);
      }
      std::erase_if(common->suffixes, [&](const std::string& suffix) {
        return std::ranges::find(flavour.suffixes, suffix) == flavour.suffixes.end();
      });
    }
    job.packed.flavour = common->exporter;
    job.packed.suffixes = common->suffixes;
    for (const FoundModule* source : job.sources) {
      for (const FileTensor* tensor : source->info->tensors) {
        const auto suffix = std::string_view(tensor->name).substr(source->name.size());
        if (std::ranges::find(common->suffixes, suffix) != common->suffixes.end()) {
          replaced_.insert(tensor->name);
        }
      }
    }
    return {};
  }

  Result<WayBack> flavour_of(const FoundModule& module, std::span<const Matrix> matrices) {
    if (last_ != nullptr) {
      if (auto flavour = try_exporter(*last_, module, matrices)) return *flavour;
    }
    for (const Exporter* exporter : all_module_exporters()) {
      auto flavour = exporter == last_ ? std::nullopt : try_exporter(*exporter, module, matrices);
      if (!flavour) continue;
      last_ = exporter;
      return *flavour;
    }
    return module_error(
        {"pack.flavour",
         fmt::format(
             "weights of {} are read, but nothing that unpacking writes gives their tensors bit "
             "for bit, so that unpacking could not; `subbyte convert` makes another format "
             "of them first",
             module.info->importer)},
        module);
  }

  /// The largest tensor must be among those that come back; small ones that do not are kept.
  std::optional<WayBack> try_exporter(const Exporter& exporter, const FoundModule& module,
                                      std::span<const Matrix> matrices) const {
    ExportShape shape = shape_of(matrices.front().view);
    shape.experts = static_cast<int64_t>(matrices.size());
    const auto described = exporter.describe(shape, module.name);
    if (!described.ok()) return std::nullopt;
    const auto in_source = [&](const ExportedTensor& tensor) {
      const FileTensor* found = find_tensor(context_.tensors, module.name, tensor.suffix);
      const bool alike =
          found != nullptr && found->dtype == tensor.dtype && found->shape == tensor.shape;
      return alike ? found : nullptr;
    };
    const auto largest = std::ranges::max_element(*described, {}, &ExportedTensor::num_bytes);
    if (in_source(*largest) == nullptr) return std::nullopt;
    if (matrices.size() > 1 && exporter.write_experts == nullptr) return std::nullopt;
    const auto written = write_module(exporter, matrices, module.name, context_.pool);
    if (!written.ok()) return std::nullopt;
    WayBack flavour = {&exporter, {}};
    for (const ExportedTensor& tensor : *written) {
      const FileTensor* found = in_source(tensor);
      if (found != nullptr && std::ranges::equal(found->bytes, tensor.bytes)) {
        flavour.suffixes.emplace_back(tensor.suffix);
      } else if (tensor.suffix == largest->suffix) {
        return std::nullopt;
      }
    }
    return flavour;
  }

  /// A bias beside every source goes with the weights, where the layout has an order for it.
  Status find_biases(PackJob& job) {
    if (!target_.layout->permutes_bias) return {};
    PackedModule& packed = job.packed;
    for (const char* suffix : {".bias", "_bias"}) {
      packed.bias = PackedBias{suffix, DType::kF16};
      const auto expected = source_biases(packed);
      std::vector<const FileTensor*> found;
      for (const auto& bias : expected) {
        const FileTensor* tensor = context_.tensors.find(bias.name);
        if (tensor == nullptr || tensor->shape != bias.shape ||
            float_format(tensor->dtype) == Format::kNone ||
            (!found.empty() && found.front()->dtype != tensor->dtype)) {
          break;
        }
        found.push_back(tensor);
      }
      if (found.size() != expected.size()) continue;
      packed.bias->dtype = found.front()->dtype;
      job.biases = std::move(found);
      for (const FileTensor* bias : job.biases) replaced_.insert(bias->name);
      return {};
    }
    packed.bias.reset();
    return {};
  }

  void add_step(PackJob job) {
    const PackedShape& shape = job.packed.shape;
    plan_.packed += std::ssize(job.sources);
    ++plan_.packed_modules;
    plan_.has_act_order |= shape.act_order;
    plan_.all_scales_bf16 &= shape.format.scale == Format::kBF16;
    WriteStep& step = plan_.steps.emplace_back();
    step.tensors = packed_tensors(job.packed);
    step.sources = sources_of(job.sources);
    step.sources.insert(step.sources.end(), job.biases.begin(), job.biases.end());
    step.metadata = {job.packed.name + std::string(kPackedSuffix), to_line(job.packed)};
    step.make = [&context = context_, job = std::move(job)](const PutBytes& put) {
      return put_packed(context, job, put);
    };
  }

  Status check_names() const {
    std::set<std::string_view> names;
    for (const WriteStep& step : plan_.steps) {
      for (const TensorDeclaration& tensor : step.tensors) {
        const bool reserved =
            step.metadata.first.empty() && tensor.name.find(".packed.") != std::string::npos;
        if (names.insert(tensor.name).second && !reserved) continue;
        return Error{"pack.name", fmt::format("{}: tensor {}: the name is that of a packed tensor",
                                              context_.tensors.files().front().string(),
                                              quote_name(tensor.name))};
      }
    }
    return {};
  }

  const ImportContext& context_;
  const PackTarget& target_;
  const ByteProgress& progress_;
  PackPlan plan_;
  std::vector<PackJob> jobs_;
  std::set<std::string_view> replaced_;  // tensors that unpacking writes again
  const Exporter* last_ = nullptr;       // the exporter of the module before
  uint64_t done_ = 0;
};

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
  if (is_gguf(source)) return pack_gguf(source, destination, options, pool, progress);
  SUBBYTE_CHECK(check_container(source));
  SUBBYTE_TRY(const CheckpointParts checkpoint, open_weights(source));
  SUBBYTE_TRY(PackTarget target, choose_target(options, checkpoint.config->value));
  target.expert_count = ExpertCount::of(checkpoint.config, checkpoint.model);
  const TensorSource& tensors = *checkpoint.tensors;
  const ImportContext context = checkpoint.context(pool);
  // Every weight is read twice: to prove that it comes back, and to write it.
  const uint64_t first_pass = tensors.total_bytes();
  const ByteProgress proof = [&](uint64_t done, uint64_t total) {
    if (progress) progress(done, total * 2);
  };
  SUBBYTE_TRY(PackPlan plan, Planner(context, target, proof).plan());
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
