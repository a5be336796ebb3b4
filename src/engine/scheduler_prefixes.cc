// What samples begin with that others have computed, or are about to, and what others may begin
// with of theirs.

#include <algorithm>
#include <utility>

#include "engine/scheduler.h"

namespace subbyte {
namespace {

/// Tokens that are worth waiting for, or making a step end for.
constexpr int64_t kWorthSharing = 16;
/// Of a long prompt, between the positions from where it is shared where there are states.
constexpr int64_t kCheckpointPositions = 4096;

}  // namespace

/// With what is known of its tokens. The last one is computed in any case: its logits are needed.
void Scheduler::begin(Sample& sample) {
  const std::span<const int32_t> tokens = sample.generation.tokens();
  sample.kind.is_long = pool_.is_long(std::ssize(tokens));
  sample.is_in_prompt = true;
  sample.has_place = false;
  sample.num_awaited = 0;
  // Of a prompt that is scored the logits of all tokens that are not yet are needed.
  const int64_t most = sample.is_scored() ? std::ssize(tokens) - 1 : sample.num_scored;
  sample.found = prefixes_.attach(sample.kind, tokens.first(most), sample.sequence);
  if (sample.is_scored()) follow(sample, sample.found.length);
  sample.num_kept = sample.found.length;
  plan_ends(sample);
}

/// Where its steps have to end, so that there are states from where others go on: where the next
/// prompt of a conversation is likely to differ, where this one differs from one before, and now
/// and then.
void Scheduler::plan_ends(Sample& sample) const {
  const PrefixCache::Found& found = sample.found;
  sample.ends.clear();
  if (!prefixes_.has_states()) return;
  const int64_t most = std::ssize(sample.generation.tokens()) - 1;
  const auto add = [&](int64_t end) {
    if (end > found.length && end <= most) sample.ends.insert(end);
  };
  add(sample.boundary);
  if (sample.is_shared) add(sample.generation.prompt_tokens() - 1);
  if (found.length_of_pages - found.length >= kWorthSharing) add(found.length_of_pages);
  for (int64_t end = kCheckpointPositions; end <= most; end += kCheckpointPositions) add(end);
}

/// Finds the one that computes the longest prefix of a sample, of which `known` tokens are known.
void Scheduler::follow(Sample& sample, int64_t known) {
  const std::span<const int32_t> tokens = sample.generation.tokens();
  const auto own = tokens.first(tokens.size() - 1);
  Sample* leader = nullptr;
  for (auto& [place, other] : running_) {
    if (place > sample.place) break;  // a more urgent one waits for none that comes after it
    // Who waits leads nobody, so that no two wait for each other.
    if (&other == &sample || !other.is_in_prompt || other.num_awaited > 0) continue;
    if (other.kind != sample.kind) continue;
    const int64_t common = std::ranges::mismatch(own, other.generation.tokens()).in1 - own.begin();
    const int64_t least = std::max(known + kWorthSharing, sample.num_awaited + 1);
    if (common < least || common <= other.num_kept) continue;
    if (prefixes_.has_states() && common <= other.sequence.length()) continue;
    leader = &other;
    sample.leader = place;
    sample.num_awaited = common;
  }
  if (leader == nullptr || !prefixes_.has_states()) return;
  // Its next step does not end before, or an end that is near has to do.
  const auto after = leader->ends.upper_bound(sample.num_awaited);
  if (after != leader->ends.begin() && *std::prev(after) > sample.num_awaited - kWorthSharing)
    return;
  leader->ends.insert(sample.num_awaited);
}

/// Says whether another still computes what this one begins with.
bool Scheduler::is_led(const Sample& sample) const {
  if (sample.num_awaited == 0) return false;
  const auto found = running_.find(sample.leader);
  if (found == running_.end()) return false;
  const Sample& leader = found->second;
  return leader.is_in_prompt && leader.num_awaited == 0 && leader.num_kept < sample.num_awaited;
}

/// Those that are led, or were and have had no part in a step since.
int64_t Scheduler::num_awaiting() const {
  return std::ranges::count_if(running_,
                               [](const auto& one) { return one.second.num_awaited > 0; });
}

/// What a sample has computed is known to others: of a prompt after each step, then by pages.
void Scheduler::keep(Sample& sample, bool has_choice) {
  const int64_t length = sample.finished_length();
  const bool was_in_prompt = std::exchange(sample.is_in_prompt, sample.is_in_prompt && !has_choice);
  if (!was_in_prompt && length % kPagePositions != 0) return;
  const int64_t end = was_in_prompt && has_choice ? length : 0;  // of the prompt
  prefixes_.keep(sample.kind, sample.generation.tokens().first(length), sample.sequence,
                 end > 0 || sample.ends.contains(length));
  for (const int64_t used : {sample.boundary, sample.found.length_in_common, end}) {
    if (used <= sample.num_kept || used > length) continue;
    prefixes_.use(sample.kind, sample.generation.tokens().first(used));
  }
  sample.num_kept = length;
}

/// Of a sample that goes.
void Scheduler::keep_end(Sample& sample) {
  const auto tokens = sample.generation.tokens().first(sample.finished_length());
  if (tokens.empty()) return;
  prefixes_.keep(sample.kind, tokens, sample.sequence, true);
  prefixes_.use(sample.kind, tokens);
}

}  // namespace subbyte
