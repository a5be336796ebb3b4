#include "transform/packing/packed_module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "checkpoints/expert_names.h"
#include "foreign_layouts/marlin.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxExperts = 1 << 16;
constexpr std::pair<Zero, std::string_view> kZeros[] = {
    {Zero::kNone, ""}, {Zero::kU8, "u8"}, {Zero::kU16, "u16"}};

Error line_error(const json::Object& line, std::string_view key, std::string_view expected) {
  return line.error("pack.metadata", key, expected);
}

/// Layout, version and tile.
Status read_layout(const json::Object& line, PackedModule& module) {
  SUBBYTE_TRY(const int64_t version, line.required_integer("version", 0, INT32_MAX));
  if (version != kPackVersion) {
    return line.error("pack.version", "version",
                      fmt::format("{} (what this program packs)", kPackVersion));
  }
  SUBBYTE_TRY(const std::string layout, line.required_string("layout"));
  module.layout = find_pack_layout(layout);
  if (module.layout == nullptr) {
    return line_error(line, "layout",
                      fmt::format("one of {}", fmt::join(pack_layout_names(), ", ")));
  }
  SUBBYTE_TRY(module.shape.tile, line.required_string("tile"));
  const auto tiles = module.layout->tiles;
  if (std::ranges::find(tiles, module.shape.tile) != tiles.end()) return {};
  return line_error(line, "tile", fmt::format("one of {}", fmt::join(tiles, ", ")));
}

Status read_sizes(const json::Object& line, PackedModule& module) {
  const json::Value* shape = line.find("shape");
  const auto is_size = [](const json::Value& size) { return json::is_integer(size, 1, kMaxSize); };
  if (shape == nullptr || !shape->is_array() || shape->size() < 2 || shape->size() > 3 ||
      !std::ranges::all_of(*shape, is_size) ||
      (shape->size() == 3 && (*shape)[0].get<int64_t>() > kMaxExperts)) {
    return line_error(line, "shape", "[N, K] or [E, N, K] of sizes from 1 to 2^24");
  }
  if (shape->size() == 3) module.experts = (*shape)[0].get<int64_t>();
  module.shape.rows = (*shape)[shape->size() - 2].get<int64_t>();
  module.shape.cols = (*shape)[shape->size() - 1].get<int64_t>();
  SUBBYTE_TRY(const auto modules, line.boolean("modules"));
  module.from_modules = modules.value_or(false);
  if (!module.from_modules || module.experts > 0) return {};
  return line_error(line, "modules", "a shape of experts");
}

Status read_format(const json::Object& line, PackedShape& shape) {
  WeightFormat& format = shape.format;
  for (const auto& [key, part] : {std::pair{"element", &format.element},
                                  {"scale", &format.scale},
                                  {"activations", &shape.activations}}) {
    const bool is_needed = part != &shape.activations;
    SUBBYTE_TRY(const auto name, line.string(key));
    const auto found = find_format(name.value_or(""));
    if (!found && (is_needed || name)) return line_error(line, key, "the name of a format");
    *part = found.value_or(Format::kNone);
  }
  SUBBYTE_TRY(const auto zero, line.string("zero"));
  for (const auto& [kind, name] : kZeros) {
    if (name == zero.value_or("")) format.zero = kind;
  }
  SUBBYTE_TRY(format.group_size, line.required_integer("group_size", 0, kMaxSize));
  SUBBYTE_TRY(const auto symmetric, line.boolean("symmetric"));
  SUBBYTE_TRY(const auto act_order, line.boolean("act_order"));
  shape.symmetric = symmetric.value_or(false);
  shape.act_order = act_order.value_or(false);
  if (is_dense(format)) return line_error(line, "scale", "a format of scales");
  if (!shape.symmetric || format.zero != Zero::kNone) return {};
  return line_error(line, "symmetric", "a format with zero points");
}

Status read_factors(const json::Object& line, PackedModule& module) {
  SUBBYTE_TRY(const auto scale_factor, line.number("scale_factor", 0x1p-100, 0x1p100));
  module.shape.scale_factor = static_cast<float>(scale_factor.value_or(1));
  int exponent = 0;
  if (std::frexp(module.shape.scale_factor, &exponent) != 0.5F) {
    return line_error(line, "scale_factor", "a power of two");
  }
  const json::Value* factors = line.find("factors");
  module.shape.has_factor = factors != nullptr;
  if (factors == nullptr) return {};
  const auto is_factor = [](const json::Value& factor) {
    return factor.is_number() && std::isfinite(factor.get<double>());
  };
  if (!factors->is_array() || !std::ranges::all_of(*factors, is_factor) ||
      static_cast<int64_t>(factors->size()) != module.num_matrices()) {
    return line_error(line, "factors", fmt::format("{} numbers", module.num_matrices()));
  }
  module.factors = factors->get<std::vector<double>>();
  return {};
}

/// The exporter, its tensors, and the bias.
Status read_source(const json::Object& line, PackedModule& module) {
  SUBBYTE_TRY(const std::string flavour, line.required_string("flavour"));
  module.flavour = find_module_exporter(flavour);
  const bool stacks = module.experts > 0 && !module.from_modules;
  if (module.flavour == nullptr || (stacks && module.flavour->write_experts == nullptr)) {
    return line_error(line, "flavour",
                      "the name of a format that unpacking writes, with stacks if it is one");
  }
  const json::Value* tensors = line.find("tensors");
  const auto is_suffix = [](const json::Value& suffix) { return suffix.is_string(); };
  if (tensors == nullptr || !tensors->is_array() || tensors->empty() ||
      !std::ranges::all_of(*tensors, is_suffix)) {
    return line_error(line, "tensors", "suffixes of names");
  }
  module.suffixes = tensors->get<std::vector<std::string>>();
  SUBBYTE_TRY(const auto bias, line.string("bias"));
  if (!bias) return {};
  SUBBYTE_TRY(const auto name, line.string("bias_dtype"));
  const auto dtype = find_dtype(name.value_or(""));
  const bool floats = dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32;
  if (!floats || !module.layout->permutes_bias || (*bias != ".bias" && *bias != "_bias")) {
    return line_error(line, "bias",
                      "\".bias\" or \"_bias\" of F16, BF16 or F32, in a layout "
                      "that has an order of biases");
  }
  module.bias = PackedBias{*bias, *dtype};
  return {};
}

json::Value to_json(const PackedModule& module) {
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
  return line;
}

Result<PackedModule> read_module(const json::Object& line, std::string_view name) {
  PackedModule module;
  module.name = name;
  SUBBYTE_CHECK(read_layout(line, module));
  SUBBYTE_CHECK(read_sizes(line, module));
  SUBBYTE_CHECK(read_format(line, module.shape));
  SUBBYTE_CHECK(read_factors(line, module));
  SUBBYTE_CHECK(read_source(line, module));
  // Whatever else there is was not written by `pack`.
  const json::Value known = to_json(module);
  for (const auto& [key, value] : line.members()) {
    const json::Value* expected = known.find(key);
    if (expected == nullptr || *expected != value) {
      return line_error(line, key, expected == nullptr ? "no such key" : json::to_text(*expected));
    }
  }
  const Status fits = module.layout->check(module.shape);
  if (fits.ok()) return module;
  return Error{fits.error().code, fmt::format("{}: {}", line.where(), fits.error().message)};
}

using Bytes = std::vector<std::byte>;

/// Names the module, or the expert of a stack.
Error of_matrix(const Error& error, const PackedModule& module, int64_t index) {
  const std::string name = module.experts == 0 ? module.name : expert_name(module.name, index);
  return {error.code, fmt::format("{}: {}", quote_name(name), error.message)};
}

/// The part of one matrix in a tensor of all.
template <typename Span>
Span part_of(Span tensor, int64_t index, int64_t count) {
  const std::size_t size = tensor.size() / static_cast<std::size_t>(count);
  return tensor.subspan(static_cast<std::size_t>(index) * size, size);
}

/// The error of the first matrix that has one.
Status first_error(std::span<const Status> statuses) {
  for (const Status& status : statuses) SUBBYTE_CHECK(status);
  return {};
}

template <typename Body>
Status for_each_matrix(const PackedModule& module, Executor& pool, const Body& body) {
  std::vector<Status> statuses(module.num_matrices());
  pool.parallel_for(module.num_matrices(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Status status = body(i);
      if (!status.ok()) statuses[i] = of_matrix(status.error(), module, i);
    }
  });
  return first_error(statuses);
}

Status pack_one(const PackedModule& module, const MatrixView& matrix, int64_t index,
                std::vector<Bytes>& tensors) {
  std::vector<std::span<std::byte>> parts;
  for (Bytes& tensor : tensors) {
    parts.push_back(part_of(std::span(tensor), index, module.num_matrices()));
  }
  return module.layout->pack(matrix, module.shape, parts);
}

std::vector<Bytes> make_tensors(const PackedModule& module) {
  std::vector<Bytes> tensors;
  for (const ExportedTensor& tensor : module.layout->describe(module.shape)) {
    tensors.emplace_back(tensor.num_bytes() * static_cast<uint64_t>(module.num_matrices()));
  }
  return tensors;
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
  return json::to_text(to_json(module));
}

Result<PackedModule> parse_line(std::string_view name, std::string_view line,
                                std::string_view where) {
  const std::string place = fmt::format("{}: metadata of {}", where, quote_name(name));
  const auto refuse = [&](const Error& error) { return Error{"pack.metadata", error.message}; };
  const auto value = json::parse(line, place);
  if (!value.ok()) return refuse(value.error());
  const auto object = json::Object::of(*value, place);
  if (!object.ok()) return refuse(object.error());
  auto module = read_module(*object, name);
  if (module.ok() || !module.error().code.starts_with("json.")) return module;
  return refuse(module.error());
}

Result<std::vector<Bytes>> pack_matrices(const PackedModule& module,
                                         std::span<const Matrix> matrices, Executor& pool) {
  std::vector<Bytes> tensors = make_tensors(module);
  SUBBYTE_CHECK(for_each_matrix(
      module, pool, [&](int64_t i) { return pack_one(module, matrices[i].view, i, tensors); }));
  return tensors;
}

Result<std::vector<Matrix>> unpack_matrices(const PackedModule& module,
                                            std::span<const std::span<const std::byte>> tensors,
                                            Executor& pool) {
  std::vector<Matrix> matrices(module.num_matrices());
  SUBBYTE_CHECK(for_each_matrix(module, pool, [&](int64_t i) -> Status {
    std::vector<std::span<const std::byte>> parts;
    for (const auto tensor : tensors) parts.push_back(part_of(tensor, i, module.num_matrices()));
    SUBBYTE_TRY(matrices[i], module.layout->unpack(module.shape, parts));
    matrices[i].view.tensor_scale = module.factor(i);
    return {};
  }));
  SUBBYTE_TRY(const std::vector<Bytes> again, pack_matrices(module, matrices, pool));
  const auto names = packed_tensors(module);
  for (std::size_t t = 0; t < again.size(); ++t) {
    const auto different = std::ranges::mismatch(again[t], tensors[t]);
    if (different.in1 == again[t].end()) continue;
    return Error{"pack.not_exact",
                 fmt::format("{}: expected what {} makes of these weights, 0x{:02X} at byte {}, "
                             "found 0x{:02X}",
                             quote_name(names[t].name), module.layout->name,
                             std::to_integer<int>(*different.in1), different.in1 - again[t].begin(),
                             std::to_integer<int>(*different.in2))};
  }
  return matrices;
}

std::vector<std::byte> pack_biases(const PackedModule& module, std::span<const std::byte> biases) {
  const int64_t count = module.num_matrices();
  Bytes packed(biases.size());
  for (int64_t i = 0; i < count; ++i) {
    pack_marlin_bias(part_of(std::span(packed), i, count).data(), part_of(biases, i, count).data(),
                     module.shape.rows, bits(module.bias->dtype) / 8);
  }
  return packed;
}

std::vector<std::byte> unpack_biases(const PackedModule& module,
                                     std::span<const std::byte> packed) {
  const int64_t count = module.num_matrices();
  Bytes biases(packed.size());
  for (int64_t i = 0; i < count; ++i) {
    unpack_marlin_bias(part_of(std::span(biases), i, count).data(),
                       part_of(packed, i, count).data(), module.shape.rows,
                       bits(module.bias->dtype) / 8);
  }
  return biases;
}

}  // namespace subbyte
