#include "parallel/step_message.h"

#include <span>
#include <utility>

#include "parallel/no_observer.h"

namespace subbyte {
namespace {

void write_tables(const SequenceTables& tables, MessageWriter& message) {
  message.add(tables.length);
  message.add(tables.is_long);
  message.add(static_cast<uint64_t>(tables.groups.size()));
  for (const SequenceTables::Group& group : tables.groups) {
    message.add_all(std::span<const int32_t>(group.pages));
    message.add(group.state);
    message.add(group.next_state);
  }
}

SequenceTables read_tables(MessageReader& message) {
  SequenceTables tables;
  tables.length = message.take<int64_t>();
  tables.is_long = message.take<bool>();
  const auto groups = message.take<uint64_t>();
  for (uint64_t i = 0; i < groups; ++i) {
    SequenceTables::Group group;
    group.pages = message.take_all<int32_t>();
    group.state = message.take<int32_t>();
    group.next_state = message.take<int32_t>();
    tables.groups.push_back(std::move(group));
  }
  return tables;
}

void write_choice(const TokenChoice& choice, MessageWriter& message) {
  for (const double number :
       {choice.temperature, choice.top_p, choice.min_p, choice.repetition_penalty,
        choice.frequency_penalty, choice.presence_penalty, choice.uniform}) {
    message.add(number);
  }
  message.add(choice.top_k);
  message.add(choice.num_generated);
  message.add_all(choice.penalized());
  message.add_all(choice.biases);
}

/// What the choice points to goes to `memory`.
TokenChoice read_choice(MessageReader& message, ChoiceMemory& memory) {
  TokenChoice choice;
  for (double* const number :
       {&choice.temperature, &choice.top_p, &choice.min_p, &choice.repetition_penalty,
        &choice.frequency_penalty, &choice.presence_penalty, &choice.uniform}) {
    *number = message.take<double>();
  }
  choice.top_k = message.take<int64_t>();
  choice.num_generated = message.take<int64_t>();
  memory.history = message.take_all<int32_t>();
  memory.biases = message.take_all<LogitBias>();
  choice.history = memory.history;
  choice.biases = memory.biases;
  return choice;
}

}  // namespace

SequenceTables tables_of(const Sequence& sequence) {
  SequenceTables tables = {sequence.length(), sequence.is_long(), {}};
  const std::span<const KvGroup> groups = std::as_const(sequence.pool()).groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto group = static_cast<int32_t>(i);
    const std::span<const int32_t> pages = sequence.pages(group);
    tables.groups.push_back({{pages.begin(), pages.end()},
                             groups[i].layout().is_state() ? sequence.state(group) : kNoPage,
                             sequence.next_state(group)});
  }
  return tables;
}

void write_copies(std::span<const PageCopy> copies, MessageWriter& message) {
  message.add(static_cast<uint64_t>(copies.size()));
  for (const PageCopy& copy : copies) {
    for (const int32_t number : {copy.pool, copy.group, copy.from, copy.to}) message.add(number);
    message.add(copy.positions);
  }
}

std::vector<PageCopy> read_copies(MessageReader& message) {
  std::vector<PageCopy> copies;
  const auto count = message.take<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) {
    PageCopy copy = {};
    for (int32_t* const number : {&copy.pool, &copy.group, &copy.from, &copy.to}) {
      *number = message.take<int32_t>();
    }
    copy.positions = message.take<int64_t>();
    copies.push_back(copy);
  }
  return copies;
}

void write_batch(const Batch& batch, MessageWriter& message) {
  message.add(batch.observer != nullptr);
  message.add(static_cast<uint64_t>(batch.parts.size()));
  for (const Part& part : batch.parts) {
    write_tables(tables_of(*part.sequence), message);
    message.add_all(part.tokens);
    message.add(part.num_logits);
    message.add(part.choice.has_value());
    if (part.choice) write_choice(*part.choice, message);
  }
}

MirroredBatch::MirroredBatch(MessageReader& message, KvPool& pool) {
  static NoObserver unseen;  // for steps that go on after the batch
  if (message.take<bool>()) observer_ = &unseen;
  const auto parts = message.take<uint64_t>();
  sequences_.reserve(parts);
  choices_.resize(parts);
  for (uint64_t i = 0; i < parts; ++i) {
    sequences_.push_back(Sequence::mirror(pool, read_tables(message)));
    tokens_.push_back(message.take_all<int32_t>());
    Part& part = parts_.emplace_back();
    part.sequence = &sequences_.back();
    part.num_logits = message.take<int64_t>();
    if (message.take<bool>()) part.choice = read_choice(message, choices_[i]);
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].tokens = tokens_[i];
}

}  // namespace subbyte
