// subbyte synth: a checkpoint of a real shape with random weights.

#include "synth/synth.h"
#include "synth/synth_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "app/command.h"
#include "app/destination.h"
#include "app/output.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string destination;
  SynthOptions synth;
  std::optional<std::string> shape;
  std::optional<std::string> format;
  bool json = false;
};

constexpr std::string_view kUsualShape = "0.6b";

/// The words of "tiny, 0.6b, 4b".
std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(", ", begin), list.size());
    words.push_back(list.substr(begin, end - begin));
    begin = end + 2;
  }
  return words;
}

std::vector<std::string> shapes_of(const std::vector<std::string>& archs) {
  std::vector<std::string> shapes;
  for (const std::string& arch : archs) {
    for (std::string& shape : words_of(shape_names(arch))) {
      if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(std::move(shape));
    }
  }
  return shapes;
}

/// What a shape may be stored as, the usual format first; empty where there is no such shape.
std::vector<std::string> formats_of(const std::string& arch, const std::string& shape) {
  const ModelShape* const found = find_shape(arch, shape);
  if (found == nullptr) return {};
  const auto formats = synthetic_formats(family_of(*found));
  return {formats.begin(), formats.end()};
}

std::vector<std::string> formats_of(const std::vector<std::string>& archs) {
  std::vector<std::string> all;
  for (const std::string& arch : archs) {
    for (std::string& format : formats_of(arch, words_of(shape_names(arch)).front())) {
      if (std::ranges::find(all, format) == all.end()) all.push_back(std::move(format));
    }
  }
  return all;
}

/// What is not said follows from the architecture, which has the spelling of config.json as well.
void complete(Options& options) {
  SynthOptions& synth = options.synth;
  std::ranges::replace(synth.arch, '_', '-');
  synth.shape = kUsualShape;
  const auto shapes = words_of(shape_names(synth.arch));
  const bool has_usual = std::ranges::find(shapes, kUsualShape) != shapes.end();
  if (!shapes.empty() && !has_usual) synth.shape = shapes.front();
  synth.shape = options.shape.value_or(synth.shape);
  const auto formats = formats_of(synth.arch, synth.shape);
  if (!formats.empty()) synth.format = formats.front();
  synth.format = options.format.value_or(synth.format);
}

Result<ExitCode> run(const Invocation& invocation, Options options) {
  complete(options);
  SUBBYTE_TRY(Destination destination, Destination::prepare(options.destination));
  SUBBYTE_TRY(const auto host, create_host(invocation));
  const auto start = std::chrono::steady_clock::now();
  uint64_t bytes = 0;
  const Status written = [&] {
    Progress progress(invocation, "writing");
    return synthesize(options.destination, options.synth, *host,
                      [&](uint64_t done, uint64_t total) {
                        bytes = total;
                        progress.update_bytes(done, total);
                      });
  }();
  SUBBYTE_CHECK(written);
  destination.keep();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const SynthOptions& synth = options.synth;
  if (options.json) {
    print(stdout, json_text({{"destination", options.destination},
                             {"architecture", synth.arch},
                             {"shape", synth.shape},
                             {"format", synth.format},
                             {"seed", synth.seed},
                             {"result_bytes", bytes},
                             {"seconds", seconds}},
                            -1));
  }
  note(line("{}: {} {} in {}, {:.1f} MB of random weights in {:.1f} s", options.destination,
            synth.arch, synth.shape, synth.format, static_cast<double>(bytes) / 1e6, seconds));
  return kOk;
}

}  // namespace

void add_synth(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "synth", "Write a checkpoint of a published shape with random weights",
      "  subbyte synth ./qwen3-8b --arch qwen3 --shape 8b --format awq\n"
      "  subbyte synth ./gpt-oss-20b --arch gpt-oss --shape 20b --format mxfp4 --seed 7\n"
      "  subbyte synth ./small --shape 0.6b --format gptq --group-size 64 --layers 4\n"
      "  subbyte synth ./tiny --shape tiny --format bf16 --json");
  auto options = std::make_shared<Options>();
  options->synth.notice = print_notice;
  SynthOptions& synth = options->synth;
  command.destination(options->destination);
  synth.arch = usual_arch();
  const std::vector<std::string> archs = words_of(shape_archs());
  command.option("--arch", synth.arch, shape_archs()).value("ARCH").such_as(archs).shows_default();
  command
      .option("--shape", options->shape,
              all_shape_names() + " (" + std::string(kUsualShape) + ", else the first)")
      .value("SHAPE")
      .such_as(shapes_of(archs));
  command.option("--format", options->format, all_synthetic_formats() + " (the first)")
      .value("FORMAT")
      .such_as(formats_of(archs));
  command.option("-s,--seed", synth.seed, "same seed, same bytes").shows_default();
  command.option("--layers", synth.layers, "only the first layers, this many of them (0: all)")
      .zero_is_default()
      .shows_default();
  command.option(
      "--group-size", synth.group_size,
      fmt::format("inputs that share a scale, for formats that leave it open ({})", kUsualGroup));
  command.flag("--json", options->json, "print one JSON object");
  command.shares(Shares::kThreads);
  command.run([options, &invocation] { return run(invocation, *options); });
}

}  // namespace subbyte::app
