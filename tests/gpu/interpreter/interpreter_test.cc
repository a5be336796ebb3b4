// PTX of a few lines, whose results are known without it.
#include "interpreter.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "report.h"
#include "values.h"

namespace subbyte::interpreter {

// What the runtime does for whole programs: here all memory is of the test.
void check_memory(uint64_t, size_t) {}
const TensorMap* tensor_at(uint64_t) {
  return nullptr;
}

namespace {

constexpr int kStopped = 70;  // the status of a process that stop() ended

const char kHead[] = R"(
.version 9.0
.target sm_90a
.address_size 64
.visible .entry test(
.param .u64 test_param_0
)
{
.reg .pred %p<9>;
.reg .b32 %r<99>;
.reg .b64 %rd<9>;
ld.param.u64 %rd1, [test_param_0];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 4;
add.s64 %rd3, %rd1, %rd2;
)";

/// The numbers in memory, one a thread, after a kernel of one cluster with this body: %r1 is the
/// thread and %rd3 where its number is.
std::vector<uint32_t> run(const std::string& body, std::vector<uint32_t> numbers,
                          uint32_t ctas = 1) {
  const ModulePointer module = make_module(kHead + body + "\nret;\n}\n");
  const uint32_t* address = numbers.data();
  std::vector<uint8_t> argument(sizeof address);
  std::memcpy(argument.data(), &address, sizeof address);
  const Launch launch{{ctas, 1, 1}, {static_cast<uint32_t>(numbers.size()), 1, 1}, {ctas, 1, 1}, 0};
  run_kernel(*module, "test", launch, {argument});
  return numbers;
}

std::vector<uint32_t> counted(size_t count) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

TEST(Interpreter, loops_and_branches) {
  // The sum of the numbers up to the thread's.
  const auto sums = run(R"(
mov.u32 %r2, 0;
mov.u32 %r3, 0;
$again:
add.u32 %r2, %r2, %r3;
add.u32 %r3, %r3, 1;
setp.le.u32 %p1, %r3, %r1;
@%p1 bra $again;
st.global.u32 [%rd3], %r2;)",
                        counted(40));
  for (uint32_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], i * (i + 1) / 2);
}

TEST(Interpreter, sums_a_warp_by_shuffles) {
  const auto sums = run(R"(
mov.u32 %r2, %r1;
shfl.sync.bfly.b32 %r3, %r2, 16, 31, -1;
add.u32 %r2, %r2, %r3;
shfl.sync.bfly.b32 %r3, %r2, 8, 31, -1;
add.u32 %r2, %r2, %r3;
shfl.sync.bfly.b32 %r3, %r2, 4, 31, -1;
add.u32 %r2, %r2, %r3;
shfl.sync.bfly.b32 %r3, %r2, 2, 31, -1;
add.u32 %r2, %r2, %r3;
shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
add.u32 %r2, %r2, %r3;
st.global.u32 [%rd3], %r2;)",
                        counted(64));
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], i < 32 ? 496 : 1520);
}

TEST(Interpreter, exchanges_numbers_over_a_barrier) {
  const auto turned = run(R"(
.shared .align 4 .b8 numbers[512];
mov.u32 %r2, numbers;
shl.b32 %r3, %r1, 2;
add.u32 %r4, %r2, %r3;
st.shared.u32 [%r4], %r1;
bar.sync 0;
sub.u32 %r5, 508, %r3;
add.u32 %r4, %r2, %r5;
ld.shared.u32 %r6, [%r4];
st.global.u32 [%rd3], %r6;)",
                          counted(128));
  for (uint32_t i = 0; i < turned.size(); ++i) EXPECT_EQ(turned[i], 127 - i);
}

const char kCopies[] = R"(
.shared .align 16 .b8 numbers[128];
mov.u32 %r2, numbers;
shl.b32 %r3, %r1, 2;
add.u32 %r4, %r2, %r3;
cp.async.ca.shared.global [%r4], [%rd3], 4;
cp.async.commit_group;
)";

TEST(Interpreter, copies_arrive_when_they_are_waited_for) {
  const std::string use =
      "ld.shared.u32 %r5, [%r4];\nadd.u32 %r5, %r5, 1;\n"
      "st.global.u32 [%rd3], %r5;";
  const auto waited = run(kCopies + ("cp.async.wait_group 0;\n" + use), counted(32));
  for (uint32_t i = 0; i < waited.size(); ++i) EXPECT_EQ(waited[i], i + 1);
  // Shared memory is full of ones at first.
  const auto early = run(kCopies + use, counted(32));
  for (const uint32_t number : early) EXPECT_EQ(number, 0u);
}

/// A has ones where row and column are the same, in its first 8 rows, and all numbers of B are 2.
TEST(Interpreter, multiplies_matrices_of_16_bits) {
  // Lane 4 r + c has columns 2 c and 2 c + 1 of row r of A in its first register.
  const auto products = run(R"(
.reg .f32 %f<9>;
mov.u32 %r10, %laneid;
shr.u32 %r11, %r10, 2;
and.b32 %r12, %r10, 3;
shl.b32 %r13, %r12, 1;
add.u32 %r14, %r13, 1;
mov.u32 %r15, 0;
setp.eq.u32 %p1, %r11, %r13;
setp.eq.u32 %p2, %r11, %r14;
selp.b32 %r16, 0x3f80, 0, %p1;
selp.b32 %r17, 0x3f800000, %r16, %p2;
mov.u32 %r18, 0x40004000;
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4},
  {%r17, %r15, %r15, %r15}, {%r18, %r18}, {0, 0, 0, 0};
cvt.rzi.u32.f32 %r19, %f2;
st.global.u32 [%rd3], %r19;)",
                            counted(32));
  for (const uint32_t number : products) EXPECT_EQ(number, 2u);
}

/// The f16 that is the number of an E4M3 code (OCP 8-bit Floating Point, 5.3): exponents differ by
/// 8, codes below 8 are multiples of 2^-9, and 127 is NaN.
uint32_t half_of_e4m3(uint32_t code) {
  constexpr uint32_t kMultiples[] = {0, 0x1800, 0x1c00, 0x1e00, 0x2000, 0x2100, 0x2200, 0x2300};
  const uint32_t size = code & 127;
  if (size == 127) return 0x7fff;
  return (code & 128) << 8 | (size < 8 ? kMultiples[size] : (size << 7) + (8 << 10));
}

TEST(Interpreter, converts_every_pair_of_8_bits_to_16) {
  // A thread has a number of 16 bits as the upper half of its own.
  std::vector<uint32_t> numbers = counted(256);
  for (uint32_t& number : numbers) number = number << 24 | (255 - number) << 16 | 0x1234;
  const auto halves = run(R"(
ld.global.u32 %r2, [%rd3];
{ .reg .b16 low, high;
mov.b32 {low, high}, %r2;
cvt.rn.f16x2.e4m3x2 %r3, high; }
st.global.u32 [%rd3], %r3;)",
                          numbers);
  for (uint32_t i = 0; i < 256; ++i) {
    EXPECT_EQ(halves[i], half_of_e4m3(i) << 16 | half_of_e4m3(255 - i)) << i;
  }
}

TEST(Interpreter, stops_at_misaligned_addresses) {
  EXPECT_EXIT(run("add.s64 %rd3, %rd3, 2;\nst.global.u32 [%rd3], %r1;", counted(1)),
              ::testing::ExitedWithCode(kStopped), "misaligned address.*st.global.u32.*of test");
}

TEST(Interpreter, stops_at_arrivals_that_are_not_expected) {
  EXPECT_EXIT(run(R"(
.shared .align 8 .b8 barrier[8];
mov.u32 %r2, barrier;
mbarrier.init.shared.b64 [%r2], 1;
mbarrier.arrive.shared.b64 _, [%r2], 2;)",
                  counted(1)),
              ::testing::ExitedWithCode(kStopped), "more arrivals than an mbarrier expects");
}

/// Rank 0 has what both threads of rank 1 have stored there.
constexpr char kStoresInRank0[] = R"(
.shared .align 4 .b32 word[2];
mov.u32 %r2, word;
shl.b32 %r3, %r1, 2;
add.u32 %r2, %r2, %r3;
mov.u32 %r4, %cluster_ctarank;
setp.eq.u32 %p1, %r4, 0;
add.u32 %r5, %r1, 7;
mapa.shared::cluster.u32 %r6, %r2, 0;
barrier.cluster.arrive;
barrier.cluster.wait;
@!%p1 STORE [%r6], %r5;
barrier.cluster.arrive;
barrier.cluster.wait;
@%p1 ld.shared.u32 %r7, [%r2];
@%p1 st.global.u32 [%rd3], %r7;
)";

std::string with_store(const char* store) {
  std::string body = kStoresInRank0;
  return body.replace(body.find("STORE"), 5, store);
}

TEST(Interpreter, stores_in_another_cta_of_the_cluster) {
  EXPECT_EQ(run(with_store("st.shared::cluster.u32"), counted(2), 2),
            (std::vector<uint32_t>{7, 8}));
}

TEST(Interpreter, stops_at_addresses_of_another_cta_as_those_of_the_own) {
  EXPECT_EXIT(run(with_store("st.shared.u32"), counted(2), 2), ::testing::ExitedWithCode(kStopped),
              "an address of another CTA's shared memory");
}

TEST(Interpreter, stops_when_threads_wait_for_ever) {
  EXPECT_EXIT(run("setp.eq.u32 %p1, %r1, 0;\n@%p1 bra $end;\nbar.sync 0, 64;\n$end:", counted(64)),
              ::testing::ExitedWithCode(kStopped), "hangs");
}

TEST(Interpreter, stops_at_instructions_that_it_does_not_know) {
  EXPECT_EXIT(run("vadd4.u32.u32.u32 %r2, %r1, %r1, %r1;", counted(1)),
              ::testing::ExitedWithCode(kStopped), "no such instruction is known: vadd4");
}

// The codes are those of the formats' specifications (OCP 8-bit Floating Point, 5.3).
TEST(Values, rounds_to_8_bits) {
  EXPECT_EQ(rounded_bits(Type::kE4m3, 1.0), 0x38u);
  EXPECT_EQ(rounded_bits(Type::kE4m3, -448.0), 0xfeu);
  EXPECT_EQ(rounded_bits(Type::kE4m3, 1e30), 0x7eu);
  EXPECT_EQ(rounded_bits(Type::kE4m3, 0.001953125), 0x01u);  // 2^-9, the smallest one
  EXPECT_EQ(rounded_bits(Type::kE4m3, 1.0625), 0x38u);       // half way: the even code
  EXPECT_EQ(rounded_bits(Type::kE5m2, 57344.0), 0x7bu);
  EXPECT_EQ(rounded_bits(Type::kE5m2, -1.0), 0xbcu);
}

TEST(Values, rounds_to_16_bits_once) {
  EXPECT_EQ(rounded_bits(Type::kF16, 65504.0), 0x7bffu);
  EXPECT_EQ(rounded_bits(Type::kBf16, 1.0), 0x3f80u);
  EXPECT_EQ(rounded_bits(Type::kBf16, 1.00390625), 0x3f80u);          // half way: the even code
  EXPECT_EQ(rounded_bits(Type::kBf16, 1.00390625 + 1e-12), 0x3f81u);  // f32 would be half way
}

}  // namespace
}  // namespace subbyte::interpreter
