// All tensors: those that the model needs are there and have its shapes; what they hold is sound.
//
// Of an architecture that is not known here, the modules are those that the importers recognize,
// and any shape is right that fits together.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/quote.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/modules.h"
#include "checkpoints/unread_parts.h"
#include "models/checkpoint_names.h"
#include "models/model_family.h"
#include "verify/context.h"
#include "verify/magnitudes.h"
#include "verify/module_checks.h"
#include "verify/refused_tensors.h"

namespace subbyte {
namespace {

/// "model.layers.7." of "model.layers.7.mlp.up_proj"; empty without one.
std::string_view layer_of(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t begin = name.find(kLayers);
  if (begin == std::string_view::npos) return {};
  const std::size_t end = name.find('.', begin + kLayers.size());
  return end == std::string_view::npos ? std::string_view() : name.substr(0, end + 1);
}

class WeightChecker {
 public:
  explicit WeightChecker(VerifyContext& context)
      : context_(context),
        import_{context.tensors, context.quantization ? *context.quantization : none_,
                context.pool} {}

  Status run() {
    const ModelFamily* family = context_.model ? find_family(context_.model->model_type) : nullptr;
    auto names = CheckpointNames::find(context_.tensors, family ? family->experts : ExpertLayout());
    if (!names.ok() && family != nullptr) context_.findings.add(names.error(), "config.json");
    const bool has_names = family != nullptr && names.ok();
    // Without a quantization config it is not known how to read the modules.
    const bool all_known = context_.quantization && has_names && check_layout(*names);
    note_unread();
    if (all_known) {
      left_ = left_modules(*names, *context_.model);
      SUBBYTE_CHECK(check_expected(tensors_of(*context_.model), *names));
    }
    if (context_.quantization && !has_names) {
      for (const FoundModule& module : find_modules(import_)) {
        if (!module.is_read) continue;
        SUBBYTE_CHECK(check(import_, module.name, module.info));
      }
    }
    SUBBYTE_CHECK(check_others(all_known));
    if (context_.complete) check_method();
    magnitudes_.report(context_.findings);
    return {};
  }

 private:
  /// False where names are those of a layout that is known and not read, which is one finding.
  bool check_layout(const CheckpointNames& names) {
    const auto found = find_tensors(import_, names, *context_.model);
    if (found.ok() || found.error().code != "model.layout") return true;
    refused_ = true;
    if (context_.complete) context_.findings.add(found.error(), "config.json");
    return false;
  }

  bool has_layer(std::string_view layer) const {
    const auto& all = context_.tensors.tensors();
    const auto first = all.lower_bound(layer);
    return first != all.end() && std::string_view(first->first).starts_with(layer);
  }

  /// Layers of which nothing is there are one finding, however many config.json says.
  Status check_expected(const std::vector<TensorSpec>& specs, const CheckpointNames& names) {
    std::set<std::string> missing;
    std::string first_missing;
    for (const TensorSpec& spec : specs) {
      const std::string full = names.full(spec.name);
      if (const auto layer = layer_of(full); !layer.empty() && !has_layer(layer)) {
        if (missing.empty()) first_missing = layer.substr(0, layer.size() - 1);
        missing.emplace(layer);
        continue;
      }
      const bool is_own =
          spec.is_untied_if_there && has_module(context_.tensors, names.full(spec.name));
      if (spec.tied_to.empty() || is_own) {
        SUBBYTE_CHECK(check_expected(spec, names));
      } else {
        check_tied(full + ".weight", names.full(spec.tied_to) + ".weight");
      }
    }
    if (missing.empty()) return {};
    refused_ = true;
    if (!context_.complete) return {};
    context_.findings.add("import.missing", first_missing, "tensors",
                          fmt::format("none in {} of the {} layers of config.json", missing.size(),
                                      context_.model->num_layers));
    return {};
  }

  Status check_expected(const TensorSpec& spec, const CheckpointNames& names) {
    TensorSpec limited = spec;
    if (names.has_experts_apart(spec)) limited.experts = limit_experts(spec, names);
    const FileTensors file = names.tensors_of(limited);
    // Of experts that are modules one finding says that some are missing, however many.
    std::string first_missing;
    const auto is_missing_expert = [&](const std::string& module, bool is_there) {
      if (!names.has_experts_apart(spec) || is_there) return false;
      if (first_missing.empty()) first_missing = module;
      return true;
    };
    for (const FileMatrix& matrix : file.matrices) {
      if (is_missing_expert(matrix.module, has_module(context_.tensors, matrix.module))) continue;
      const ImportContext import = context_of(import_, matrix);
      const auto info = describe_matrix(import_, spec, matrix);
      if (info.ok()) check_shape(matrix, *info);
      SUBBYTE_CHECK(check(import, matrix.module, info));
    }
    for (const FileVector& vector : file.vectors) {
      const FileTensor* found = context_.tensors.find(vector.name);
      if (is_missing_expert(vector.name, found != nullptr)) continue;
      if (found != nullptr) {
        if (spec.offset != 0) offset_norms_.insert(vector.name);
        SUBBYTE_CHECK(check_plain(*found, &vector.shape));
      } else if (context_.complete) {
        context_.findings.add("import.missing", vector.name, "this tensor", "none of that name");
      }
    }
    if (limited.experts < spec.experts && names.has_experts_apart(spec)) {
      claim_all_of(names.full(spec.name.substr(0, spec.name.rfind('.'))));
      if (first_missing.empty()) first_missing = names.full(spec.name);
    }
    if (!first_missing.empty()) add_missing_experts(first_missing, spec.experts);
    return {};
  }

  /// No more than the files can have: config.json may ask for any number.
  int64_t limit_experts(const TensorSpec& spec, const CheckpointNames& names) {
    const std::string prefix = names.full(spec.name.substr(0, spec.name.rfind('.') + 1));
    const auto& tensors = context_.tensors.tensors();
    int64_t experts = 0;
    for (auto at = tensors.lower_bound(prefix);
         experts < spec.experts && at != tensors.end() && at->first.starts_with(prefix); ++at) {
      ++experts;
    }
    return experts;
  }

  void add_missing_experts(const std::string& first, int64_t experts) {
    refused_ = true;
    if (!context_.complete) return;
    context_.findings.add("import.missing", first,
                          fmt::format("this tensor for each of {} experts", experts),
                          "no such tensor for this one, and perhaps for others");
  }

  void check_shape(const FileMatrix& module, const ModuleInfo& info) {
    const bool fits =
        info.rows == module.rows && info.cols == module.cols && info.experts == module.experts;
    const auto text = [](int64_t experts, int64_t rows, int64_t cols) {
      const std::string sizes = fmt::format("{} outputs and {} inputs", rows, cols);
      return experts == 1 ? sizes : fmt::format("{} experts of {}", experts, sizes);
    };
    const std::string& tensor = info.tensors.front()->name;
    if (!fits) {
      context_.findings.add("model.weight_shape", tensor,
                            text(module.experts, module.rows, module.cols) + " (config.json)",
                            text(info.experts, info.rows, info.cols));
    }
  }

  /// A module that an importer described, or refused to.
  Status check(const ImportContext& import, const std::string& module,
               const Result<ModuleInfo>& info) {
    if (!info.ok()) {
      refused_ = true;
      const bool absent = claim_all_of(module) == 0;
      if (!absent || context_.complete) context_.findings.add(info.error(), module);
      return {};
    }
    quantized_ = quantized_ || !is_dense(*info);
    for (const FileTensor* tensor : info->tensors) {
      used_.insert(tensor->name);
      SUBBYTE_CHECK(tensor->file->verify_unchanged());
    }
    check_values(import, module, *info);
    for (const FileTensor* tensor : info->tensors) tensor->file->release(tensor->bytes);
    context_.advance(info->bytes());
    return {};
  }

  void check_values(const ImportContext& import, const std::string& module,
                    const ModuleInfo& info) {
    const auto matrices = importer_of(info).import(import, info);
    if (!matrices.ok()) return context_.findings.add(matrices.error(), module);
    const auto release = [&](std::span<const std::byte> bytes) {
      for (const FileTensor* tensor : info.tensors) release_part(*tensor, bytes);
    };
    const MatrixStatistics statistics = collect_statistics(*matrices, context_.pool, release);
    check_module({module, info, import_.config, statistics}, context_.findings);
    magnitudes_.add(is_dense(info) ? info.tensors.front()->name : scale_tensor(info),
                    statistics.largest);
  }

  /// Of a large matrix no more than a part stays in memory, if it lies in the file as it is.
  static void release_part(const FileTensor& tensor, std::span<const std::byte> bytes) {
    const std::byte* const begin = tensor.bytes.data();
    if (bytes.data() < begin || bytes.data() + bytes.size() > begin + tensor.bytes.size()) return;
    tensor.file->release(bytes);
  }

  /// Tensors of a module that was refused are no surplus. Returns how many there are.
  std::size_t claim_all_of(const std::string& module) {
    std::size_t count = 0;
    const auto& tensors = context_.tensors.tensors();
    for (auto at = tensors.lower_bound(module); at != tensors.end(); ++at) {
      if (!at->first.starts_with(module)) break;
      const std::string_view rest = std::string_view(at->first).substr(module.size());
      if (!rest.empty() && rest[0] != '.' && rest[0] != '_') continue;
      count += claimed_.insert(at->first).second;
    }
    return count;
  }

  /// A tensor that belongs to no module; `shape` is nullptr when any will do.
  Status check_plain(const FileTensor& tensor, const Shape* shape) {
    used_.insert(tensor.name);
    const Format format = float_format(tensor.dtype);
    if (shape != nullptr && format == Format::kNone) {
      context_.findings.add("dense.dtype", tensor.name, "dtype F16, BF16 or F32",
                            std::string(subbyte::name(tensor.dtype)));
    }
    if (shape != nullptr && tensor.shape != *shape) {
      context_.findings.add("import.shape", tensor.name,
                            fmt::format("shape {} (config.json)", to_string(*shape)),
                            to_string(tensor.shape));
    }
    if (format != Format::kNone) {
      SUBBYTE_CHECK(tensor.file->verify_unchanged());
      check_numbers(tensor, format);
    }
    tensor.file->release(tensor.bytes);
    context_.advance(tensor.bytes.size());
    return {};
  }

  void check_numbers(const FileTensor& tensor, Format format) {
    if (context_.findings.has_refusal(tensor.name)) return;  // an importer said so
    const NumberTallies tallies = count_numbers(tensor.bytes, format, context_.pool);
    const std::size_t total = tensor.bytes.size() * 8 / info(format).bits;
    const auto report = [&](std::string_view code, std::string expected, const Tally& tally,
                            std::string_view what) {
      if (tally.count == 0) return;
      context_.findings.add(code, tensor.name, std::move(expected),
                            fmt::format("{} of {} that are {}, the first at index {}", tally.count,
                                        total, what, tally.first));
    };
    report("import.not_finite", "finite numbers", tallies.not_finite, "NaN or infinite");
    const double largest = info(format).decode(tallies.largest);
    report(magnitude_code(largest), fmt::format("numbers up to {}", kLargestWeight), tallies.large,
           "larger");
    magnitudes_.add(tensor.name, largest);
    const bool is_norm =
        tensor.name.ends_with("norm.weight") && !offset_norms_.contains(tensor.name);
    if (is_norm && total > 0 && tallies.nonzero.count == 0) {
      context_.findings.add("verify.norm_zero", tensor.name, "factors of a norm",
                            "numbers that are all 0");
    }
  }

  /// Some files hold the head although it is tied; then it must be the embedding.
  void check_tied(const std::string& name, const std::string& other_name) {
    const FileTensor* head = context_.tensors.find(name);
    const FileTensor* table = context_.tensors.find(other_name);
    if (head == nullptr || table == nullptr) return;
    used_.insert(head->name);
    if (!std::ranges::equal(head->bytes, table->bytes)) {
      context_.findings.add("model.surplus", head->name,
                            "the embedding, as config.json says tie_word_embeddings",
                            "other numbers");
    }
    for (const FileTensor* tensor : {head, table}) tensor->file->release(tensor->bytes);
    context_.advance(head->bytes.size());
  }

  /// Other parts of the same checkpoint, which are not looked at here.
  void note_unread() {
    int64_t count = 0;
    std::string first;
    for (const auto& [name, tensor] : context_.tensors.tensors()) {
      if (!is_in_unread_part(context_.tensors, name)) continue;
      if (count++ == 0) first = name;
      unread_.insert(name);
    }
    if (count == 0) return;
    context_.findings.add(
        "verify.unread", first, {},
        fmt::format("{} tensors of parts that see or draft, which are not used", count));
  }

  /// What no module used: surplus when all tensors of the model are known.
  Status check_others(bool all_known) {
    for (const auto& [name, tensor] : context_.tensors.tensors()) {
      if (used_.contains(name)) continue;
      if (unread_.contains(name)) {
        context_.advance(tensor.bytes.size());
        continue;
      }
      const bool is_left = left_.contains(name.substr(0, name.rfind('.')));
      if (all_known && !is_left && !claimed_.contains(name) && !is_ignored_tensor(name) &&
          !is_zero_bias(tensor)) {
        context_.findings.add("model.surplus", name, "a tensor of the model of config.json",
                              "another one");
      }
      SUBBYTE_CHECK(tensor.file->verify_unchanged());
      check_refused_tensor(context_, tensor);
      SUBBYTE_CHECK(check_plain(tensor, nullptr));
    }
    return {};
  }

  void check_method() {
    const QuantizationConfig& config = import_.config;
    if (config.flavour == nullptr || quantized_ || refused_) return;
    if (!unread_.empty()) return;  // which may be all that is quantized
    context_.findings.add("import.config", "config.json",
                          fmt::format("weights of the method {}", quote(config.method_name())),
                          "none that is quantized");
  }

  VerifyContext& context_;
  const QuantizationConfig none_;
  ImportContext import_;
  std::set<std::string, std::less<>> used_;
  std::set<std::string, std::less<>> claimed_;       // of modules that were refused
  std::set<std::string, std::less<>> left_;          // modules
  std::set<std::string_view> unread_;                // of other parts than the text model
  std::set<std::string, std::less<>> offset_norms_;  // whose numbers may all be 0
  Magnitudes magnitudes_;
  bool quantized_ = false;
  bool refused_ = false;  // some module
};

}  // namespace

Status check_weights(VerifyContext& context) {
  if (context.tensors.files().empty()) return {};  // the container is broken, and that was said
  return WeightChecker(context).run();
}

}  // namespace subbyte
