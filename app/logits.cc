// subbyte logits: what a model says about given tokens, as a tensor.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>

#include "app/command.h"
#include "app/interrupt.h"
#include "app/text_input.h"
#include "checkpoints/containers/safetensors.h"
#include "engine/token_logits.h"
#include "models/checkpoint.h"

namespace subbyte::app {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model;
  int head_bits = 16;
  std::string ids;
  std::string output;
  bool force = false;
  std::string kv_cache_type;  // empty: f32, and f16 where a GPU computes
};

/// The most accurate that the machine has.
Element cache_type(const Options& options, Backend& backend) {
  if (!options.kv_cache_type.empty()) return kv_element(options.kv_cache_type);
  return backend.memory() == nullptr ? Element::kF32 : Element::kF16;
}

/// A file that is replaced is none of those that the model is read from. Code file.exists.
Status check_output(const Options& options, const ModelFiles& files) {
  std::error_code failure;
  if (!options.force || !fs::exists(options.output, failure)) return {};
  std::set<fs::path> sources = {files.path()};
  for (const auto& entry : fs::directory_iterator(files.directory(), failure)) {
    const fs::path ending = entry.path().extension();
    if (ending == ".json" || ending == ".jinja") sources.insert(entry.path());
  }
  SUBBYTE_TRY(const CheckpointParts parts, open_weights(files.path()));
  for (const auto& [name, tensor] : parts.tensors->tensors()) sources.insert(tensor.file->path());
  const auto is_output = [&](const fs::path& source) {
    return fs::equivalent(source, options.output, failure);
  };
  if (std::ranges::none_of(sources, is_output)) return {};
  return Error{"file.exists", options.output + ": is a file of the model, not overwritten"};
}

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const auto ids, parse_ids(options.ids));
  if (ids.empty()) return Error{"usage.ids", "--ids: expected at least one token id"};
  SUBBYTE_TRY(ReadyModel loaded, open(invocation, options.model));
  SUBBYTE_CHECK(check_context(loaded.config, std::ssize(ids)));
  const auto vocab = static_cast<uint64_t>(loaded.config.vocab_size);
  SUBBYTE_CHECK(check_output(options, loaded.files));
  SUBBYTE_TRY(OutputFile output, open_output(options.output, options.force));
  const Element kv_type = cache_type(options, *loaded.backend);
  SUBBYTE_CHECK(load(invocation, loaded,
                     {.head_bits = options.head_bits,
                      .cache_type = kv_type,
                      .cache_positions = std::ssize(ids),
                      .step_tokens = kScoredChunk,
                      .step_logits = kScoredChunk}));
  // Not before: what goes to standard output cannot be taken back.
  SUBBYTE_TRY(
      const SafetensorsStart start,
      lay_out_safetensors({{"logits", DType::kF32, {ids.size(), vocab}}}, {}, "the output"));
  SUBBYTE_CHECK(output.write(start.head));
  // Chunk by chunk: all of them may be larger than the model.
  const auto write = [&] {
    Progress progress(invocation, "logits");
    uint64_t done = 0;
    return token_logits(
        {*loaded.model, *loaded.backend}, kv_type, ids, [&](std::span<const float> rows) {
          done += rows.size() / vocab;
          progress.update(done, ids.size(), fmt::format("{} of {} tokens", done, ids.size()));
          return output.write(std::as_bytes(rows));
        });
  };
  SUBBYTE_CHECK(write());
  SUBBYTE_CHECK(output.commit());
  set_written();
  return kOk;
}

}  // namespace

void add_logits(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "logits", "Write the logits of given tokens to a safetensors file",
      "  subbyte logits ./model --ids 1,2,3 --out logits.safetensors   # logits: F32 [3, vocab]");
  auto options = std::make_shared<Options>();
  command.model(options->model);
  command.option("--ids", options->ids, "token ids, separated by commas").required();
  command.option("-o,--out", options->output, "the file to write; - is standard output").required();
  command.flag("--force", options->force, "replace the file if it is there; never a link");
  add_head_bits(command, options->head_bits);
  command
      .option("--kv-cache-type", options->kv_cache_type,
              "what the key-value cache is stored as; fp8 is e4m3 with scales; without it f32, on "
              "a GPU f16")
      .value("TYPE")
      .one_of(cache_type_names());
  command.shares(Shares::kModel);
  command.run([options, &invocation] { return run(invocation, *options); });
}

}  // namespace subbyte::app
