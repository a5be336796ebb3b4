#include "transform/packing/packed_module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "checkpoints/expert_names.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxExperts = 1 << 16;
constexpr std::string_view kKeys[] = {
    "layout",       "version", "tile",       "shape",     "modules",   "element",
    "scale",        "zero",    "group_size", "symmetric", "act_order", "activations",
    "scale_factor", "factors", "flavour",    "tensors",   "bias",      "bias_dtype"};
constexpr std::pair<Zero, std::string_view> kZeros[] = {
    {Zero::kNone, ""}, {Zero::kU8, "u8"}, {Zero::kU16, "u16"}};

/// One line of metadata while it is read.
class Line {
 public:
  Line(json::Object object, std::string_view name) : object_(std::move(object)), name_(name) {}

  Result<PackedModule> read();

 private:
  Error error(std::string_view key, std::string_view expected) const {
    return object_.error("pack.metadata", key, expected);
  }
  Result<bool> flag(std::string_view key) const {
    SUBBYTE_TRY(const auto value, object_.boolean(key));
    return value.value_or(false);
  }
  Status read_layout(PackedModule& module) const;
  Status read_shape(PackedModule& module) const;
  Status read_format(WeightFormat& format) const;
  Status read_numbers(PackedModule& module) const;
  Status read_source(PackedModule& module) const;
  Status read_bias(PackedModule& module) const;

  json::Object object_;
  std::string name_;
};

Status Line::read_layout(PackedModule& module) const {
  SUBBYTE_TRY(const int64_t version, object_.required_integer("version", 0, INT32_MAX));
  if (version != kPackVersion) {
    return object_.error("pack.version", "version",
                         fmt::format("{} (what this program packs)", kPackVersion));
  }
  SUBBYTE_TRY(const std::string layout, object_.required_string("layout"));
  module.layout = find_pack_layout(layout);
  if (module.layout == nullptr) {
    return error("layout", fmt::format("one of {}", fmt::join(pack_layout_names(), ", ")));
  }
  SUBBYTE_TRY(module.shape.tile, object_.required_string("tile"));
  if (std::ranges::find(module.layout->tiles, module.shape.tile) == module.layout->tiles.end()) {
    return error("tile", fmt::format("one of {}", fmt::join(module.layout->tiles, ", ")));
  }
  return {};
}

Status Line::read_shape(PackedModule& module) const {
  const json::Value* shape = object_.find("shape");
  const auto is_size = [](const json::Value& size) { return json::is_integer(size, 1, kMaxSize); };
  if (shape == nullptr || !shape->is_array() || shape->size() < 2 || shape->size() > 3 ||
      !std::ranges::all_of(*shape, is_size) ||
      (shape->size() == 3 && (*shape)[0].get<int64_t>() > kMaxExperts)) {
    return error("shape", "[N, K] or [E, N, K] of sizes from 1 to 2^24");
  }
  std::size_t next = 0;
  if (shape->size() == 3) module.experts = (*shape)[next++].get<int64_t>();
  module.shape.rows = (*shape)[next++].get<int64_t>();
  module.shape.cols = (*shape)[next].get<int64_t>();
  SUBBYTE_TRY(module.from_modules, flag("modules"));
  if (module.from_modules && module.experts == 0) return error("modules", "a shape of experts");
  return {};
}

Status Line::read_format(WeightFormat& format) const {
  SUBBYTE_TRY(const std::string element, object_.required_string("element"));
  SUBBYTE_TRY(const std::string scale, object_.required_string("scale"));
  SUBBYTE_TRY(const auto zero, object_.string("zero"));
  const std::optional<Format> of_element = find_format(element);
  const std::optional<Format> of_scale = find_format(scale);
  if (!of_element) return error("element", "the name of a format");
  if (!of_scale) return error("scale", "the name of a format");
  const auto of_zero =
      std::ranges::find(kZeros, zero.value_or(""), [](const auto& row) { return row.second; });
  if (of_zero == std::end(kZeros)) return error("zero", "\"u8\" or \"u16\"");
  format.element = *of_element;
  format.scale = *of_scale;
  format.zero = of_zero->first;
  SUBBYTE_TRY(format.group_size, object_.required_integer("group_size", 0, kMaxSize));
  return {};
}

Status Line::read_numbers(PackedModule& module) const {
  SUBBYTE_TRY(module.shape.symmetric, flag("symmetric"));
  SUBBYTE_TRY(module.shape.act_order, flag("act_order"));
  if (module.shape.symmetric && module.shape.format.zero == Zero::kNone) {
    return error("symmetric", "a format with zero points");
  }
  SUBBYTE_TRY(const auto activations, object_.string("activations"));
  if (activations) {
    const std::optional<Format> type = find_format(*activations);
    if (!type) return error("activations", "\"f16\" or \"bf16\"");
    module.shape.activations = *type;
  }
  SUBBYTE_TRY(const auto scale_factor, object_.number("scale_factor", 0x1p-100, 0x1p100));
  if (scale_factor) {
    int exponent = 0;
    if (std::frexp(*scale_factor, &exponent) != 0.5) return error("scale_factor", "a power of two");
    module.shape.scale_factor = static_cast<float>(*scale_factor);
  }
  const json::Value* factors = object_.find("factors");
  module.shape.has_factor = factors != nullptr;
  if (factors == nullptr) return {};
  const auto is_factor = [](const json::Value& factor) {
    return factor.is_number() && std::isfinite(factor.get<double>());
  };
  if (!factors->is_array() || !std::ranges::all_of(*factors, is_factor) ||
      static_cast<int64_t>(factors->size()) != module.num_matrices()) {
    return error("factors", fmt::format("{} numbers", module.num_matrices()));
  }
  module.factors = factors->get<std::vector<double>>();
  return {};
}

Status Line::read_source(PackedModule& module) const {
  SUBBYTE_TRY(const std::string flavour, object_.required_string("flavour"));
  module.flavour = find_module_exporter(flavour);
  const bool stacks = module.experts > 0 && !module.from_modules;
  if (module.flavour == nullptr || (stacks && module.flavour->write_experts == nullptr)) {
    return error("flavour", "the name of a format that unpacking writes, with stacks if it is one");
  }
  const json::Value* tensors = object_.find("tensors");
  const auto is_suffix = [](const json::Value& suffix) { return suffix.is_string(); };
  if (tensors == nullptr || !tensors->is_array() || tensors->empty() ||
      !std::ranges::all_of(*tensors, is_suffix)) {
    return error("tensors", "suffixes of names");
  }
  module.suffixes = tensors->get<std::vector<std::string>>();
  return {};
}

Status Line::read_bias(PackedModule& module) const {
  SUBBYTE_TRY(const auto suffix, object_.string("bias"));
  if (!suffix) return {};
  SUBBYTE_TRY(const std::string dtype, object_.required_string("bias_dtype"));
  const auto found = find_dtype(dtype);
  if (*suffix != ".bias" && *suffix != "_bias") return error("bias", "\".bias\" or \"_bias\"");
  const bool floats = found == DType::kF16 || found == DType::kBF16 || found == DType::kF32;
  if (!floats || !module.layout->permutes_bias) {
    return error("bias_dtype", "F16, BF16 or F32, in a layout that has an order of biases");
  }
  module.bias = PackedBias{*suffix, *found};
  return {};
}

Result<PackedModule> Line::read() {
  for (const auto& [key, value] : object_.members()) {
    if (std::ranges::find(kKeys, key) == std::end(kKeys)) return error(key, "no such key");
  }
  PackedModule module;
  module.name = name_;
  SUBBYTE_CHECK(read_layout(module));
  SUBBYTE_CHECK(read_shape(module));
  SUBBYTE_CHECK(read_format(module.shape.format));
  SUBBYTE_CHECK(read_numbers(module));
  SUBBYTE_CHECK(read_source(module));
  SUBBYTE_CHECK(read_bias(module));
  if (is_dense(module.shape.format)) return error("scale", "a format of scales");
  const Status fits = module.layout->check(module.shape);
  if (!fits.ok()) {
    return Error{fits.error().code, fmt::format("{}: {}", object_.where(), fits.error().message)};
  }
  return module;
}

}  // namespace

std::vector<std::string> PackedModule::sources() const {
  if (!from_modules) return {name};
  std::vector<std::string> names;
  for (int64_t e = 0; e < experts; ++e) names.push_back(expert_name(name, e));
  return names;
}

ExportShape PackedModule::export_shape() const {
  ExportShape result = {shape.format, shape.rows, shape.cols, shape.act_order};
  result.experts = from_modules ? 1 : num_matrices();
  result.symmetric = shape.symmetric || shape.format.zero == Zero::kNone;
  return result;
}

std::vector<TensorDeclaration> packed_tensors(const PackedModule& module) {
  std::vector<ExportedTensor> tensors = module.layout->describe(module.shape);
  if (module.bias) {
    tensors.push_back(
        {".packed.bias", module.bias->dtype, {static_cast<uint64_t>(module.shape.rows)}, {}});
  }
  for (ExportedTensor& tensor : tensors) {
    if (module.experts == 0) continue;
    tensor.shape.insert(tensor.shape.begin(), static_cast<uint64_t>(module.experts));
  }
  return declarations(tensors, module.name);
}

Result<SourceTensors> source_tensors(const PackedModule& module, std::string_view source) {
  SUBBYTE_TRY(const auto described, module.flavour->describe(module.export_shape(), source));
  const auto all = declarations(described, source);
  SourceTensors result;
  for (std::size_t i = 0; i < described.size(); ++i) {
    if (std::ranges::find(module.suffixes, described[i].suffix) == module.suffixes.end()) continue;
    result.tensors.push_back(all[i]);
    result.indices.push_back(i);
  }
  if (result.tensors.size() == module.suffixes.size()) return result;
  return Error{"pack.metadata",
               fmt::format("{}: expected suffixes of tensors that {} writes, found {}",
                           quote_name(module.name), module.flavour->name,
                           quote(fmt::format("{}", fmt::join(module.suffixes, " "))))};
}

std::vector<TensorDeclaration> source_biases(const PackedModule& module) {
  std::vector<TensorDeclaration> biases;
  if (!module.bias) return biases;
  const auto rows = static_cast<uint64_t>(module.shape.rows);
  for (const std::string& source : module.sources()) {
    Shape shape = {rows};
    if (module.experts > 0 && !module.from_modules) {
      shape.insert(shape.begin(), static_cast<uint64_t>(module.experts));
    }
    biases.push_back({source + module.bias->suffix, module.bias->dtype, std::move(shape)});
  }
  return biases;
}

std::string to_line(const PackedModule& module) {
  const PackedShape& shape = module.shape;
  json::Value line = {{"layout", module.layout->name},
                      {"version", kPackVersion},
                      {"tile", shape.tile},
                      {"shape", json::Value::array()}};
  if (module.experts > 0) line["shape"].push_back(module.experts);
  line["shape"].push_back(shape.rows);
  line["shape"].push_back(shape.cols);
  if (module.from_modules) line["modules"] = true;
  line["element"] = info(shape.format.element).name;
  line["scale"] = info(shape.format.scale).name;
  for (const auto& [zero, name] : kZeros) {
    if (zero == shape.format.zero && zero != Zero::kNone) line["zero"] = name;
  }
  line["group_size"] = shape.format.group_size;
  if (shape.symmetric) line["symmetric"] = true;
  if (shape.act_order) line["act_order"] = true;
  if (shape.activations != Format::kNone) line["activations"] = info(shape.activations).name;
  if (shape.scale_factor != 1) line["scale_factor"] = shape.scale_factor;
  if (!module.factors.empty()) line["factors"] = module.factors;
  line["flavour"] = module.flavour->name;
  line["tensors"] = module.suffixes;
  if (module.bias) {
    line["bias"] = module.bias->suffix;
    line["bias_dtype"] = name(module.bias->dtype);
  }
  return json::to_text(line);
}

Result<PackedModule> parse_line(std::string_view name, std::string_view line,
                                std::string_view where) {
  const std::string place = fmt::format("{}: metadata of {}", where, quote_name(name));
  const auto refuse = [&](const Error& error) { return Error{"pack.metadata", error.message}; };
  const auto value = json::parse(line, place);
  if (!value.ok()) return refuse(value.error());
  const auto object = json::Object::of(*value, place);
  if (!object.ok()) return refuse(object.error());
  auto module = Line(*object, name).read();
  if (module.ok() || !module.error().code.starts_with("json.")) return module;
  return refuse(module.error());
}

}  // namespace subbyte
