// Each test starts mpirun, which runs the same test in several processes.

#include "exchange/mpi_exchange.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace subbyte {
namespace {

bool has_mpirun() {
  return std::system("command -v mpirun >/dev/null 2>&1") == 0;
}

std::string name_of_this_test() {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(test->test_suite_name()) + "." + test->name();
}

// Open MPI keeps memory when it ends, and takes locks of its components in two orders.
constexpr const char* kOfSanitizers =
    "ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=detect_deadlocks=0 ";

/// Runs this test in so many processes; the exit status of mpirun, and what was printed in `log`.
int run_under_mpirun(int ranks, std::string& log) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const auto file =
      std::filesystem::temp_directory_path() / ("mpi_exchange_test." + std::to_string(::getpid()));
  const std::string command =
      std::string(kOfSanitizers) +
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun --oversubscribe "
      "-n " +
      std::to_string(ranks) + " '" + program.string() + "' --gtest_filter=" + name_of_this_test() +
      " >'" + file.string() + "' 2>&1";
  const int status = std::system(command.c_str());
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  log = text.str();
  std::filesystem::remove(file);
  return WEXITSTATUS(status);
}

class MpiExchange : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_mpirun()) GTEST_SKIP() << "no mpirun on this machine: openmpi-bin has one";
  }

  /// In a process of mpirun `work`. Outside of one all those processes, which end with success, or
  /// not, and whose log has `expected`.
  void on_ranks(int ranks, const std::function<void(Exchange&)>& work, bool succeeds = true,
                const std::string& expected = "") {
    if (!find_mpi_place()) {
      std::string log;
      EXPECT_EQ(run_under_mpirun(ranks, log) == 0, succeeds) << log;
      EXPECT_NE(log.find(expected), std::string::npos) << log;
      return;
    }
    auto exchange = make_mpi_exchange();
    ASSERT_TRUE(exchange.ok()) << exchange.error().message;
    ASSERT_EQ((*exchange)->size(), ranks);
    ASSERT_EQ((*exchange)->rank(), find_mpi_place()->rank);
    EXPECT_EQ(make_mpi_exchange().error().code, "exchange.mpi");
    work(**exchange);
  }
};

std::vector<float> numbers_of(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(1 + rank));
  std::uniform_real_distribution<float> exponent(-20, 20);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = std::exp2(exponent(random)) * (random() % 2 ? 1 : -1);
  return numbers;
}

TEST_F(MpiExchange, sums_are_those_in_the_order_of_ranks) {
  on_ranks(3, [](Exchange& exchange) {
    for (const std::size_t count : {0, 1, 7, 8191, 8192, 100001}) {
      std::vector<float> expected = numbers_of(0, count);
      for (const int rank : {1, 2}) {
        const std::vector<float> more = numbers_of(rank, count);
        for (std::size_t i = 0; i < count; ++i) expected[i] += more[i];
      }
      std::vector<float> sums = numbers_of(exchange.rank(), count);
      ASSERT_TRUE(exchange.all_reduce(sums).ok());
      ASSERT_EQ(sums, expected) << count;
    }
  });
}

TEST_F(MpiExchange, what_is_sent_comes_in_its_order) {
  on_ranks(3, [](Exchange& exchange) {
    const int next = (exchange.rank() + 1) % 3;
    const int before = (exchange.rank() + 2) % 3;
    for (const std::size_t count : {1, 7, 100001}) {
      std::vector<float> numbers = numbers_of(0, count);
      // Once round: a long message may wait for who receives it.
      if (exchange.rank() == 0) {
        ASSERT_TRUE(exchange.send(numbers, next).ok());
        std::ranges::fill(numbers, 0.0f);
      }
      ASSERT_TRUE(exchange.receive(numbers, before).ok());
      ASSERT_EQ(numbers, numbers_of(0, count));
      if (exchange.rank() == 0) continue;
      ASSERT_TRUE(exchange.send(numbers, next).ok());
    }
  });
}

TEST_F(MpiExchange, gathers_in_place_and_broadcasts) {
  on_ranks(3, [](Exchange& exchange) {
    std::vector<float> all(3000);
    const std::span<float> mine = std::span(all).subspan(exchange.rank() * 1000, 1000);
    std::ranges::fill(mine, static_cast<float>(exchange.rank()));
    ASSERT_TRUE(
        exchange.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all))).ok());
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<float>(i / 1000));
    std::vector<float> of_first(exchange.rank() == 0 ? 3000 : 0);
    ASSERT_TRUE(exchange
                    .gather(std::as_bytes(std::span(all).subspan(exchange.rank() * 1000, 1000)),
                            std::as_writable_bytes(std::span(of_first)))
                    .ok());
    if (exchange.rank() == 0) {
      EXPECT_EQ(of_first, all);
    }
    for (const int from : {0, 1, 2}) {
      std::string text = exchange.rank() == from ? "from " + std::to_string(from) : "......";
      ASSERT_TRUE(exchange.broadcast(std::as_writable_bytes(std::span(text)), from).ok());
      EXPECT_EQ(text, "from " + std::to_string(from));
    }
    EXPECT_TRUE(exchange.barrier().ok());
  });
}

TEST_F(MpiExchange, a_rank_that_leaves_says_why) {
  on_ranks(
      3,
      [](Exchange& exchange) {
        ASSERT_TRUE(exchange.barrier().ok());
        if (exchange.rank() == 1) {
          // Others may hear of it in the barrier that this rank has passed already.
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          exchange.leave("out of memory");
        }
        const Status status = exchange.barrier();
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, "exchange.lost");
        EXPECT_EQ(status.error().message, "rank 1 of 3: out of memory");
        if (exchange.rank() == 0) std::puts(status.error().message.c_str());
        std::fflush(stdout);
        // mpirun ends all once one of them has ended: after what the first says has gone through.
        std::this_thread::sleep_for(std::chrono::seconds(1));
      },
      false, "rank 1 of 3: out of memory");
}

TEST_F(MpiExchange, a_rank_that_throws_says_so) {
  on_ranks(
      3,
      [](Exchange& exchange) {
        ASSERT_TRUE(exchange.barrier().ok());
        if (exchange.rank() == 2) throw std::runtime_error("no more threads");
        const Status status = exchange.barrier();
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().message, "rank 2 of 3: has ended by an exception");
        if (exchange.rank() == 0) std::puts(status.error().message.c_str());
        std::fflush(stdout);
        std::this_thread::sleep_for(std::chrono::seconds(2));
      },
      false, "rank 2 of 3: has ended by an exception");
}

TEST_F(MpiExchange, a_rank_that_is_killed_ends_the_others) {
  const auto start = std::chrono::steady_clock::now();
  on_ranks(
      3,
      [](Exchange& exchange) {
        while (exchange.barrier().ok()) {
          if (exchange.rank() == 2) std::raise(SIGKILL);
        }
      },
      false, "rank 2");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace subbyte
