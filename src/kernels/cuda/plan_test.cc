#include "kernels/cuda/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda/plan_test_format.h"

namespace subbyte::cuda {
namespace {

/// Decoder, bits, groups of a tile, levels of scales: what a line of weights.def says.
using WeightsLine = std::tuple<DecoderKind, int, int, int>;

std::vector<WeightsLine> weights_lines() {
  return {
#define SUBBYTE_CUDA_WEIGHTS(name, decoder, bits, groups, levels) \
  {DecoderKind::k##decoder, bits, groups, levels},
#include "kernels/cuda/weights.def"
#undef SUBBYTE_CUDA_WEIGHTS
  };
}

/// Every line of weights.def, each with the scales and zero points that take the most memory and
/// with those that models have.
std::vector<WeightFormat> all_formats() {
  using enum Format;
  std::vector<WeightFormat> formats;
  for (const Format element : {kU2, kU3, kU4, kU8}) {
    for (const int64_t group : {16, 32, 64, 128, 0}) {
      formats.push_back({element, kF16, Zero::kU8, group});
      formats.push_back({element, kF32, Zero::kU16, group});
      formats.push_back({element, kF16, Zero::kF16, group});
    }
  }
  for (const auto& [element, group] : {std::pair(kU5, 32), {kU6, 16}}) {
    formats.push_back({element, kF32, Zero::kU8, group});
    formats.push_back({element, kF16, Zero::kF16, group});
  }
  formats.push_back({kI4, kBF16, Zero::kNone, 128});
  formats.push_back({kI8, kBF16, Zero::kNone, 0});
  formats.push_back({kE2M1, kE8M0, Zero::kNone, 32});
  formats.push_back({kE2M1, kE4M3, Zero::kNone, 16});
  formats.push_back({kE4M3, kF32, Zero::kNone, 128});
  formats.push_back({kE4M3, kBF16, Zero::kNone, 0});
  for (const Format element : {kNF4, kNFL4}) {
    for (const int64_t group : {32, 64}) formats.push_back({element, kF32, Zero::kNone, group});
  }
  for (const Format element : {kNFL2, kNFL3, kNFL5}) {
    formats.push_back({element, kE4M4, Zero::kNone, 32});
    formats.push_back({element, kF32, Zero::kNone, 32});
  }
  for (const Format element : {kVQ2, kVQ4}) {
    formats.push_back({element, kE4M4, Zero::kNone, 32});
    formats.push_back({element, kF16, Zero::kNone, 32, 256});
  }
  formats.push_back({kU2, kU4, Zero::kOffsetU4, 16});
  for (const Format element : {kU4, kU5}) formats.push_back({element, kU6, Zero::kOffsetU6, 32});
  for (const Format element : {kI3, kI6}) formats.push_back({element, kI8, Zero::kNone, 16});
  formats.push_back({kIQ4, kI6, Zero::kNone, 32});
  for (const int64_t group : {16, 32}) formats.push_back({kNFL3, kU6, Zero::kNone, group});
  return formats;
}

struct NamedDevice {
  const char* name;
  Device device;
};

constexpr NamedDevice kH200 = {"H200", {90, 132, 227 * 1024, 1.755e9, 4.5e12}};
constexpr NamedDevice kA100 = {"A100", {80, 108, 163 * 1024, 1.41e9, 1.9e12}};
constexpr NamedDevice kRtx3090 = {"RTX 3090", {86, 82, 99 * 1024, 1.7e9, 0.87e12}};
constexpr NamedDevice kDevices[] = {kH200, kA100, kRtx3090};

constexpr int64_t kTokenCounts[] = {1,  2,   7,   8,   9,   16,   17,    64,
                                    65, 127, 128, 129, 256, 1000, 65536, 100000};

/// Calls visit(problem) for every format, with matrices from one output and one group of inputs to
/// a head, and all numbers of tokens.
template <class Visit>
void for_each_problem(const Visit& visit) {
  for (const WeightFormat& format : all_formats()) {
    const int64_t group = format.group_size == 0 ? 8 : format.group_size;
    for (const int64_t cols : {group, 3 * group, int64_t{1152}, int64_t{4096}, int64_t{28672}}) {
      for (const int64_t rows : {1, 17, 4096, 24576, 151936}) {
        Problem problem = {format_of(format, rows, cols)};
        for (const int64_t m : kTokenCounts) {
          problem.m = m;
          visit(problem);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

/// Every one of [0, size) belongs to exactly one part, and none is empty.
void expect_parts(const Parts& parts, int count, int64_t size) {
  int next = 0;
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(parts.begin(i), next);
    ASSERT_GE(parts.size(i), 1);
    next += parts.size(i);
  }
  ASSERT_EQ(next, size);
}

int largest(const Parts& parts) {
  return parts.size(0);
}

/// `count` ranges of `each` are just enough for `size`.
void expect_ranges(int64_t count, int64_t each, int64_t size) {
  ASSERT_GE(count * each, size);
  ASSERT_LT((count - 1) * each, size);
}

/// The largest things in shared memory, which what a CTA gets must hold: activations, 8 numbers
/// more in each row, and the partials of a CTA that has not all inputs at once.
int64_t least_shared_bytes(const Problem& problem, const Plan& plan) {
  const SmallMPartition& p = plan.small_m;
  const int64_t tokens = std::min<int64_t>(tokens_of(plan.kernel), problem.m);
  const bool is_partial = p.splits > 1 || p.chunks > 1;
  return tokens * (p.chunk_pairs * 128 + 8) * 2 +
         (is_partial ? largest(p.strips) * tokens * kStripRows * 4 : 0);
}

/// Rotated inputs, and those in another order.
int64_t workspace_of_inputs(const Problem& problem) {
  return prepares_inputs(problem.weights) ? problem.m * ((problem.weights.cols + 15) / 16 * 32) : 0;
}

void expect_small_m(const Problem& problem, const Plan& plan) {
  const SmallMPartition& p = plan.small_m;
  const int tokens = tokens_of(plan.kernel);
  ASSERT_NO_FATAL_FAILURE(expect_parts(p.strips, p.clusters, problem.weights.strips));
  ASSERT_NO_FATAL_FAILURE(expect_parts(p.pairs, p.splits, (problem.weights.tiles + 1) / 2));
  ASSERT_EQ(p.splits, 1 << p.splits_log2);
  ASSERT_TRUE(p.depth == kSmallMDepth || 2 * p.depth == kSmallMDepth);
  ASSERT_NO_FATAL_FAILURE(expect_ranges(p.chunks, p.chunk_pairs, largest(p.pairs)));
  ASSERT_NO_FATAL_FAILURE(expect_ranges(p.token_tiles, tokens, problem.m));
  ASSERT_EQ(plan.ctas, p.clusters * p.splits * p.token_tiles);
  ASSERT_EQ(plan.cluster, p.splits);
  ASSERT_EQ(plan.threads, small_m_warps(tokens) * 32);
  ASSERT_EQ(plan.workspace_bytes, workspace_of_inputs(problem));
  ASSERT_GT(plan.shared_bytes, least_shared_bytes(problem, plan));
}

void expect_gemv(const Problem& problem, const Plan& plan) {
  const GemvPartition& p = plan.gemv;
  const int64_t tokens = std::min<int64_t>(8, problem.m);
  ASSERT_NO_FATAL_FAILURE(expect_parts(p.strips, p.strip_ctas, problem.weights.strips));
  ASSERT_NO_FATAL_FAILURE(expect_ranges(p.segments, 4, problem.weights.tiles));
  ASSERT_NO_FATAL_FAILURE(expect_ranges(p.token_tiles, 8, problem.m));
  ASSERT_EQ(plan.ctas, p.strip_ctas * p.token_tiles);
  ASSERT_EQ(plan.cluster, 1);
  ASSERT_EQ(plan.threads, 512);
  ASSERT_EQ(plan.workspace_bytes, workspace_of_inputs(problem));
  ASSERT_GE(p.batch, 1);
  ASSERT_LE(p.batch, largest(p.strips));
  // Sums, and of 16 warps: activations, and codes of three segments, or two.
  const int slots = p.is_diagonal != 0 ? 2 : 3;
  ASSERT_GT(plan.shared_bytes,
            tokens * p.batch * p.segments * kStripRows * 4 +
                16 * (tokens * 256 * 2 + slots * 16 * 256 * problem.weights.bits / 8));
}

void expect_large_m(const Problem& problem, const Device& device, const Plan& plan) {
  const LargeMPartition& p = plan.large_m;
  const int64_t rows = 128;
  ASSERT_EQ(device.compute_capability, 90);
  ASSERT_EQ(p.multicast * p.splits, plan.cluster);
  ASSERT_LE(plan.cluster, 8);
  ASSERT_NO_FATAL_FAILURE(expect_parts(p.k_tiles, p.splits, problem.weights.tiles));
  ASSERT_EQ(p.tiles_n % p.multicast, 0);
  ASSERT_NO_FATAL_FAILURE(expect_ranges(p.tiles_n / p.multicast, rows * p.multicast,
                                        problem.weights.strips * kStripRows));
  ASSERT_NO_FATAL_FAILURE(expect_ranges(p.tiles_m, tokens_of(plan.kernel), problem.m));
  ASSERT_EQ(plan.ctas % plan.cluster, 0);
  ASSERT_GE(plan.ctas, 1);
  ASSERT_LE(plan.ctas, int64_t{p.tiles_n} * p.tiles_m * p.splits);
  ASSERT_LE(int64_t{p.full_waves} * p.splits, int64_t{p.tiles_n} / p.multicast * p.tiles_m);
  ASSERT_TRUE(p.full_waves == 0 || p.splits > 1);
  ASSERT_GE(p.swizzle_width, 1);
  // Every token is copied once, in boxes of whole swizzles.
  ASSERT_EQ(p.copied_tokens % 8, 0);
  ASSERT_GE(p.copied_tokens * p.multicast,
            p.tiles_m == 1 ? problem.m : int64_t{tokens_of(plan.kernel)});
  ASSERT_LE(p.copied_tokens * p.multicast, tokens_of(plan.kernel));
  // Codes of 4 tiles of all strips in each slot, and at least 4 tiles of activations.
  ASSERT_GE(p.weight_slots, 2);
  ASSERT_LE(p.weight_slots, tokens_of(plan.kernel) <= 64 ? 6 : 4);
  ASSERT_GT(plan.shared_bytes, rows * 4 * 64 * problem.weights.bits / 8 * p.weight_slots +
                                   4 * tokens_of(plan.kernel) * 64 * 2);
}

TEST(CudaWeights, are_32_lines_and_576_kernels) {
  const std::vector<WeightsLine> lines = weights_lines();
  EXPECT_EQ(lines.size(), 32u);
  EXPECT_EQ(lines.size() * 2 * kKernelKinds, 576u);
  std::set<WeightsLine> of_formats;
  for (const WeightFormat& format : all_formats()) {
    const PackedFormat packed = format_of(format, 1, 128);
    of_formats.insert(
        {packed.decoder, packed.bits, packed.groups_per_tile, gpu::in_superblocks(packed) ? 2 : 1});
  }
  EXPECT_EQ(of_formats, std::set<WeightsLine>(lines.begin(), lines.end()));
}

void expect_plan(const Problem& problem, const Device& device, const Plan& plan) {
  ASSERT_LE(plan.shared_bytes, device.shared_bytes);
  ASSERT_GT(plan.microseconds, 0);
  if (plan.kernel == KernelKind::kGemv) {
    expect_gemv(problem, plan);
  } else if (!is_large_m(plan.kernel)) {
    expect_small_m(problem, plan);
  } else {
    expect_large_m(problem, device, plan);
  }
}

TEST(CudaPlan, every_candidate_fits_and_covers_all_exactly_once) {
  for (const NamedDevice& on : kDevices) {
    for_each_problem([&](const Problem& problem) {
      for (const Plan& plan : plan_candidates(problem, on.device, {})) {
        expect_plan(problem, on.device, plan);
        // Said afterwards: words for every plan would take longer than all that is expected of it.
        ASSERT_FALSE(::testing::Test::HasFatalFailure())
            << on.name << ": " << to_string(problem, plan);
      }
    });
  }
}

void expect_error(const Result<Plan>& plan, std::string_view code, std::string_view words) {
  ASSERT_FALSE(plan.ok()) << words;
  EXPECT_EQ(plan.error().code, code);
  EXPECT_NE(plan.error().message.find(words), std::string::npos) << plan.error().message;
}

/// GPUs of 163 KiB and more have plans for all. With 99 KiB there is too little for 8-bit codes
/// with groups of 16, or of 32 with f32 scales or offsets, for 6-bit codes with such, and in
/// batch-invariant mode, whose kernel for 16 tokens must fit for one token too, for 8 bits and
/// tables of pairs of 4 bits.
bool must_have_plan(const PackedFormat& format, const Device& device, bool batch_invariant) {
  if (device.shared_bytes >= kA100.device.shared_bytes) return true;
  const bool is_table =
      (format.decoder == DecoderKind::kCodebook || format.decoder == DecoderKind::kVectors) &&
      format.bits == 4;
  const int64_t group = format.source.group_size;
  const bool has_more = format.source.scale == Format::kF32 || is_offset(format.source.zero);
  if (format.bits == 6 && has_more) return false;
  if (batch_invariant) return format.bits < 8 && !is_table;
  return format.bits < 8 || (group != 16 && !(group == 32 && has_more));
}

/// Offsets are copied, constant zero points come after them: 2 bytes, and 1 or, for 8 bits, 2.
TEST(CudaPlan, has_room_for_offsets_and_constant_zero_points) {
  for (const Format element : {Format::kI4, Format::kI8}) {
    const Problem problem = {format_of({element, Format::kF16, Zero::kBF16, 32}, 4096, 4096)};
    const int bits = problem.weights.bits;
    for (const Plan& plan : plan_candidates(problem, kH200.device, {})) {
      if (is_large_m(plan.kernel)) continue;
      if (plan.kernel == KernelKind::kGemv) {
        // Of 16 outputs and 256 inputs.
        EXPECT_EQ(plan.gemv.segment_zeros, 16 * 8 * 2);
        EXPECT_EQ(plan.gemv.slot_bytes, 16 * 256 * bits / 8 + 16 * 8 * (bits == 8 ? 6 : 5));
        continue;
      }
      // Of 16 outputs and 128 inputs: codes, and 4 groups of each output.
      const int of_group = 2 + 2 + (bits == 8 ? 2 : 1);
      EXPECT_EQ(plan.small_m.pair_zeros, 16 * 4 * 2);
      EXPECT_EQ(plan.small_m.slot_bytes, 16 * 128 * bits / 8 + 16 * 4 * of_group);
    }
  }
}

TEST(CudaPlan, there_is_one_for_every_problem_or_an_error_that_says_why) {
  for (const NamedDevice& on : kDevices) {
    for_each_problem([&](const Problem& problem) {
      for (const bool batch_invariant : {false, true}) {
        const auto plan = plan_linear(problem, on.device, {.batch_invariant = batch_invariant});
        ASSERT_TRUE(plan.ok() || !must_have_plan(problem.weights, on.device, batch_invariant))
            << on.name << ": " << plan.error().message;
        const std::string limit = std::to_string(on.device.shared_bytes / 1024);
        if (!plan) expect_error(plan, "cuda.kernel", limit + " KiB of shared memory");
      }
    });
  }
}

/// The table of pairs of 5 bits is taken where it fits, and where it does not there is another way.
TEST(CudaPlan, has_a_table_of_pairs_where_there_is_room) {
  const PackedFormat format =
      format_of({Format::kNFL5, Format::kE4M4, Zero::kNone, 32}, 8192, 8192);
  for (const NamedDevice& device : kDevices) {
    const auto plan = plan_linear({format, Number::kF16, 1}, device.device, {.kernel = "gemv"});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->gemv.is_diagonal, 1) << device.name;
    EXPECT_EQ(plan->gemv.has_byte_table, device.name == kRtx3090.name ? 0 : 1) << device.name;
  }
}

TEST(CudaPlan, is_the_cheapest_candidate) {
  for_each_problem([](const Problem& problem) {
    const Plan plan = *plan_linear(problem, kH200.device);
    for (const Plan& other : plan_candidates(problem, kH200.device, {})) {
      ASSERT_LE(plan.microseconds, other.microseconds) << to_string(problem, other);
    }
  });
}

/// Sums depend on these.
TEST(CudaPlan, divides_the_inputs_in_one_way_in_batch_invariant_mode) {
  for (const NamedDevice& on : kDevices) {
    std::tuple<int, int, int, int> first;
    for_each_problem([&](const Problem& problem) {
      const auto plan = plan_linear(problem, on.device, {.batch_invariant = true});
      const SmallMPartition& p = plan ? plan->small_m : SmallMPartition{};
      const std::tuple<int, int, int, int> now = {p.splits, p.clusters, p.depth, p.chunk_pairs};
      if (problem.m == kTokenCounts[0]) first = now;
      ASSERT_EQ(now, first) << on.name << " m " << problem.m;
      if (!plan) return;
      ASSERT_NO_FATAL_FAILURE(expect_small_m(problem, *plan));
      ASSERT_LE(plan->shared_bytes, on.device.shared_bytes);
    });
  }
}

const WeightFormat kInt4 = {Format::kU4, Format::kF16, Zero::kU8, 128};

constexpr KernelKind kAllKernels[] = {
    KernelKind::kGemv,     KernelKind::kSmallM8,   KernelKind::kSmallM16,
    KernelKind::kSmallM64, KernelKind::kLargeM16,  KernelKind::kLargeM32,
    KernelKind::kLargeM64, KernelKind::kLargeM128, KernelKind::kLargeM256};
static_assert(std::size(kAllKernels) == kKernelKinds);

TEST(CudaPlan, takes_the_kernel_that_is_named) {
  for (const int64_t m : {1, 100, 4096}) {
    const Problem problem = {format_of(kInt4, 4096, 4096), Number::kF16, m};
    for (const KernelKind kernel : kAllKernels) {
      const auto plan = plan_linear(problem, kH200.device, {.kernel = name(kernel)});
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      EXPECT_EQ(plan->kernel, kernel);
    }
  }
}

TEST(CudaPlan, refuses_kernels_that_are_not_there) {
  Problem problem = {format_of(kInt4, 4096, 4096)};
  expect_error(plan_linear(problem, kH200.device, {.kernel = "small_m32"}), "cuda.kernel",
               "\"small_m32\"; there are gemv small_m8 small_m16 small_m64 large_m16 "
               "large_m32 large_m64 large_m128 large_m256");
  for (const int capability : {80, 86, 100, 120}) {
    Device device = kH200.device;
    device.compute_capability = capability;
    expect_error(plan_linear(problem, device, {.kernel = "large_m128"}), "cuda.kernel",
                 "\"large_m128\" needs compute capability 9.0");
  }
  expect_error(
      plan_linear(problem, kH200.device, {.batch_invariant = true, .kernel = "large_m128"}),
      "cuda.kernel", "\"large_m128\" is not batch-invariant");
}

/// 9496 strips: the partials of 72 of them for 64 tokens are 360 KiB, more than a CTA has. They
/// are kept only where a CTA has its inputs in chunks.
TEST(CudaPlan, has_more_ctas_only_where_partials_do_not_fit) {
  const PlanOptions options = {.kernel = "small_m64"};
  for (const int64_t cols : {512, 4096}) {
    const Problem problem = {format_of(kInt4, 151936, cols), Number::kF16, 60};
    const std::vector<Plan> plans = plan_candidates(problem, kH200.device, options);
    ASSERT_FALSE(plans.empty());
    for (const Plan& plan : plans) {
      const bool is_partial = plan.small_m.splits > 1 || plan.small_m.chunks > 1;
      EXPECT_EQ(plan.small_m.clusters > 132, is_partial) << to_string(problem, plan);
    }
    EXPECT_EQ(plans.front().small_m.chunks > 1, cols == 4096);
  }
}

TEST(CudaPlan, refuses_a_device_with_too_little_shared_memory) {
  Device device = kRtx3090.device;
  device.shared_bytes = 16 * 1024;
  expect_error(plan_linear({format_of(kInt4, 4096, 4096)}, device), "cuda.kernel",
               "16 KiB of shared memory");
}

TEST(CudaPlan, refuses_sizes_beyond_31_bits) {
  Problem problem = {format_of(kInt4, 128, 128)};
  for (const int64_t m : {int64_t{0}, int64_t{-1}, int64_t{1} << 31}) {
    problem.m = m;
    expect_error(plan_linear(problem, kH200.device), "cuda.shape", std::to_string(m));
  }
  problem.m = 1;
  problem.weights.rows = int64_t{1} << 31;
  expect_error(plan_linear(problem, kH200.device), "cuda.shape", "2147483648");
}

TEST(CudaPlan, needs_a_workspace_where_tma_cannot_read_x) {
  Problem problem = {format_of(kInt4, 4096, 4096 + 128), Number::kF16, 1000};
  const PlanOptions large_m = {.kernel = "large_m128"};
  EXPECT_EQ(plan_linear(problem, kH200.device, large_m)->workspace_bytes, 0);
  problem.aligned_x = false;
  EXPECT_EQ(plan_linear(problem, kH200.device, large_m)->workspace_bytes, 1000 * 4224 * 2);
}

TEST(CudaPlan, reads_as_a_line) {
  for (const int64_t m : {1, 4096}) {
    const Problem problem = {format_of(kInt4, 6144, 4096), Number::kF16, m};
    for (const Plan& plan : plan_candidates(problem, kH200.device, {})) {
      const std::string text = to_string(problem, plan);
      const std::string begin = std::string(name(plan.kernel)) + " 4096x6144 " + to_string(kInt4) +
                                " m=" + std::to_string(m) + ": ";
      EXPECT_TRUE(text.starts_with(begin)) << text;
      EXPECT_NE(text.find(" KiB, expected "), std::string::npos) << text;
      EXPECT_TRUE(text.ends_with(" us")) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace subbyte::cuda
