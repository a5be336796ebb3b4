// Sums over the GPUs of this machine, each of which is a rank on a thread of its own.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/exchange/peer_memory.h"
#include "kernels/cuda/exchange/peer_rows.h"
#include "kernels/cuda/exchange/peer_sum.h"
#include "ops_gpu.h"

namespace subbyte::testing {
namespace {

using Numbers = std::vector<float>;

int num_gpus() {
  int gpus = 0;
  return cudaGetDeviceCount(&gpus) == cudaSuccess ? gpus : 0;
}

/// Numbers of rows in the memory of the current device.
class RowNumbers {
 public:
  explicit RowNumbers(const std::vector<int32_t>& rows) : bytes_(as_bytes(rows)) {}
  const int32_t* data() const { return reinterpret_cast<const int32_t*>(bytes_.data()); }

 private:
  DeviceBytes bytes_;
};

class GpuExchange : public ::testing::Test {
 protected:
  void SetUp() override {
    const int ranks = std::min(num_gpus(), cuda::PeerGroup::kMaxRanks);
    if (ranks < 2) GTEST_SKIP() << "one GPU: sums over ranks take two at least";
    std::vector<int> devices;
    for (int i = 0; i < ranks; ++i) devices.push_back(i);
    auto connected = cuda::PeerMemory::connect(devices);
    if (!connected.ok() && connected.error().code == "cuda.peer_access") {
      GTEST_SKIP() << connected.error().message;
    }
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    memory_ = std::move(connected).value();
    ranks_ = ranks;
    all_ = std::make_unique<std::barrier<>>(ranks);
  }

  /// Calls work(rank, stream) on a thread for each GPU.
  void on_all(const std::function<void(int rank, cudaStream_t stream)>& work) const {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&work, rank] {
        expect_ok(cudaSetDevice(rank));
        cudaStream_t stream = nullptr;
        expect_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        work(rank, stream);
        expect_ok(cudaStreamSynchronize(stream));
        expect_ok(cudaStreamDestroy(stream));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// Waits until all have what memory they want: who allocates some may wait for kernels of others.
  void meet() const { all_->arrive_and_wait(); }

  Numbers numbers_of(int rank, int64_t size, Element element) const {
    return rounded(normals(size, 3, 50 + rank), element);
  }
  /// The sums in the order of ranks, rounded once.
  Numbers sums(int64_t size, Element element) const {
    Numbers sums = numbers_of(0, size, element);
    for (int rank = 1; rank < ranks_; ++rank) {
      const Numbers more = numbers_of(rank, size, element);
      for (int64_t i = 0; i < size; ++i) sums[i] += more[i];
    }
    return rounded(sums, element);
  }

  std::unique_ptr<cuda::PeerMemory> memory_;
  std::unique_ptr<std::barrier<>> all_;
  int ranks_ = 0;
};

TEST_F(GpuExchange, sums_are_those_in_the_order_of_ranks_on_all_gpus) {
  for (const Element element : kElements) {
    for (const int64_t size : {8, 1000, 4096, 65544, 100000, 1 << 20, 5000008}) {
      const Numbers expected = sums(size, element);
      on_all([&](int rank, cudaStream_t stream) {
        const DeviceNumbers x(numbers_of(rank, size, element), element);
        cuda::PeerSumCall call;
        call.x = call.y = x.data();
        call.size = size;
        call.element = element;
        EXPECT_TRUE(cuda::serves_peer_sum(call));
        meet();
        cuda::run_peer_sum(call, memory_->of_rank(rank), stream);
        expect_ok(cudaStreamSynchronize(stream));
        EXPECT_EQ(x.read(), expected) << size << " " << name_of(element) << " rank " << rank;
      });
    }
  }
}

TEST_F(GpuExchange, replays_of_a_graph_sum_what_is_there) {
  on_all([&](int rank, cudaStream_t stream) {
    constexpr int64_t kSizes[] = {4096, 1 << 18};
    const DeviceNumbers x(Numbers(kSizes[1], 1.0f), Element::kF32);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    expect_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (const int64_t size : kSizes) {
      cuda::PeerSumCall call;
      call.x = call.y = x.data();
      call.size = size;
      call.element = Element::kF32;
      cuda::run_peer_sum(call, memory_->of_rank(rank), stream);
    }
    expect_ok(cudaStreamEndCapture(stream, &graph));
    expect_ok(cudaGraphInstantiate(&executable, graph, 0));
    meet();
    for (int replay = 0; replay < 3; ++replay) expect_ok(cudaGraphLaunch(executable, stream));
    expect_ok(cudaStreamSynchronize(stream));
    const auto ranks = static_cast<float>(ranks_);
    const Numbers found = x.read();
    EXPECT_EQ(found.front(), std::pow(ranks, 6.0f));
    EXPECT_EQ(found.back(), std::pow(ranks, 3.0f));
    expect_ok(cudaGraphExecDestroy(executable));
    expect_ok(cudaGraphDestroy(graph));
  });
}

TEST_F(GpuExchange, a_sum_joined_with_a_norm_gives_the_bits_of_both) {
  for (const Element element : kHalves) {
    for (const int64_t cols : {64, 4096, 5120, 8192}) {
      for (const int64_t rows : {1, 7, 128}) {
        on_all([&](int rank, cudaStream_t stream) {
          const DeviceNumbers delta(numbers_of(rank, rows * cols, element), element);
          const DeviceNumbers weight(normals(cols, 1, 60), Element::kF32);
          const DeviceNumbers two(Numbers{2}, Element::kF32);
          std::vector<int32_t> order(rows);
          for (int64_t i = 0; i < rows; ++i) order[i] = static_cast<int32_t>(rows - 1 - i);
          const RowNumbers reversed(order);
          Numbers results[2][2];
          for (const bool is_joined : {false, true}) {
            const DeviceNumbers x(normals(rows * cols, 2, 61), Element::kF32);
            const DeviceNumbers y(Numbers(rows * cols), element);
            const DeviceNumbers sum(Numbers(rows * cols), element);
            cuda::AddNormCall call;
            call.y = y.data();
            call.x = reinterpret_cast<float*>(x.data());
            call.delta = is_joined ? delta.data() : sum.data();
            call.weight = reinterpret_cast<const float*>(weight.data());
            call.num_rows = rows;
            call.cols = cols;
            call.eps = 1e-6f;
            call.factor = 0.5f;
            if (rows > 1) call.rows = reversed.data();
            if (cols == 4096) call.scale = two.data<float>();
            call.element = element;
            const cuda::PeerGroup group = memory_->of_rank(rank);
            meet();
            if (is_joined) {
              EXPECT_TRUE(cuda::serves_peer_sum_norm(call));
              cuda::run_peer_sum_norm(call, group, stream);
            } else {
              cuda::run_peer_sum({sum.data(), delta.data(), rows * cols, element}, group, stream);
              cuda::run_add_norm(call, stream);
            }
            expect_ok(cudaStreamSynchronize(stream));
            results[is_joined][0] = x.read();
            results[is_joined][1] = y.read();
          }
          EXPECT_EQ(results[0][0], results[1][0]) << rows << " x " << cols;
          EXPECT_EQ(results[0][1], results[1][1]) << rows << " x " << cols;
        });
      }
    }
  }
}

TEST_F(GpuExchange, forms_may_take_turns) {
  on_all([&](int rank, cudaStream_t stream) {
    constexpr int64_t kCols = 5120;
    const auto ranks = static_cast<float>(ranks_);
    const DeviceNumbers weight(Numbers(kCols, 1.0f), Element::kF32);
    for (int turn = 0; turn < 20; ++turn) {
      const int64_t size = turn % 3 == 0 ? 4096 : turn % 3 == 1 ? 40000 : 1 << 20;
      const DeviceNumbers x(Numbers(size, 1.0f), Element::kF16);
      const DeviceNumbers residual(Numbers(3 * kCols), Element::kF32);
      const DeviceNumbers delta(Numbers(3 * kCols, 1.0f), Element::kF16);
      const DeviceNumbers y(3 * kCols, Element::kF16);
      cuda::AddNormCall call;
      call.y = y.data();
      call.x = residual.data<float>();
      call.delta = delta.data();
      call.weight = weight.data<float>();
      call.num_rows = 1 + turn % 3;
      call.cols = kCols;
      call.element = Element::kF16;
      meet();
      cuda::run_peer_sum({x.data(), x.data(), size, Element::kF16}, memory_->of_rank(rank), stream);
      cuda::run_peer_sum_norm(call, memory_->of_rank(rank), stream);
      expect_ok(cudaStreamSynchronize(stream));
      EXPECT_EQ(x.read(), Numbers(size, ranks)) << turn;
      EXPECT_EQ(residual.read()[call.num_rows * kCols - 1], ranks) << turn;
    }
    EXPECT_TRUE(memory_->check(rank).ok());
  });
}

/// Of 1 to 128 rows, long and short ones, so that CTAs have exchanged unequally often, also where
/// rounds begin again.
TEST_F(GpuExchange, rows_with_their_norm_follow_each_other) {
  for (const uint32_t last : {0u, 0xffffffc0u}) {
    on_all([&](int rank, cudaStream_t stream) {
      constexpr int64_t kMaxRows = 128;
      constexpr int64_t kMaxCols = 8192;
      std::byte* const memory = memory_->of_rank(rank).memory[rank];
      expect_ok(cudaMemset(memory, 0, cuda::PeerRows::bytes(ranks_)));
      const std::vector<uint32_t> rounds(cuda::PeerRows::kCtas, last);
      expect_ok(cudaMemcpy(memory + 4 * cuda::PeerRows::counter(0, ranks_), rounds.data(),
                           rounds.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
      const DeviceNumbers weight(Numbers(kMaxCols, 1.0f), Element::kF32);
      const DeviceNumbers residual(Numbers(kMaxRows * kMaxCols), Element::kF32);
      const DeviceNumbers delta(Numbers(kMaxRows * kMaxCols, 1.0f + rank), Element::kF16);
      const DeviceNumbers y(kMaxRows * kMaxCols, Element::kF16);
      const auto of_call = static_cast<float>(ranks_ * (ranks_ + 1) / 2);
      float sum = 0;
      meet();
      for (int turn = 0; turn < 200; ++turn) {
        cuda::AddNormCall call;
        call.y = y.data();
        call.x = residual.data<float>();
        call.delta = delta.data();
        call.weight = weight.data<float>();
        call.num_rows = 1 + turn * 29 % kMaxRows;
        call.cols = turn % 3 == 0 ? 64 : turn % 3 == 1 ? 5120 : kMaxCols;
        call.element = Element::kF16;
        cuda::run_peer_sum_norm(call, memory_->of_rank(rank), stream);
        sum += of_call;
      }
      expect_ok(cudaStreamSynchronize(stream));
      const Numbers found = residual.read();
      EXPECT_EQ(Numbers(found.begin(), found.begin() + 64), Numbers(64, sum));
      EXPECT_TRUE(memory_->check(rank).ok());
    });
  }
}

/// A number whose bits are all set is no number that is not there yet.
TEST_F(GpuExchange, rows_may_have_nans) {
  for (const Element element : kHalves) {
    on_all([&](int rank, cudaStream_t stream) {
      constexpr int64_t kCols = 64;
      const DeviceNumbers weight(Numbers(kCols, 1.0f), Element::kF32);
      const DeviceNumbers residual(Numbers(kCols), Element::kF32);
      const DeviceNumbers delta(Numbers(kCols, 1.0f), element);
      const DeviceNumbers y(kCols, element);
      expect_ok(cudaMemset(delta.data(), 0xff, rank == 1 ? 16 : 0));
      cuda::AddNormCall call;
      call.y = y.data();
      call.x = residual.data<float>();
      call.delta = delta.data();
      call.weight = weight.data<float>();
      call.num_rows = 1;
      call.cols = kCols;
      call.element = element;
      meet();
      cuda::run_peer_sum_norm(call, memory_->of_rank(rank), stream);
      expect_ok(cudaStreamSynchronize(stream));
      const Numbers found = residual.read();
      for (int64_t i = 0; i < kCols; ++i) {
        const bool is_right = i < 8 ? std::isnan(found[i]) : found[i] == static_cast<float>(ranks_);
        EXPECT_TRUE(is_right) << i << ": " << found[i] << ", rank " << rank;
      }
    });
  }
}

/// Words that few sums have would else be taken for those of 2^32 rounds ago, or of none.
TEST_F(GpuExchange, rounds_are_counted_anew_after_the_last) {
  constexpr int kCtas = cuda::PeerLayout::kWordCtas + cuda::PeerLayout::kPartCtas;
  constexpr int64_t kSmall = 8;
  constexpr int64_t kLarge = 65536;
  for (const uint32_t last : {0x7ffffffeU, 0xfffffffeU}) {
    on_all([&](int rank, cudaStream_t stream) {
      const cuda::PeerGroup group = memory_->of_rank(rank);
      const std::vector<uint32_t> rounds(kCtas, last);
      expect_ok(cudaMemcpy(group.memory[rank], rounds.data(), kCtas * sizeof(uint32_t),
                           cudaMemcpyHostToDevice));
      for (const int64_t size : {kSmall, kLarge, kLarge, kLarge, kSmall}) {
        const DeviceNumbers x(numbers_of(rank, size, Element::kF32), Element::kF32);
        meet();
        if (rank > 0) meet();  // the first one waits for what the others have not sent
        cuda::run_peer_sum({x.data(), x.data(), size, Element::kF32}, group, stream);
        if (rank == 0) meet();
        expect_ok(cudaStreamSynchronize(stream));
        EXPECT_EQ(x.read(), sums(size, Element::kF32)) << last << " " << size << " rank " << rank;
      }
    });
  }
}

TEST_F(GpuExchange, a_rank_that_does_not_come_is_lost_after_some_seconds) {
  on_all([&](int rank, cudaStream_t stream) {
    if (rank == 1) return;
    const DeviceNumbers x(Numbers(4096), Element::kF16);
    for (int call = 0; call < 3; ++call) {
      cuda::run_peer_sum({x.data(), x.data(), 4096, Element::kF16}, memory_->of_rank(rank), stream);
    }
    expect_ok(cudaStreamSynchronize(stream));
    EXPECT_EQ(memory_->check(rank).error().code, "exchange.lost");
  });
  EXPECT_TRUE(memory_->check(1).ok());
}

}  // namespace
}  // namespace subbyte::testing
