// Packed directories that are damaged: each is refused with the file and what was expected, and
// nothing is written.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/json_of.h"
#include "support/paths.h"
#include "support/quantized_model.h"
#include "support/safetensors_file.h"
#include "transform/packing/pack_model.h"
#include "transform/packing/packed_module.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(SUBBYTE_TEST_DATA) / "goldens";

/// A packed file, to be changed and written again.
struct PackedFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, TestTensor> tensors;

  std::string& line(const std::string& module) { return metadata[module + ".packed"]; }
  /// Changes one member of the line of a module.
  void set(const std::string& module, const std::string& key, const json::Value& value) {
    json::Value line_value = json_of(line(module));
    line_value[key] = value;
    line(module) = line_value.text();
  }
};

PackedFile read_packed(const fs::path& directory) {
  PackedFile file;
  const auto source = TensorSource::open_packed(directory);
  EXPECT_TRUE(source.ok()) << source.error().message;
  file.metadata = source->metadata().front();
  for (const auto& [name, tensor] : source->tensors()) {
    file.tensors[name] = {
        name,
        tensor.dtype,
        tensor.shape,
        {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}};
  }
  return file;
}

Status write_packed(const fs::path& path, const PackedFile& file) {
  std::vector<TensorDeclaration> declarations;
  for (const auto& [name, tensor] : file.tensors) {
    declarations.push_back({name, tensor.dtype, tensor.shape});
  }
  const auto bytes = [&](const TensorEntry& entry) {
    return std::as_bytes(std::span(file.tensors.at(entry.name).bytes));
  };
  return write_safetensors(path, declarations, bytes, file.metadata);
}

class DamagedPack : public ::testing::Test {
 protected:
  void pack(const std::string& golden, const std::string& layout, const std::string& tile = "") {
    PackOptions options;
    options.layout = layout;
    options.tile = tile;
    fs::remove_all(folder_ / "packed");
    const auto report = pack_model(kGoldens / golden, folder_ / "packed", options, pool_);
    ASSERT_TRUE(report.ok()) << report.error().message;
    sound_ = read_packed(folder_ / "packed");
    for (const auto& [key, line] : sound_.metadata) {
      if (!key.ends_with(kPackedSuffix)) continue;
      module_ = key.substr(0, key.size() - kPackedSuffix.size());
      break;
    }
  }

  /// The code with which the directory is refused after `damage`; "" when it is unpacked.
  std::string code(const std::function<void(PackedFile&)>& damage) {
    PackedFile file = sound_;
    damage(file);
    const Status written = write_packed(folder_ / "packed/packed.safetensors", file);
    EXPECT_TRUE(written.ok()) << written.error().message;
    fs::remove_all(folder_ / "back");
    const auto report = unpack_model(folder_ / "packed", folder_ / "back", {}, pool_);
    if (report.ok()) return "";
    EXPECT_FALSE(fs::exists(folder_ / "back"));
    EXPECT_NE(report.error().message.find("packed"), std::string::npos) << report.error().message;
    return std::string(report.error().code);
  }
  std::string code_of_line(const std::string& key, const json::Value& value) {
    return code([&](PackedFile& file) { file.set(module_, key, value); });
  }

  TempDir folder_;
  ThreadPool pool_{2};
  PackedFile sound_;
  std::string module_;  // the first
};

TEST_F(DamagedPack, lines_of_metadata_are_read_strictly) {
  pack("qwen3-gptq-act-order", "marlin");
  ASSERT_EQ(code([](PackedFile&) {}), "");
  EXPECT_EQ(code([](PackedFile& file) { file.metadata.clear(); }), "pack.metadata");
  EXPECT_EQ(code([&](PackedFile& file) { file.line(module_) = "{"; }), "pack.metadata");
  EXPECT_EQ(code([&](PackedFile& file) { file.line(module_) = "[]"; }), "pack.metadata");
  EXPECT_EQ(code_of_line("version", 2), "pack.version");
  EXPECT_EQ(code_of_line("version", "1"), "pack.metadata");
  EXPECT_EQ(code_of_line("layout", "marlin24"), "pack.metadata");
  EXPECT_EQ(code_of_line("layout", "kbit"), "pack.metadata");  // whose tiles are others
  EXPECT_EQ(code_of_line("tile", "16x32"), "pack.metadata");
  EXPECT_EQ(code_of_line("colour", "red"), "pack.metadata");
  EXPECT_EQ(code_of_line("element", "u5x"), "pack.metadata");
  EXPECT_EQ(code_of_line("element", "e2m1"), "pack.format");
  EXPECT_EQ(code_of_line("scale", "u4"), "pack.format");
  EXPECT_EQ(code_of_line("zero", "f16"), "pack.metadata");
  EXPECT_EQ(code_of_line("group_size", -32), "pack.metadata");
  EXPECT_EQ(code_of_line("group_size", 48), "pack.group_size");
  EXPECT_EQ(code_of_line("flavour", "awq2"), "pack.metadata");
  EXPECT_EQ(code_of_line("tensors", {".qweight", ".colour"}), "pack.metadata");
  EXPECT_EQ(code_of_line("tensors", json::Value::array()), "pack.metadata");
  EXPECT_EQ(code_of_line("factors", {1.0, 2.0}), "pack.metadata");
  EXPECT_EQ(code_of_line("bias", ".weight"), "pack.metadata");
  EXPECT_EQ(code_of_line("modules", true), "pack.metadata");  // of one matrix
}

TEST_F(DamagedPack, shapes_that_no_file_has_are_refused_before_anything_is_allocated) {
  pack("qwen3-awq", "marlin");
  EXPECT_EQ(code_of_line("shape", {64}), "pack.metadata");
  EXPECT_EQ(code_of_line("shape", {0, 64}), "pack.metadata");
  EXPECT_EQ(code_of_line("shape", {-64, 64}), "pack.metadata");
  EXPECT_EQ(code_of_line("shape", {int64_t{1} << 40, 64}), "pack.metadata");
  EXPECT_EQ(code_of_line("shape", {1 << 20, 1 << 24, 1 << 24}), "pack.metadata");
  EXPECT_EQ(code_of_line("shape", {1 << 24, 1 << 24}), "pack.tensor");
  EXPECT_EQ(code_of_line("shape", {65536, 1 << 24, 1 << 24}), "pack.metadata");  // no stacks in awq
  EXPECT_EQ(code_of_line("shape", {100, 256}), "layout.shape");
}

TEST_F(DamagedPack, tensors_are_those_of_the_lines_and_no_others) {
  pack("qwen3-awq", "marlin");
  const std::string words = module_ + ".packed.words";
  EXPECT_EQ(code([&](PackedFile& file) { file.tensors.erase(words); }), "pack.missing");
  EXPECT_EQ(code([&](PackedFile& file) { file.tensors[words].dtype = DType::kU32; }),
            "pack.tensor");
  EXPECT_EQ(code([&](PackedFile& file) {
              std::swap(file.tensors[words].shape[0], file.tensors[words].shape[1]);
            }),
            "pack.tensor");
  EXPECT_EQ(code([&](PackedFile& file) { file.metadata.erase(module_ + ".packed"); }),
            "pack.tensor_unlisted");
  EXPECT_EQ(code([&](PackedFile& file) {
              TestTensor twice = file.tensors[module_ + ".packed.scales"];
              twice.name = module_ + ".scales";
              file.tensors[twice.name] = twice;
            }),
            "pack.metadata");
}

TEST_F(DamagedPack, an_order_of_inputs_names_each_once) {
  pack("qwen3-gptq-act-order", "marlin");
  const auto damage = [&](const char* suffix) {
    return code([&](PackedFile& file) {
      TestTensor& tensor = file.tensors[module_ + suffix];
      tensor.set<int32_t>(0, tensor.at<int32_t>(tensor.shape[0] - 1));
    });
  };
  EXPECT_EQ(damage(".packed.perm"), "layout.input_order");
  EXPECT_EQ(damage(".packed.g_idx"), "layout.input_order");
  pack("qwen3-gptq-act-order", "int4pack-xpu");
  EXPECT_EQ(damage(".packed.input_order"), "layout.input_order");
}

TEST_F(DamagedPack, padding_is_0_and_offsets_are_of_zero_points) {
  pack("llmcompressor-mxfp4", "flashinfer-mxfp4");  // 64 outputs and 64 inputs
  EXPECT_EQ(code([](PackedFile&) {}), "");
  for (const std::string& name :
       {module_ + ".packed.scales", std::string("model.layers.0.mlp.gate_proj.packed.weight")}) {
    EXPECT_EQ(code([&](PackedFile& file) { file.tensors[name].bytes.back() = 1; }),
              "pack.not_exact")
        << name;
  }
  pack("qwen3-awq", "int4pack-cpu", "64");
  EXPECT_EQ(code([&](PackedFile& file) {
              TestTensor& numbers = file.tensors[module_ + ".packed.scales_and_zeros"];
              numbers.set<uint16_t>(1, numbers.at<uint16_t>(1) ^ 0x155);
            }),
            "layout.zero_range");
}

TEST(Unpack, directories_that_are_not_packed_are_refused) {
  const TempDir folder;
  ThreadPool pool(1);
  const auto model = unpack_model(kGoldens / "qwen3-awq", folder / "back", {}, pool);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, "index.no_checkpoint") << model.error().message;
  fs::create_directory(folder / "packed");
  fs::copy(kGoldens / "qwen3-awq/model.safetensors", folder / "packed/packed.safetensors");
  const auto renamed = unpack_model(folder / "packed", folder / "back", {}, pool);
  ASSERT_FALSE(renamed.ok());
  EXPECT_EQ(renamed.error().code, "pack.metadata") << renamed.error().message;
}

}  // namespace
}  // namespace subbyte
