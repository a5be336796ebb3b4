// Sums over ranks within the kernel of a step, on one GPU: this rank runs, and what others would
// send lies there already.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "gpu_linear.h"
#include "kernels/cuda/planning.h"
#include "kernels/cuda/step/layout.h"
#include "kernels/cuda/step/step.h"

namespace subbyte::testing {
namespace {

constexpr cuda::Number kNumber = cuda::Number::kF16;
constexpr WeightFormat kAwq = {Format::kU4, Format::kF16, Zero::kU8, 128};
constexpr int64_t kRows = 4000;  // strips for all multiprocessors, and the last is a short one
constexpr int64_t kCols = 384;
constexpr uint32_t kBaseRound = 40;

/// What rank `rank` gives for number `at` in a round.
float number_of(int rank, uint32_t round, int64_t at) {
  return static_cast<float>((at * 7 + rank * 5 + round * 3) % 64) * 0.25f;
}

/// The memory of all ranks of a group, which is on one GPU here.
class PeersHere {
 public:
  PeersHere(int rank, int ranks) {
    group_.rank = rank;
    group_.ranks = ranks;
    for (int i = 0; i < ranks; ++i) {
      memory_.push_back(std::make_unique<DeviceBytes>(cuda::PeerLayout::bytes(ranks), 0));
      group_.memory[i] = memory_.back()->data();
    }
  }

  const cuda::PeerGroup& group() const { return group_; }

  /// Writes what the others give in that round.
  void arrive(uint32_t round, int64_t count) const {
    for (int from = 0; from < group_.ranks; ++from) {
      if (from == group_.rank) continue;
      std::vector<uint64_t> words(count);
      for (int64_t i = 0; i < count; ++i) {
        const float number = number_of(from, round, i);
        uint32_t bits = 0;
        std::memcpy(&bits, &number, sizeof bits);
        words[i] = uint64_t{round} << 32 | bits;
      }
      std::byte* const to =
          memory_[group_.rank]->data() + cuda::PeerLayout::sums(round, from, group_.ranks);
      expect_ok(cudaMemcpy(to, words.data(), words.size() * 8, cudaMemcpyHostToDevice));
    }
  }

  /// The words that this rank has left in the memory of another.
  std::vector<uint64_t> sent_to(int other, uint32_t round, int64_t count) const {
    std::vector<uint64_t> words(count);
    const std::byte* const from =
        memory_[other]->data() + cuda::PeerLayout::sums(round, group_.rank, group_.ranks);
    expect_ok(cudaMemcpy(words.data(), from, words.size() * 8, cudaMemcpyDeviceToHost));
    return words;
  }

  bool is_lost() const {
    uint32_t lost = 0;
    const std::byte* const word = memory_[group_.rank]->data() + cuda::PeerLayout::kLost;
    expect_ok(cudaMemcpy(&lost, word, sizeof lost, cudaMemcpyDeviceToHost));
    return lost != 0;
  }

 private:
  std::vector<std::unique_ptr<DeviceBytes>> memory_;
  cuda::PeerGroup group_;
};

/// Adds the same product to a stream of ones twice, each time with what the others give.
class TwoSums {
 public:
  explicit TwoSums(int64_t m)
      : m_(m),
        matrix_(random_matrix(kAwq, kRows, kCols, Contents::kExact, 3)),
        packed_(matrix_.view),
        x_(to_numbers(random_inputs(m, kCols, Contents::kExact, 4), kNumber)),
        product_(multiply_in_double(matrix_.view, to_floats(x_, kNumber), m)) {}

  int64_t count() const { return m_ * kRows; }
  /// This rank's part of number `at`.
  float part(int64_t at) const { return static_cast<float>(product_.y[at]); }

  /// The stream after both.
  std::vector<float> run(const cuda::PeerGroup& group) const {
    const cuda::WeightArguments arguments = packed_.arguments(kNumber);
    std::optional<cuda::StepLayout> layout(std::in_place, this_device(), static_cast<int>(m_));
    for (int i = 0; i < 2 && layout; ++i)
      layout = layout->with_product(packed_.format(), arguments);
    if (!layout) return {};
    const DeviceBytes x(bytes_of(x_));
    const std::vector<float> ones(count(), 1.0f);
    const DeviceBytes stream(std::as_bytes(std::span(ones)));
    std::vector<cuda::StepOperation> operations(2);
    for (uint32_t i = 0; i < 2; ++i) {
      cuda::StepProduct& p = operations[i].product;
      p.weights = arguments;
      p.x = {x.data(), kCols, cuda::StepInput::Kind::kNumbers, 0, 1};
      p.one_group = cuda::pair_is_one_group(packed_.format()) ? 1 : 0;
      p.y_stride = kRows;
      p.residual = reinterpret_cast<float*>(stream.data());
      p.exchange = i + 1;
    }
    const std::vector<cuda::StepWeights> weights(2, layout->weights(packed_.format(), arguments));
    const DeviceBytes device_operations(std::as_bytes(std::span(operations)));
    const DeviceBytes device_weights(std::as_bytes(std::span(weights)));
    const DeviceBytes places(m_ * sizeof(cuda::RowPlace));
    cuda::StepProgram program = {};
    program.operations = reinterpret_cast<const cuda::StepOperation*>(device_operations.data());
    program.weights = reinterpret_cast<const cuda::StepWeights*>(device_weights.data());
    program.num_operations = program.num_products = 2;
    program.m = static_cast<int32_t>(m_);
    program.places = reinterpret_cast<const cuda::RowPlace*>(places.data());
    program.shared = layout->shared();
    program.peers = group;
    program.base_round = kBaseRound;
    const Status status =
        cuda::run_step(program, packed_.format(), kNumber, this_device(), nullptr);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    expect_ok(cudaDeviceSynchronize());
    const std::vector<std::byte> bytes = stream.read();
    std::vector<float> sums(count());
    std::memcpy(sums.data(), bytes.data(), bytes.size());
    return sums;
  }

 private:
  int64_t m_;
  RandomMatrix matrix_;
  PackedOnDevice packed_;
  std::vector<uint16_t> x_;
  Oracle product_;
};

class GpuStepPeers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::StepLayout::supports(this_device(), 1)) {
      GTEST_SKIP() << "the kernel of a step needs compute capability 9.0";
    }
  }
};

/// Numbers are such that all sums are exact.
TEST_F(GpuStepPeers, products_add_the_parts_of_all_ranks) {
  for (const int64_t m : {1, 4}) {
    const TwoSums sums(m);
    for (const int ranks : {2, 4}) {
      for (const int rank : {0, 1}) {
        const PeersHere peers(rank, ranks);
        for (const uint32_t round : {kBaseRound + 1, kBaseRound + 2}) {
          peers.arrive(round, sums.count());
        }
        const std::vector<float> found = sums.run(peers.group());
        ASSERT_EQ(std::ssize(found), sums.count());
        for (int64_t i = 0; i < sums.count(); ++i) {
          float expected = 1 + 2 * sums.part(i);
          for (int other = 0; other < ranks; ++other) {
            if (other == rank) continue;
            expected += number_of(other, kBaseRound + 1, i) + number_of(other, kBaseRound + 2, i);
          }
          ASSERT_EQ(found[i], expected) << i << " of rank " << rank << " of " << ranks;
        }
        EXPECT_FALSE(peers.is_lost());
      }
    }
  }
}

TEST_F(GpuStepPeers, parts_are_in_the_memory_of_all_others) {
  const TwoSums sums(1);
  const PeersHere peers(1, 3);
  for (const uint32_t round : {kBaseRound + 1, kBaseRound + 2}) {
    peers.arrive(round, sums.count());
  }
  ASSERT_EQ(std::ssize(sums.run(peers.group())), sums.count());
  for (const int other : {0, 2}) {
    for (const uint32_t round : {kBaseRound + 1, kBaseRound + 2}) {
      const std::vector<uint64_t> words = peers.sent_to(other, round, sums.count());
      for (int64_t i = 0; i < sums.count(); ++i) {
        ASSERT_EQ(words[i] >> 32, round) << i;
        const auto bits = static_cast<uint32_t>(words[i]);
        float part = 0;
        std::memcpy(&part, &bits, sizeof part);
        ASSERT_EQ(part, sums.part(i)) << i;
      }
    }
  }
}

TEST_F(GpuStepPeers, a_rank_that_does_not_come_is_lost_after_some_seconds) {
  const TwoSums sums(1);
  const PeersHere peers(0, 2);
  peers.arrive(kBaseRound + 1, sums.count());
  ASSERT_EQ(std::ssize(sums.run(peers.group())), sums.count());
  EXPECT_TRUE(peers.is_lost());
}

}  // namespace
}  // namespace subbyte::testing
