// subbyte logits: what a model says about given tokens, as a tensor.

#include <fmt/format.h>

#include "app/command.h"
#include "checkpoints/containers/safetensors.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string model;
  int head_bits = 16;
  std::string ids;
  std::string output;
  bool force = false;
};

/// The logits are written chunk by chunk: all of them may be larger than the model.
Status write_logits(const LoadedModel& loaded, std::span<const TokenId> ids,
                    SafetensorsWriter& writer) {
  const int64_t vocab = loaded.model->config().vocab_size;
  KvCache cache(loaded.model->config(), std::ssize(ids));
  std::vector<float> logits;
  for (std::size_t begin = 0; begin < ids.size(); begin += Model::kChunk) {
    const auto chunk = ids.subspan(begin, std::min<std::size_t>(Model::kChunk, ids.size() - begin));
    logits.resize(chunk.size() * vocab);
    SUBBYTE_CHECK(loaded.model->forward(*loaded.execution, chunk, cache, logits));
    SUBBYTE_CHECK(writer.append(std::as_bytes(std::span(logits))));
  }
  return writer.commit();
}

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const auto ids, parse_ids(options.ids));
  SUBBYTE_TRY(const LoadedModel loaded, load(invocation, options.model, options.head_bits));
  SUBBYTE_CHECK(check_context(loaded.model->config(), std::ssize(ids)));
  const auto vocab = static_cast<uint64_t>(loaded.model->config().vocab_size);
  SUBBYTE_TRY(SafetensorsWriter writer,
              SafetensorsWriter::create(options.output, options.force,
                                        {{"logits", DType::kF32, {ids.size(), vocab}}}, {}));
  SUBBYTE_CHECK(write_logits(loaded, ids, writer));
  return kOk;
}

}  // namespace

void add_logits(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "logits", "Write the logits of given tokens to a safetensors file",
      "  subbyte logits ./model --ids 1,2,3 --out logits.safetensors   # logits: F32 [3, vocab]");
  auto options = std::make_shared<Options>();
  command
      ->add_option("MODEL", options->model, "directory, ak47 or ak48 file, or org/name[@revision]")
      ->required();
  command->add_option("--ids", options->ids, "token ids, separated by commas")->required();
  command->add_option("-o,--out", options->output, "the file to write")->required();
  command->add_flag("--force", options->force, "replace the file if it is there");
  add_head_bits(*command, options->head_bits);
  command->callback([options, &invocation] {
    invocation.run = [options, &invocation] { return run(invocation, *options); };
  });
}

}  // namespace subbyte::app
