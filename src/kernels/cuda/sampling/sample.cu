#include "kernels/cuda/sampling/sample.h"

#include "base/token_weight.h"
#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kChunk = 256;        // logits; a warp scans them
constexpr int kScanLogits = 1024;  // of a CTA
constexpr int kScanThreads = kScanLogits / kChunk * kLanes;
constexpr int kThreads = 1024;  // of the choice
constexpr int kWarps = kThreads / kLanes;
constexpr int kMaxCandidates = kThreads;
constexpr int kWantedOfAll = 400;  // candidates without top_k: nearly always the draw is in them
constexpr uint64_t kLastPlace = ~uint64_t{0};

/// Parts of the scratch memory.
struct Scratch {
  uint64_t* best;    // [num_choices][chunks]: places
  uint64_t* totals;  // [num_choices][scans]: sums of weights
  float* changed;    // [num_choices][vocabulary]: logits
};

__host__ __device__ int64_t chunks_of(int64_t vocabulary) {
  return (vocabulary + kChunk - 1) / kChunk;
}
__host__ __device__ int64_t scans_of(int64_t vocabulary) {
  return (vocabulary + kScanLogits - 1) / kScanLogits;
}

__device__ Scratch scratch_of(const SampleCall& a) {
  Scratch scratch;
  scratch.best = reinterpret_cast<uint64_t*>(a.scratch);
  scratch.totals = scratch.best + a.num_choices * chunks_of(a.vocabulary);
  scratch.changed =
      reinterpret_cast<float*>(scratch.totals + a.num_choices * scans_of(a.vocabulary));
  return scratch;
}

__device__ uint64_t place_of(float logit, int64_t token) {
  return uint64_t{logit_order(logit)} << 32 | ~static_cast<uint32_t>(token);
}
__device__ int32_t token_at(uint64_t place) {
  return static_cast<int32_t>(~static_cast<uint32_t>(place));
}
__device__ float logit_at(uint64_t place) {
  return logit_of_order(static_cast<uint32_t>(place >> 32));
}

/// Of the best token of all: whether there is one, and nothing is NaN or +infinity.
__device__ bool is_finite(uint64_t place) {
  const auto order = static_cast<uint32_t>(place >> 32);
  return order > logit_order(-INFINITY) && order < logit_order(INFINITY);
}

__device__ uint64_t best_of_warp(uint64_t place) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    place = max(place, __shfl_xor_sync(~0u, place, distance));
  }
  return place;
}

/// The best of all chunks, in every thread of the CTA. `partials` has an element for each warp.
__device__ uint64_t best_of_row(const uint64_t* best, int64_t chunks, uint64_t* partials) {
  uint64_t place = 0;
  for (int64_t i = threadIdx.x; i < chunks; i += blockDim.x) place = max(place, best[i]);
  place = best_of_warp(place);
  if (threadIdx.x % kLanes == 0) partials[threadIdx.x / kLanes] = place;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  place = best_of_warp(lane < static_cast<int>(blockDim.x) / kLanes ? partials[lane] : 0);
  __syncthreads();
  return place;
}

/// What changes the logits of a CTA.
struct Changes {
  uint32_t occurred[kScanLogits / 32];  // bits
  int32_t counts[kScanLogits];
  float biases[kScanLogits];

  __device__ LogitChange of(int at) const {
    return {biases[at], counts[at], (occurred[at / 32] >> at % 32 & 1) != 0};
  }
};

/// Of the tokens from `first_token` on.
__device__ void find_changes(Changes& changes, const ChoiceRow& choice,
                             const int32_t* tokens_of_rows, int64_t first_token) {
  for (int i = threadIdx.x; i < kScanLogits; i += kScanThreads) {
    if (i < kScanLogits / 32) changes.occurred[i] = 0;
    changes.counts[i] = 0;
    changes.biases[i] = 0;
  }
  __syncthreads();
  const int32_t* const history = tokens_of_rows + choice.history_begin;
  const int64_t num_read = choice.history_size - choice.num_generated;
  for (int64_t i = threadIdx.x; i < choice.history_size; i += kScanThreads) {
    const int64_t at = history[i] - first_token;
    if (at < 0 || at >= kScanLogits) continue;
    atomicOr(&changes.occurred[at / 32], 1u << at % 32);
    if (i >= num_read) atomicAdd(&changes.counts[at], 1);
  }
  const int32_t* const biases = tokens_of_rows + choice.biases_begin;
  for (int64_t i = threadIdx.x; i < choice.num_biases; i += kScanThreads) {
    const int64_t at = biases[2 * i] - first_token;
    if (at >= 0 && at < kScanLogits) changes.biases[at] = __int_as_float(biases[2 * i + 1]);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kScanThreads) scan(const __grid_constant__ SampleCall a) {
  begin_operation();
  __shared__ Changes changes;
  const Scratch scratch = scratch_of(a);
  const int64_t choice_idx = blockIdx.y;
  const ChoiceRow& choice = a.choices[choice_idx];
  const float* const logits = a.logits + choice.row * a.vocabulary;
  const int64_t first = int64_t{blockIdx.x} * kScanLogits;
  const TokenPenalties penalties = {choice.repetition_penalty, choice.frequency_penalty,
                                    choice.presence_penalty};
  const bool has_changes = choice.has_changes();
  if (has_changes) find_changes(changes, choice, a.tokens_of_rows, a.first_token + first);
  const int chunk = threadIdx.x / kLanes;
  uint64_t best = 0;
#pragma unroll
  for (int i = 0; i < kChunk / kLanes; ++i) {
    const int at = chunk * kChunk + i * kLanes + threadIdx.x % kLanes;
    const int64_t token = first + at;
    if (token >= a.vocabulary) continue;
    float logit = logits[token];
    if (has_changes) {
      const LogitChange change = changes.of(at);
      if (!change.is_none()) logit = changed_logit(logit, change, penalties);
      scratch.changed[choice_idx * a.vocabulary + token] = logit;
    }
    best = max(best, place_of(logit, token));
  }
  best = best_of_warp(best);
  const int64_t chunks = chunks_of(a.vocabulary);
  const int64_t chunk_idx = int64_t{blockIdx.x} * (kScanLogits / kChunk) + chunk;
  if (threadIdx.x % kLanes == 0 && chunk_idx < chunks) {
    scratch.best[choice_idx * chunks + chunk_idx] = best;
  }
}

/// One choice, as its CTA sees it.
struct Row {
  const ChoiceRow& choice;
  const float* logits;  // with biases and penalties
  const uint64_t* best;
  const uint64_t* totals;
  int64_t vocabulary;
  int64_t chunks;

  __device__ Row(const SampleCall& a, int64_t choice_idx) : choice(a.choices[choice_idx]) {
    const Scratch scratch = scratch_of(a);
    vocabulary = a.vocabulary;
    chunks = chunks_of(vocabulary);
    logits = choice.has_changes() ? scratch.changed + choice_idx * vocabulary
                                  : a.logits + choice.row * vocabulary;
    best = scratch.best + choice_idx * chunks;
    totals = scratch.totals + choice_idx * scans_of(vocabulary);
  }
  /// 0: all.
  __device__ int64_t top_k() const { return choice.top_k < vocabulary ? choice.top_k : 0; }
};

__global__ void __launch_bounds__(kScanThreads) weigh(const __grid_constant__ SampleCall a) {
  begin_operation();
  __shared__ uint64_t partials[kScanThreads / kLanes];
  const Row row(a, blockIdx.y);
  if (row.choice.temperature == 0 || row.top_k() != 0) return;
  const uint64_t best = best_of_row(row.best, row.chunks, partials);
  if (!is_finite(best)) return;
  uint64_t sum = 0;
  for (int i = threadIdx.x; i < kScanLogits; i += kScanThreads) {
    const int64_t token = int64_t{blockIdx.x} * kScanLogits + i;
    if (token >= a.vocabulary) continue;
    sum += token_weight(row.logits[token], logit_at(best), row.choice.temperature);
  }
  sum = sum_of_cta(sum, partials);
  if (threadIdx.x == 0) {
    scratch_of(a).totals[blockIdx.y * scans_of(a.vocabulary) + blockIdx.x] = sum;
  }
}

// --- by bisection over the whole row

/// What a token counts for.
struct Measure {
  bool is_count;   // 1 each
  uint64_t first;  // places before count nothing
  uint64_t least;  // weights below it count nothing
  float best;
  double temperature;

  __device__ uint64_t of(float logit) const {
    if (is_count) return 1;
    const uint64_t weight = token_weight(logit, best, temperature);
    return weight < least ? 0 : weight;
  }
};

/// Of the tokens at `from` to `to`, both included.
__device__ uint64_t sum_between(const Row& row, const Measure& measure, uint64_t from, uint64_t to,
                                uint64_t* partials) {
  constexpr int kHeld = 4;  // loads that wait for memory together
  from = max(from, measure.first);
  uint64_t sum = 0;
  for (int64_t first = threadIdx.x; first < row.vocabulary; first += kHeld * kThreads) {
    float logits[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int64_t token = first + i * kThreads;
      logits[i] = token < row.vocabulary ? row.logits[token] : 0;
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int64_t token = first + i * kThreads;
      const uint64_t place = place_of(logits[i], token);
      if (token < row.vocabulary && place >= from && place <= to) sum += measure.of(logits[i]);
    }
  }
  __syncthreads();
  return sum_of_cta(sum, partials);
}

/// The largest place such that the tokens from it on reach `needed`, which all together do.
__device__ uint64_t place_that_reaches(const Row& row, const Measure& measure, uint64_t needed,
                                       uint64_t* partials) {
  const int token_bits = 32 - __clz(static_cast<int>(row.vocabulary));
  uint64_t place = 0;
  uint64_t last = kLastPlace;
  uint64_t sum_after = 0;  // of the places after `last`
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t middle = place | uint64_t{1} << bit;
    if (bit < 32 && bit >= token_bits) {  // set in ~token of every token
      place = middle;
      continue;
    }
    const uint64_t sum = sum_between(row, measure, middle, last, partials);
    if (sum_after + sum >= needed) {
      place = middle;
    } else {
      sum_after += sum;
      last = middle - 1;
    }
  }
  return place;
}

__device__ int32_t choose_of_row(const Row& row, uint64_t best, uint64_t* partials) {
  Measure measure = {true, 0, 0, logit_at(best), row.choice.temperature};
  if (row.top_k() > 0) measure.first = place_that_reaches(row, measure, row.top_k(), partials);
  measure.is_count = false;
  const uint64_t total = sum_between(row, measure, 0, kLastPlace, partials);
  measure.first =
      place_that_reaches(row, measure, weight_of_top_p(row.choice.top_p, total), partials);
  measure.least = weight_of_min_p(row.choice.min_p);
  const uint64_t kept = sum_between(row, measure, 0, kLastPlace, partials);
  return token_at(
      place_that_reaches(row, measure, drawn_weight(row.choice.uniform, kept), partials));
}

// --- of sorted candidates

struct Candidates {
  uint64_t found[kMaxCandidates];
  uint64_t sorted[kMaxCandidates];
  int32_t chunks[kMaxCandidates];  // that have candidates
  uint64_t partials[kWarps];
  int num_chunks;
  int num_found;
  int32_t token;
};

/// The `wanted`-th of the best places of chunks; 0, before all, where there are not so many.
__device__ uint64_t first_candidate(const Row& row, int64_t wanted) {
  if (wanted >= row.chunks) return 0;
  const uint64_t held = threadIdx.x < row.chunks ? row.best[threadIdx.x] : 0;
  uint64_t place = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t middle = place | uint64_t{1} << bit;
    int64_t count = __syncthreads_count(held >= middle);
    for (int64_t first = kThreads; first < row.chunks; first += kThreads) {
      const int64_t chunk = first + threadIdx.x;
      count += __syncthreads_count(chunk < row.chunks && row.best[chunk] >= middle);
    }
    if (count >= wanted) place = middle;
    if (count == wanted) break;
  }
  return place;
}

/// Tokens from `first` on, in any order. More than fit are counted.
__device__ void find_candidates(const Row& row, uint64_t first, Candidates& c) {
  if (threadIdx.x == 0) c.num_chunks = c.num_found = 0;
  __syncthreads();
  for (int64_t chunk = threadIdx.x; chunk < row.chunks; chunk += kThreads) {
    if (row.best[chunk] < first) continue;
    const int i = atomicAdd(&c.num_chunks, 1);
    if (i < kMaxCandidates) c.chunks[i] = static_cast<int32_t>(chunk);
  }
  __syncthreads();
  const int num_chunks = min(c.num_chunks, kMaxCandidates);
  for (int i = static_cast<int>(threadIdx.x) / kLanes; i < num_chunks; i += kWarps) {
#pragma unroll
    for (int j = 0; j < kChunk / kLanes; ++j) {
      const int64_t token = int64_t{c.chunks[i]} * kChunk + j * kLanes + threadIdx.x % kLanes;
      const uint64_t place = token < row.vocabulary ? place_of(row.logits[token], token) : 0;
      if (place == 0 || place < first) continue;
      const int at = atomicAdd(&c.num_found, 1);
      if (at < kMaxCandidates) c.found[at] = place;
    }
  }
  __syncthreads();
}

/// Best first. There are at most as many as threads.
__device__ void sort(Candidates& c) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < c.num_found) {
    const uint64_t place = c.found[i];
    int rank = 0;
#pragma unroll 4
    for (int j = 0; j < c.num_found; ++j) rank += c.found[j] > place ? 1 : 0;
    c.sorted[rank] = place;
  }
  __syncthreads();
}

struct Sum {
  uint64_t here;  // of the threads up to this one
  uint64_t all;
};

/// Of the lanes up to this one.
__device__ uint64_t sum_up_to_lane(uint64_t value) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const uint64_t before = __shfl_up_sync(~0u, value, distance);
    if (lane >= distance) value += before;
  }
  return value;
}

__device__ Sum add_up(uint64_t value, uint64_t* partials) {
  static_assert(kWarps == kLanes, "a warp adds the partials of all");
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const uint64_t of_warp = sum_up_to_lane(value);
  __syncthreads();
  if (lane == kLanes - 1) partials[warp] = of_warp;
  __syncthreads();
  const uint64_t of_warps = sum_up_to_lane(partials[lane]);
  const uint64_t before = __shfl_sync(~0u, of_warps, max(warp - 1, 0));
  return {of_warp + (warp > 0 ? before : 0), __shfl_sync(~0u, of_warps, kLanes - 1)};
}

/// Sets c.token, and returns whether the candidates were enough to know it.
__device__ bool choose_of_sorted(const Row& row, uint64_t best, Candidates& c) {
  const int64_t top_k = row.top_k();
  const bool are_all = top_k > 0 || c.num_found == row.vocabulary;
  const int size = top_k > 0 ? min(static_cast<int>(top_k), c.num_found) : c.num_found;
  const int i = static_cast<int>(threadIdx.x);
  const auto weight_at = [&](int at) {
    return token_weight(logit_at(c.sorted[at]), logit_at(best), row.choice.temperature);
  };
  const uint64_t weight = i < size ? weight_at(i) : 0;
  const Sum sum = add_up(weight, c.partials);
  uint64_t total = sum.all;
  if (!are_all) {
    uint64_t part = 0;
    for (int64_t s = i; s < scans_of(row.vocabulary); s += kThreads) part += row.totals[s];
    __syncthreads();
    total = sum_of_cta(part, c.partials);
  }
  const uint64_t needed = weight_of_top_p(row.choice.top_p, total);
  const uint64_t least = weight_of_min_p(row.choice.min_p);
  const uint64_t kept = weight >= least && sum.here - weight < needed ? weight : 0;
  const Sum kept_sum = add_up(kept, c.partials);
  uint64_t kept_total = kept_sum.all;
  // A token after the last candidate may have one unit more than that one.
  if (sum.all < needed && weight_at(size - 1) + 1 >= least) {
    if (needed != total || least != 1) return false;
    kept_total = total;
  }
  const uint64_t drawn = drawn_weight(row.choice.uniform, kept_total);
  if (drawn > kept_sum.all) return false;
  if (kept_sum.here >= drawn && kept_sum.here - kept < drawn) c.token = token_at(c.sorted[i]);
  __syncthreads();
  return true;
}

__device__ int32_t draw(const Row& row, uint64_t best, Candidates& c) {
  const int64_t top_k = row.top_k();
  if (top_k <= kMaxCandidates) {
    find_candidates(row, first_candidate(row, top_k > 0 ? top_k : kWantedOfAll), c);
    if (c.num_found <= kMaxCandidates) {
      sort(c);
      if (choose_of_sorted(row, best, c)) return c.token;
    }
  }
  return choose_of_row(row, best, c.partials);
}

__global__ void __launch_bounds__(kThreads) choose(const __grid_constant__ SampleCall a) {
  begin_operation();
  __shared__ Candidates candidates;
  const Row row(a, blockIdx.x);
  const uint64_t best = best_of_row(row.best, row.chunks, candidates.partials);
  int32_t token = -1;
  if (is_finite(best)) {
    token = row.choice.temperature == 0 ? token_at(best) : draw(row, best, candidates);
  }
  if (threadIdx.x != 0) return;
  if (token >= 0) {
    token = a.names == nullptr
                ? token + static_cast<int32_t>(a.first_token)
                : static_cast<int32_t>(a.names[row.choice.row * a.vocabulary + token]);
  }
  a.tokens[blockIdx.x] = token;
}

static_assert(kMaxGivenCandidates <= kMaxCandidates);

__global__ void __launch_bounds__(kThreads) give(const __grid_constant__ CandidatesCall a) {
  begin_operation();
  __shared__ Candidates candidates;
  const Row row(a.of, blockIdx.x);
  const uint64_t best = best_of_row(row.best, row.chunks, candidates.partials);
  const bool is_wrong = static_cast<uint32_t>(best >> 32) >= logit_order(INFINITY);
  const int64_t wanted = row.choice.temperature == 0 ? 1 : min(row.choice.top_k, row.vocabulary);
  int given = 0;
  if (!is_wrong) {
    find_candidates(row, first_candidate(row, wanted), candidates);
    if (candidates.num_found > kMaxCandidates) {  // many equal ones
      const Measure measure = {true, 0, 0, 0, 1};
      const auto needed = static_cast<uint64_t>(wanted);
      const uint64_t first = place_that_reaches(row, measure, needed, candidates.partials);
      find_candidates(row, first, candidates);
    }
    sort(candidates);
    given = static_cast<int>(min(wanted, int64_t{candidates.num_found}));
  }
  for (int i = static_cast<int>(threadIdx.x); i < a.count; i += kThreads) {
    const int64_t at = blockIdx.x * a.stride + i;
    const uint64_t place = i < given ? candidates.sorted[i] : 0;
    a.logits[at] = i < given ? logit_at(place) : is_wrong ? NAN : -INFINITY;
    a.tokens[at] = i < given ? static_cast<float>(a.of.first_token + token_at(place)) : -1.0f;
  }
}

/// A CTA for so many logits of each choice.
dim3 scan_grid(const SampleCall& call) {
  return {static_cast<unsigned>(scans_of(call.vocabulary)),
          static_cast<unsigned>(call.num_choices)};
}

}  // namespace

int64_t sample_scratch_bytes(const SampleCall& call) {
  const int64_t words = chunks_of(call.vocabulary) + scans_of(call.vocabulary);
  const int64_t floats = call.has_changes ? call.vocabulary : 0;
  return call.num_choices * (words * 8 + floats * 4);
}

void run_sample(const SampleCall& call, Stream stream) {
  launch(scan, {scan_grid(call), kScanThreads}, stream, call);
  if (call.has_all_tokens) launch(weigh, {scan_grid(call), kScanThreads}, stream, call);
  launch(choose, {dim3(static_cast<unsigned>(call.num_choices)), kThreads}, stream, call);
}

void run_candidates(const CandidatesCall& call, Stream stream) {
  launch(scan, {scan_grid(call.of), kScanThreads}, stream, call.of);
  launch(give, {dim3(static_cast<unsigned>(call.of.num_choices)), kThreads}, stream, call);
}

}  // namespace subbyte::cuda
