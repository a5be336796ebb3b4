// subbyte pack and unpack: weights in the layouts that kernels of other software read, and back.

#include "transform/packing/pack_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "app/command.h"
#include "app/output.h"
#include "app/written_directory.h"
#include "checkpoints/model_path.h"
#include "subbyte/json.h"
#include "transform/packing/pack_layout.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string source;
  std::string destination;
  PackOptions pack;
  UnpackOptions unpack;
  bool json = false;
};

double megabytes(uint64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

std::string as_json(const Options& options, const PackReport& report, double seconds) {
  Json root = {{"destination", options.destination}, {"layout", report.layout}};
  if (!report.tile.empty()) root["tile"] = report.tile;
  root["modules"] = report.modules;
  if (!report.tile.empty()) root["packed_modules"] = report.packed_modules;
  root["kept_tensors"] = report.kept_tensors;
  root["source_bytes"] = report.source_bytes;
  root["result_bytes"] = report.result_bytes;
  if (!report.tile.empty()) root["remarks"] = report.remarks;
  root["seconds"] = seconds;
  return json_text(root);
}

/// The error with the option that its words are about.
Error explained(const Error& error) {
  if (error.code == "pack.tile") return {error.code, error.message + " (--tile)"};
  if (error.code == "pack.activations") return {error.code, error.message + " (--dtype)"};
  for (const char* code : {"pack.format", "pack.group_size", "layout.shape", "pack.scale_range"}) {
    if (error.code == code) {
      return {error.code, error.message + " (--keep NAME leaves such weights as they are)"};
    }
  }
  return error;
}

Result<ExitCode> pack(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const auto source, find_model(options.source));
  SUBBYTE_TRY(const auto host, create_host(invocation));
  const auto written = write_directory<PackReport>(
      invocation, options.destination, "packing", [&](const ByteProgress& update) {
        return pack_model(source, options.destination, options.pack, *host, update);
      });
  if (!written.ok()) return explained(written.error());
  const PackReport& packed = written->report;
  if (options.json) print(stdout, as_json(options, packed, written->seconds));
  for (const std::string& remark : packed.remarks) note(line("note: {}", remark));
  note(
      line("{}: {} modules as {} ({}), every weight the same; {} tensors unchanged, {:.1f} MB from "
           "{:.1f} MB, {:.1f} s",
           options.destination, packed.modules, packed.layout, packed.tile, packed.kept_tensors,
           megabytes(packed.result_bytes), megabytes(packed.source_bytes), written->seconds));
  return kOk;
}

Result<ExitCode> unpack(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const auto source, find_model(options.source));
  SUBBYTE_TRY(const auto host, create_host(invocation));
  SUBBYTE_TRY(const auto written,
              write_directory<PackReport>(
                  invocation, options.destination, "unpacking", [&](const ByteProgress& update) {
                    return unpack_model(source, options.destination, options.unpack, *host, update);
                  }));
  const PackReport& report = written.report;
  if (options.json) print(stdout, as_json(options, report, written.seconds));
  note(line("{}: {} modules from {}; {} tensors unchanged, {:.1f} MB from {:.1f} MB, {:.1f} s",
            options.destination, report.modules, report.layout, report.kept_tensors,
            megabytes(report.result_bytes), megabytes(report.source_bytes), written.seconds));
  return kOk;
}

/// Of all layouts.
std::vector<std::string> tiles() {
  std::vector<std::string> all;
  for (const PackLayout* layout : all_pack_layouts()) {
    for (const std::string_view tile : layout->tiles) {
      if (std::ranges::find(all, tile) == all.end()) all.emplace_back(tile);
    }
  }
  return all;
}

void add_places(Command command, Options& options, const char* source) {
  command.option("SRC", options.source, source).required();
  command.destination(options.destination);
}

}  // namespace

void add_pack(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "pack", "Store quantized weights in the layout that kernels of other software read",
      "  subbyte pack ./Qwen3-8B-GPTQ ./Qwen3-8B-marlin --to marlin\n"
      "  subbyte pack ./Qwen3-8B-NVFP4 ./Qwen3-8B-marlin --to marlin-fp4 --dtype bf16\n"
      "  subbyte pack openai/gpt-oss-20b ./gpt-oss-flashinfer --to flashinfer-mxfp4\n"
      "  subbyte pack ./Qwen3-8B-AWQ ./Qwen3-8B-cpu --to int4pack-cpu --tile 64\n"
      "  subbyte pack ./Qwen3-8B-kbit ./Qwen3-8B-planes --to kbit --tile flat --json");
  auto options = std::make_shared<Options>();
  options->pack.notice = print_notice;
  add_places(command, *options, "directory or org/name[@revision], with quantized weights");
  command
      .option("--to", options->pack.layout,
              fmt::format("one of {}", fmt::join(pack_layout_names(), ", ")))
      .value("LAYOUT")
      .such_as(pack_layout_names())
      .required();
  command
      .option("--tile", options->pack.tile,
              "int4pack-cpu: 64 (AVX-512), 32 (AVX2), pairs-32 or pairs-16 (other processors), and "
              "must be given; int4pack-cuda: 8, 4 or 2 (inner_k_tiles); flashinfer-mxfp4: 128x4 or "
              "8x4; kbit: tiled or flat; without it the first of these")
      .value("TILE")
      .such_as(tiles());
  command
      .option("--dtype", options->pack.activations,
              "marlin-fp4: the type of the activations, f16 or bf16, for which scales are made; "
              "without it that of config.json")
      .value("TYPE")
      .such_as({"bf16", "f16"});
  command
      .option("--keep", options->pack.keep,
              "leave modules of this name, or whose names begin or end so, as they are; re: and a "
              "regular expression works, too, and the option may be repeated")
      .value("PATTERN");
  command.flag("--json", options->json, "print one JSON object");
  command.shares(Shares::kThreads);
  command.run([options, &invocation] { return pack(invocation, *options); });
}

void add_unpack(Program& program, Invocation& invocation) {
  Command command =
      program.add_command("unpack", "Make the model again that pack packed, bit for bit",
                          "  subbyte unpack ./Qwen3-8B-marlin ./Qwen3-8B-GPTQ\n"
                          "  subbyte unpack ./gpt-oss-flashinfer ./gpt-oss --json");
  auto options = std::make_shared<Options>();
  options->unpack.notice = print_notice;
  add_places(command, *options, "directory that pack wrote");
  command.flag("--json", options->json, "print one JSON object");
  command.shares(Shares::kThreads);
  command.run([options, &invocation] { return unpack(invocation, *options); });
}

}  // namespace subbyte::app
