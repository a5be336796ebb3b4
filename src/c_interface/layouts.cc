// Matrices as the tensors of checkpoints and of aten, and back.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/quote.h"
#include "c_interface/context.h"
#include "c_interface/errors.h"
#include "c_interface/gpu.h"
#include "c_interface/tensors.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/importer.h"
#include "foreign_layouts/ggml_blocks.h"
#include "json/strict_json.h"
#include "matrix/recast.h"

namespace subbyte::c {

Result<const FileTensor*> ReadTensors::find(const std::string& name,
                                            std::initializer_list<DType> dtypes,
                                            std::size_t rank) const {
  const auto found = by_name.find(name);
  if (found == by_name.end()) {
    std::string names;
    for (const auto& [one, tensor] : by_name)
      names += (names.empty() ? "" : ", ") + quote_name(one);
    return Error{"c.tensor", "tensor " + quote_name(name) + ": expected one of that name, found " +
                                 (names.empty() ? "none" : names)};
  }
  const FileTensor& tensor = found->second;
  if (std::ranges::find(dtypes, tensor.dtype) != dtypes.end() && tensor.shape.size() == rank) {
    return &tensor;
  }
  std::string expected;
  for (const DType dtype : dtypes) {
    expected += (expected.empty() ? "" : " or ") + std::string(subbyte::name(dtype));
  }
  return Error{"c.tensor", "tensor " + quote_name(name) + ": expected " + expected + " of " +
                               std::to_string(rank) + " dimensions, found " +
                               std::string(subbyte::name(tensor.dtype)) + " " +
                               to_string(tensor.shape)};
}

namespace {

constexpr int64_t kMaxTensors = 64;
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;

Result<FileTensor> read_tensor(const subbyte_tensor& from) {
  SUBBYTE_CHECK(check_addresses({{"tensor.name", from.name}, {"tensor.dtype", from.dtype}}));
  FileTensor tensor;
  tensor.name = from.name;
  const auto dtype = find_dtype(from.dtype);
  if (!dtype) return refuse("tensor.dtype", "a type of safetensors", quote(from.dtype));
  tensor.dtype = *dtype;
  if (from.rank < 0 || from.rank > 4) return refuse("tensor.rank", "0 to 4", from.rank);
  std::optional<uint64_t> size_bits = static_cast<uint64_t>(bits(*dtype));
  for (int i = 0; i < from.rank; ++i) {
    if (from.shape[i] < 0) return refuse("tensor.shape", "0 or more", from.shape[i]);
    tensor.shape.push_back(static_cast<uint64_t>(from.shape[i]));
    if (size_bits) size_bits = checked_mul(*size_bits, tensor.shape.back());
  }
  if (!size_bits || *size_bits > 8 * kMaxBytes) {
    return refuse("tensor.shape", "up to 2^40 bytes", to_string(tensor.shape));
  }
  const std::size_t size = (*size_bits + 7) / 8;
  if (size > 0) SUBBYTE_CHECK(check_addresses({{"tensor.data", from.data}}));
  tensor.bytes = {static_cast<const std::byte*>(from.data), size};
  return tensor;
}

}  // namespace

Result<ReadTensors> read_tensors(const subbyte_tensor* tensors, int64_t count, void* stream,
                                 bool stays_on_gpu) {
  SUBBYTE_CHECK(check_addresses({{"tensors", tensors}}));
  if (count < 1 || count > kMaxTensors) return refuse("num_tensors", "1 to 64", count);
  SUBBYTE_TRY(const subbyte_tensor first, read_struct("tensors", tensors));
  ReadTensors read;
  for (int64_t i = 0; i < count; ++i) {
    const auto* at = reinterpret_cast<const std::byte*>(tensors) +
                     static_cast<std::size_t>(i) * first.struct_size;
    SUBBYTE_TRY(const subbyte_tensor from,
                read_struct("tensors", reinterpret_cast<const subbyte_tensor*>(at)));
    SUBBYTE_TRY(FileTensor tensor, read_tensor(from));
    const int device = device::gpu_of(from.data);
    if (i == 0) read.device = device;
    if (device != read.device && !tensor.bytes.empty()) {
      return refuse("tensors", "all on the host or on one GPU",
                    "some on " + std::to_string(device) + " and some on " +
                        std::to_string(read.device) + " (-1 is the host)");
    }
    if (device < 0 || !stays_on_gpu) {
      const auto copy = allocate_bytes(tensor.bytes.size());
      const auto size = static_cast<int64_t>(tensor.bytes.size());
      if (size > 0) SUBBYTE_CHECK(fetch(copy.get(), from.data, size, device, stream));
      tensor.bytes = {copy.get(), tensor.bytes.size()};
      read.owners.push_back(copy);
    }
    const std::string name = tensor.name;
    if (!read.by_name.emplace(name, std::move(tensor)).second) {
      return refuse("tensors", "one of each name", "two of " + quote(name));
    }
  }
  return read;
}

namespace {

constexpr std::string_view kModule = "m";

bool is_int4pack(std::string_view name) {
  return name == "int4pack-cpu" || name == "int4pack-cuda" || name == "int4pack-xpu";
}

std::string known_names() {
  std::string names =
      packed_layout_names() + "int4pack-cpu, int4pack-cuda, int4pack-xpu, ggml-TYPE";
  for (const Exporter* exporter : all_exporters()) names += ", " + std::string(exporter->name);
  return names;
}

/// The type of ggml of a name such as "ggml-Q4_K", which is only imported; nullptr: another layout.
const GgmlType* ggml_type_of(std::string_view name) {
  constexpr std::string_view kPrefix = "ggml-";
  return name.starts_with(kPrefix) ? find_ggml_type(name.substr(kPrefix.size())) : nullptr;
}

/// The exporter of a name, in which "-" may stand for "_".
const Exporter* exporter_of(std::string name) {
  std::ranges::replace(name, '-', '_');
  return find_exporter(name);
}

Result<subbyte_layout> read_layout(const subbyte_layout* from) {
  SUBBYTE_TRY(const subbyte_layout layout, read_struct("layout", from));
  SUBBYTE_CHECK(check_addresses({{"layout.name", layout.name}}));
  const bool is_known = is_int4pack(layout.name) || is_packed_layout(layout.name) ||
                        ggml_type_of(layout.name) != nullptr || exporter_of(layout.name) != nullptr;
  if (is_known) return layout;
  return refuse("layout.name", "one of " + known_names(), quote(layout.name));
}

/// "m.qweight" for "qweight", "m_blocks" for "_blocks".
std::string full_name(const std::string& name) {
  return std::string(kModule) + (name.starts_with('_') ? "" : ".") + name;
}

std::string short_name(std::string_view suffix) {
  return std::string(suffix.starts_with('.') ? suffix.substr(1) : suffix);
}

Result<QuantizationConfig> read_config(const char* text) {
  if (text == nullptr) return QuantizationConfig{};
  SUBBYTE_TRY(json::Value section, json::parse(text, "layout.config"));
  const json::Value root = {{"quantization_config", std::move(section)}};
  SUBBYTE_TRY(const json::Object object, json::Object::of(root, "layout.config"));
  return read_quantization_config(object, {});
}

/// The file that tensors of memory are said to be of: one without bytes, so that importers have
/// nothing to give back to the system.
Result<std::shared_ptr<const MappedFile>> no_file() {
  const Descriptor file(::memfd_create("tensors", MFD_CLOEXEC));
  if (!file) return Error{"file.io", "tensors: the system gives no file without a name"};
  SUBBYTE_TRY(MappedFile mapped,
              MappedFile::open("/proc/self/fd/" + std::to_string(file.number())));
  mapped.set_path("tensors");
  return std::make_shared<const MappedFile>(std::move(mapped));
}

/// The thread has a turn on the context.
Result<Matrix> import_checkpoint(const subbyte_layout& layout, const ReadTensors& tensors,
                                 Executor& pool) {
  SUBBYTE_TRY(const QuantizationConfig config, read_config(layout.config));
  SUBBYTE_TRY(const auto file, no_file());
  TensorMap map;
  for (const auto& [name, tensor] : tensors.by_name) {
    FileTensor named = tensor;
    named.file = file;
    named.name = full_name(name);
    map.emplace(named.name, named);
  }
  const TensorSource source = TensorSource::of(std::move(map));
  SUBBYTE_TRY(Matrix matrix, import_matrix({source, config, pool}, kModule));
  matrix.owners.insert(matrix.owners.end(), tensors.owners.begin(), tensors.owners.end());
  return matrix;
}

/// Blocks of ggml: `blocks` [N, bytes of a row], and a factor of all weights in `scale` [1].
Result<Matrix> import_ggml(const GgmlType& type, const ReadTensors& tensors, Executor& pool) {
  SUBBYTE_TRY(const FileTensor* blocks, tensors.find("blocks", {DType::kU8}, 2));
  const uint64_t row_bytes = blocks->shape[1];
  if (row_bytes % type.bytes != 0) {
    return Error{"c.tensor", "tensor \"blocks\": expected rows of blocks of " +
                                 std::to_string(type.bytes) + " bytes, found " +
                                 to_string(blocks->shape)};
  }
  SUBBYTE_TRY(Matrix matrix, ggml_matrix(type, static_cast<int64_t>(blocks->shape[0]),
                                         static_cast<int64_t>(row_bytes / type.bytes * type.block),
                                         blocks->bytes, pool));
  if (tensors.by_name.contains("scale")) {
    SUBBYTE_TRY(const FileTensor* scale, tensors.find("scale", {DType::kF32}, 1));
    float factor = NAN;
    if (scale->shape[0] == 1) __builtin_memcpy(&factor, scale->bytes.data(), sizeof factor);
    if (!std::isfinite(factor)) {
      return Error{"c.tensor", "tensor \"scale\": expected a finite number"};
    }
    matrix.view.tensor_scale = factor;
  }
  matrix.owners.insert(matrix.owners.end(), tensors.owners.begin(), tensors.owners.end());
  return matrix;
}

/// The same of every layout.
Result<Matrix> import_on_host(const subbyte_layout& layout, const ReadTensors& read,
                              Executor& pool) {
  if (is_packed_layout(layout.name)) return import_packed(layout, read);
  if (const GgmlType* type = ggml_type_of(layout.name)) return import_ggml(*type, read, pool);
  if (!is_int4pack(layout.name)) return import_checkpoint(layout, read, pool);
  SUBBYTE_TRY(const Int4Operand operand, read_int4pack(layout.name, layout.tile, read));
  return import_int4pack(operand);
}

Status import_matrix(const subbyte_context* context, const subbyte_layout* from,
                     const subbyte_tensor* tensors, int64_t count, void* stream,
                     subbyte_matrix** to) {
  SUBBYTE_CHECK(check_addresses({{"context", context}, {"matrix", to}}));
  SUBBYTE_TRY(const subbyte_layout layout, read_layout(from));
  const bool int4pack = is_int4pack(layout.name);
  SUBBYTE_TRY(const ReadTensors read, read_tensors(tensors, count, stream, int4pack));
  return make_matrix(context->shared, to, [&](subbyte_matrix& made, Executor& pool) -> Status {
    if (int4pack && read.device >= 0) {
      SUBBYTE_TRY(const Int4Operand operand, read_int4pack(layout.name, layout.tile, read));
      SUBBYTE_TRY(const auto gpu, device::Gpu::use(read.device, stream));
      SUBBYTE_TRY(made.on_gpu, import_int4pack(operand, gpu, pool));
      return {};
    }
    SUBBYTE_TRY(made.matrix, import_on_host(layout, read, pool));
    if (read.device < 0) return {};
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(read.device, stream));
    SUBBYTE_TRY(made.on_gpu, device::PackedMatrix::upload(made.matrix, made.row_order, gpu, pool));
    return {};
  });
}

/// The thread has a turn on the context.
Status export_checkpoint(const Exporter& exporter, const Matrix& from, Executor& pool,
                         subbyte_tensors& to) {
  const std::string module(kModule);
  SUBBYTE_TRY(const Matrix matrix, recast(from, exporter.target(shape_of(from.view))));
  SUBBYTE_TRY(std::vector<ExportedTensor> tensors, exporter.write(matrix.view, module, pool));
  for (ExportedTensor& tensor : tensors) {
    std::string name = short_name(tensor.suffix);
    to.tensors.push_back({std::move(name), std::move(tensor)});
  }
  ExportedModel model;
  model.modules.push_back({module, shape_of(matrix.view)});
  to.config = json::to_text(exporter.config(model).section);
  return {};
}

/// The same to every layout, from the bytes of a handle's matrix on the host.
Status export_from_host(const subbyte_matrix& handle, const Matrix& held,
                        const subbyte_layout& layout, Format number, subbyte_tensors& to) {
  if (is_packed_layout(layout.name)) return export_packed(layout, held, to.tensors);
  if (!is_int4pack(layout.name)) {
    return export_checkpoint(*exporter_of(layout.name), held, handle.context->execution->pool(),
                             to);
  }
  SUBBYTE_TRY(const Int4Target target, plan_int4pack(layout.name, layout.tile, number, held.view));
  return export_int4pack(target, held.view, to.tensors);
}

Status export_matrix(const subbyte_matrix* matrix, const subbyte_layout* from,
                     subbyte_tensors** to) {
  SUBBYTE_CHECK(check_addresses({{"matrix", matrix}, {"tensors", to}}));
  SUBBYTE_TRY(const subbyte_layout layout, read_layout(from));
  if (ggml_type_of(layout.name) != nullptr) {
    return refuse("layout.name", "a layout that is written", quote(layout.name));
  }
  auto made = std::make_unique<subbyte_tensors>();
  made->config = "null";
  Format number = Format::kNone;
  if (layout.number != SUBBYTE_NONE) {
    SUBBYTE_TRY(number, float_of("layout.number", layout.number));
  }
  SUBBYTE_TRY(const auto turn, Turn::take(matrix->context));
  if (matrix->on_gpu == nullptr) {
    SUBBYTE_CHECK(export_from_host(*matrix, matrix->matrix, layout, number, *made));
  } else {
    const device::PackedMatrix& packed = *matrix->on_gpu;
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(packed.index(), layout.stream));
    if (is_int4pack(layout.name)) {
      SUBBYTE_TRY(const Int4Target target,
                  plan_int4pack(layout.name, layout.tile, number, packed.held()));
      SUBBYTE_CHECK(export_int4pack(packed, target, gpu, made->tensors));
    } else {
      SUBBYTE_TRY(const device::StagedMatrix unpacked, packed.unpack(gpu));
      SUBBYTE_TRY(const Matrix held, unpacked.to_host(gpu));
      SUBBYTE_CHECK(export_from_host(*matrix, held, layout, number, *made));
    }
  }
  *to = made.release();
  return {};
}

Status count_tensors(const subbyte_tensors* tensors, int64_t* count) {
  SUBBYTE_CHECK(check_addresses({{"tensors", tensors}, {"count", count}}));
  *count = std::ssize(tensors->tensors);
  return {};
}

Status get_tensor(const subbyte_tensors* tensors, int64_t index, subbyte_tensor* to) {
  SUBBYTE_CHECK(check_addresses({{"tensors", tensors}, {"tensor", to}}));
  if (index < 0 || index >= std::ssize(tensors->tensors)) {
    return refuse("index", "0 to " + std::to_string(std::ssize(tensors->tensors) - 1), index);
  }
  const auto& [name, tensor, on_gpu] = tensors->tensors[static_cast<std::size_t>(index)];
  subbyte_tensor found = {};
  found.name = name.c_str();
  found.dtype = subbyte::name(tensor.dtype).data();
  found.rank = static_cast<int32_t>(std::min<std::size_t>(tensor.shape.size(), 4));
  for (int i = 0; i < found.rank; ++i) found.shape[i] = static_cast<int64_t>(tensor.shape[i]);
  found.data = on_gpu != nullptr ? on_gpu.get() : tensor.bytes.data();
  return write_struct("tensor", to, found);
}

Status get_config(const subbyte_tensors* tensors, char** json) {
  SUBBYTE_CHECK(check_addresses({{"tensors", tensors}, {"json", json}}));
  return hand_out(tensors->config, json);
}

}  // namespace
}  // namespace subbyte::c

using namespace subbyte;

int subbyte_matrix_import(subbyte_context* context, const subbyte_layout* layout,
                          const subbyte_tensor* tensors, int64_t num_tensors, void* stream,
                          subbyte_matrix** matrix) {
  return c::run(
      [&] { return c::import_matrix(context, layout, tensors, num_tensors, stream, matrix); });
}

int subbyte_matrix_export(const subbyte_matrix* matrix, const subbyte_layout* layout,
                          subbyte_tensors** tensors) {
  return c::run([&] { return c::export_matrix(matrix, layout, tensors); });
}

int subbyte_tensors_count(const subbyte_tensors* tensors, int64_t* count) {
  return c::run([&] { return c::count_tensors(tensors, count); });
}

int subbyte_tensors_get(const subbyte_tensors* tensors, int64_t index, subbyte_tensor* tensor) {
  return c::run([&] { return c::get_tensor(tensors, index, tensor); });
}

int subbyte_tensors_config(const subbyte_tensors* tensors, char** json) {
  return c::run([&] { return c::get_config(tensors, json); });
}

void subbyte_tensors_destroy(subbyte_tensors* tensors) {
  delete tensors;
}
