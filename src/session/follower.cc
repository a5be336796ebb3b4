#include "session/follower.h"

#include <fmt/format.h>

#include <memory>
#include <new>
#include <span>
#include <utility>

#include "backends/processes.h"
#include "base/sha256.h"
#include "checkpoints/model_path.h"
#include "exchange/message.h"
#include "session/model_identity.h"
#include "session/ready_model.h"
#include "subbyte/version.h"

namespace subbyte {
namespace {

enum class Kind : uint32_t { kOpen = 1, kFree, kLoad };

std::string program() {
  return fmt::format("subbyte {}, commit {}", version(), commit());
}

/// Options that change the bits of results: a rank with others would compute another model.
std::string arithmetic(const DeviceOptions& device) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "int8", "mxfp8", "fp8", "wide"};
  return fmt::format("--activations {}{}{}", kNames[static_cast<std::size_t>(device.activations)],
                     device.batch_invariant ? " --batch-invariant" : "",
                     device.isa.empty() ? "" : " with kernels of " + device.isa);
}

/// A digest of what tells a model from others.
Result<std::string> digest_of(const ModelFiles& files) {
  SUBBYTE_TRY(const auto digests, model_identity(files.path(), files.directory()));
  std::string all;
  for (const auto& [name, digest] : digests) all += fmt::format("{} {}\n", name, digest);
  return sha256(std::as_bytes(std::span(all)));
}

Status expect_same(const std::string& found, const std::string& of_first, std::string_view what) {
  if (found == of_first) return {};
  return Error{"exchange.failed", fmt::format("the {} is not that of rank 0: expected {}, found {}",
                                              what, of_first, found)};
}

Status open_as(MessageReader& message, const DeviceOptions& device, ModelFiles& files) {
  SUBBYTE_CHECK(expect_same(program(), message.take_text(), "program"));
  SUBBYTE_CHECK(expect_same(arithmetic(device), message.take_text(), "arithmetic"));
  const std::string name = message.take_text();
  SUBBYTE_TRY(const std::filesystem::path path, find_model(name));
  files = ModelFiles(path);
  SUBBYTE_TRY(const std::string digest, digest_of(files));
  return expect_same(digest, message.take_text(), fmt::format("model {}", path.string()));
}

void write(const LoadOptions& options, MessageWriter& message) {
  message.add(options.head_bits);
  message.add(options.cache_type);
  message.add(options.keeps_prefixes);
  for (const int64_t number : {options.cache_positions, options.state_cache_bytes,
                               options.step_tokens, options.step_sequences, options.step_logits}) {
    message.add(number);
  }
}

LoadOptions read_options(MessageReader& message) {
  LoadOptions options;
  options.head_bits = message.take<int>();
  options.cache_type = message.take<Element>();
  options.keeps_prefixes = message.take<bool>();
  for (int64_t* const number :
       {&options.cache_positions, &options.state_cache_bytes, &options.step_tokens,
        &options.step_sequences, &options.step_logits}) {
    *number = message.take<int64_t>();
  }
  return options;
}

Result<std::unique_ptr<Model>> try_to_load(const ModelFiles& files, Backend& backend,
                                           const LoadOptions& options) {
  try {
    return load_model(files, backend, options);
  } catch (const std::bad_alloc&) {
    return Error{"memory", "not enough memory for a part of the model"};
  }
}

Result<int64_t> free_bytes(Backend& backend) {
  const MachineMemory* const memory = backend.memory();
  if (memory == nullptr) return Error{"usage.cache_memory", "the model runs on the CPU there"};
  return memory->free_bytes();
}

}  // namespace

Status open_elsewhere(Exchange& others, const DeviceOptions& device, const std::string& name,
                      const ModelFiles& files) {
  SUBBYTE_TRY(const std::string digest, digest_of(files));
  MessageWriter message;
  message.add_text(program());
  message.add_text(arithmetic(device));
  message.add_text(name);
  message.add_text(digest);
  SUBBYTE_CHECK(send(others, static_cast<uint32_t>(Kind::kOpen), message));
  return agree(others, {});
}

Result<int64_t> least_free(Exchange& others, const Result<int64_t>& mine) {
  SUBBYTE_CHECK(send(others, static_cast<uint32_t>(Kind::kFree)));
  return least(others, mine);
}

Status load_elsewhere(Exchange& others, const LoadOptions& options) {
  MessageWriter message;
  write(options, message);
  return send(others, static_cast<uint32_t>(Kind::kLoad), message);
}

Status follow_first_rank(const DeviceOptions& device) {
  // How many layers fit is of the first rank, which has read what the model has; none is the CPU.
  DeviceOptions own = device;
  if (own.gpu_layers != 0) own.gpu_layers = -1;
  SUBBYTE_TRY(const std::unique_ptr<Backend> backend, choose_machine(own, {}));
  Exchange* const others = exchange_of(*backend);
  if (others == nullptr) return follow(*backend);  // which says so
  Exchange& exchange = *others;
  ModelFiles files = std::filesystem::path();
  std::unique_ptr<Model> model;
  while (model == nullptr) {
    SUBBYTE_TRY(MessageReader message, receive(exchange));
    if (message.kind() == kEndOfMessages) return {};
    if (message.kind() == static_cast<uint32_t>(Kind::kOpen)) {
      // Rank 0 says what was refused, and ends.
      static_cast<void>(agree(exchange, open_as(message, device, files)).ok());
      continue;
    }
    if (message.kind() == static_cast<uint32_t>(Kind::kFree)) {
      static_cast<void>(least(exchange, free_bytes(*backend)).ok());
      continue;
    }
    auto loaded = try_to_load(files, *backend, read_options(message));
    const Status result = loaded.ok() ? Status() : Status(loaded.error());
    if (agree(exchange, result).ok()) model = std::move(loaded).value();
  }
  return follow(*backend);
}

}  // namespace subbyte
