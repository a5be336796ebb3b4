#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "exchange/exchange.h"

namespace subbyte {
namespace {

using Ranks = std::vector<std::unique_ptr<Exchange>>;

/// Runs `work` on a thread for each rank; an exchange ends with its thread.
void on_all(Ranks ranks, const std::function<void(Exchange&)>& work) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([&work, mine = std::move(rank)] { work(*mine); });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Numbers of a rank whose sum depends on the order.
std::vector<float> numbers_of(int rank, std::size_t count, int round) {
  std::mt19937 random(static_cast<unsigned>((1000 * round) + rank));
  std::uniform_real_distribution<float> exponent(-20, 20);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = std::exp2(exponent(random)) * (random() % 2 ? 1 : -1);
  return numbers;
}

std::vector<float> sums_in_order(int ranks, std::size_t count, int round) {
  std::vector<float> sums = numbers_of(0, count, round);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<float> more = numbers_of(rank, count, round);
    for (std::size_t i = 0; i < count; ++i) sums[i] = sums[i] + more[i];
  }
  return sums;
}

TEST(ThreadExchange, sums_are_those_in_the_order_of_ranks) {
  for (const int size : {1, 2, 3, 4, 8}) {
    on_all(make_thread_exchanges(size), [&](Exchange& exchange) {
      int round = 0;
      for (const std::size_t count : {0, 1, 7, 1000, 8191, 8192, 8193, 100001}) {
        std::vector<float> sums = numbers_of(exchange.rank(), count, ++round);
        ASSERT_TRUE(exchange.all_reduce(sums).ok());
        ASSERT_EQ(sums, sums_in_order(size, count, round)) << size << " ranks, " << count;
      }
    });
  }
}

TEST(ThreadExchange, gathers_what_ranks_give_in_their_order) {
  for (const int size : {1, 2, 5}) {
    on_all(make_thread_exchanges(size), [&](Exchange& exchange) {
      for (const std::size_t bytes : {0, 1, 3, 64, 5000}) {
        const std::vector<std::byte> mine(bytes, static_cast<std::byte>(exchange.rank() + 1));
        std::vector<std::byte> all(bytes * size);
        ASSERT_TRUE(exchange.all_gather(mine, all).ok());
        for (std::size_t i = 0; i < all.size(); ++i) {
          ASSERT_EQ(all[i], static_cast<std::byte>(i / bytes + 1));
        }
      }
    });
  }
}

TEST(ThreadExchange, gathers_for_the_first_rank_alone) {
  on_all(make_thread_exchanges(3), [](Exchange& exchange) {
    for (const std::size_t bytes : {0, 1, 5000}) {
      const std::vector<std::byte> mine(bytes, static_cast<std::byte>(exchange.rank() + 1));
      std::vector<std::byte> all(exchange.rank() == 0 ? 3 * bytes : 0);
      ASSERT_TRUE(exchange.gather(mine, all).ok());
      for (std::size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i], static_cast<std::byte>(i / bytes + 1));
      }
    }
  });
}

TEST(ThreadExchange, gathers_in_place) {
  on_all(make_thread_exchanges(3), [](Exchange& exchange) {
    std::vector<float> all(6);
    const std::span<float> mine = std::span(all).subspan(exchange.rank() * 2, 2);
    mine[0] = mine[1] = static_cast<float>(exchange.rank());
    ASSERT_TRUE(
        exchange.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all))).ok());
    EXPECT_EQ(all, (std::vector<float>{0, 0, 1, 1, 2, 2}));
  });
}

TEST(ThreadExchange, every_rank_can_broadcast) {
  on_all(make_thread_exchanges(3), [](Exchange& exchange) {
    for (int from = 0; from < 3; ++from) {
      std::string text = exchange.rank() == from ? "from " + std::to_string(from) : "......";
      ASSERT_TRUE(exchange.broadcast(std::as_writable_bytes(std::span(text)), from).ok());
      EXPECT_EQ(text, "from " + std::to_string(from));
    }
  });
}

/// Each rank sends to the next one before it receives of the one before.
void go_round(Exchange& exchange) {
  const int next = (exchange.rank() + 1) % exchange.size();
  const int before = (exchange.rank() + exchange.size() - 1) % exchange.size();
  for (const std::size_t count : {1, 0, 5000}) {
    ASSERT_TRUE(exchange.send(std::vector(count, exchange.rank() + 1.0f), next).ok());
  }
  for (const std::size_t count : {1, 0, 5000}) {
    std::vector<float> found(count);
    ASSERT_TRUE(exchange.receive(found, before).ok());
    EXPECT_EQ(found, std::vector(count, before + 1.0f));
  }
  ASSERT_TRUE(exchange.barrier().ok());
}

TEST(ThreadExchange, what_is_sent_comes_in_its_order) {
  for (const int size : {1, 2, 3}) on_all(make_thread_exchanges(size), go_round);
}

TEST(ThreadExchange, who_waits_for_a_rank_that_leaves_is_told) {
  on_all(make_thread_exchanges(2), [](Exchange& exchange) {
    if (exchange.rank() == 0) return exchange.leave("no memory");
    std::vector<float> found(3);
    const Status received = exchange.receive(found, 0);
    ASSERT_FALSE(received.ok());
    EXPECT_EQ(received.error().code, "exchange.lost");
    EXPECT_EQ(received.error().message, "rank 0 of 2: no memory");
    EXPECT_FALSE(exchange.send(found, 0).ok());
  });
}

TEST(ThreadExchange, what_a_lost_rank_has_sent_is_not_read) {
  const auto exchanges = make_thread_exchanges(2);
  std::vector<float> numbers(4);
  ASSERT_TRUE(exchanges[0]->send(numbers, 1).ok());
  exchanges[0]->leave("no memory");
  const Status received = exchanges[1]->receive(numbers, 0);
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().message, "rank 0 of 2: no memory");
}

TEST(ThreadExchange, another_size_than_was_sent_is_refused) {
  on_all(make_thread_exchanges(2), [](Exchange& exchange) {
    std::vector<float> numbers(exchange.rank() == 0 ? 4 : 3);
    if (exchange.rank() == 0) {
      ASSERT_TRUE(exchange.send(numbers, 1).ok());
      EXPECT_EQ(exchange.receive(numbers, 1).error().code, "exchange.lost");
    } else {
      EXPECT_EQ(exchange.receive(numbers, 0).error().code, "exchange.mismatch");
    }
  });
}

TEST(ThreadExchange, nobody_passes_a_barrier_before_all_are_there) {
  std::atomic<int> arrived = 0;
  on_all(make_thread_exchanges(4), [&](Exchange& exchange) {
    for (int round = 1; round <= 2000; ++round) {
      arrived.fetch_add(1);
      ASSERT_TRUE(exchange.barrier().ok());
      ASSERT_GE(arrived.load(), 4 * round);
      ASSERT_LE(arrived.load(), (4 * round) + 3);  // the others may have gone on to the next
    }
  });
}

TEST(ThreadExchange, a_rank_that_leaves_ends_the_group_with_its_reason) {
  on_all(make_thread_exchanges(4), [](Exchange& exchange) {
    ASSERT_TRUE(exchange.barrier().ok());
    if (exchange.rank() == 2) {
      exchange.leave("out of memory");
      EXPECT_EQ(exchange.barrier().error().code, "exchange.lost");
      return;
    }
    std::vector<float> sums(10);
    for (int call = 0; call < 3; ++call) {
      const Status status = exchange.all_reduce(sums);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, "exchange.lost");
      EXPECT_EQ(status.error().message, "rank 2 of 4: out of memory");
    }
  });
}

TEST(ThreadExchange, a_rank_may_end_at_any_call) {
  for (int last = 0; last < 40; ++last) {
    on_all(make_thread_exchanges(3), [&](Exchange& exchange) {
      std::vector<float> sums(last % 2 == 0 ? 5 : 20000);
      int calls = 0;
      while (exchange.rank() != 1 || calls < last) {
        const Status status = exchange.all_reduce(sums);
        if (!status.ok()) {
          EXPECT_EQ(status.error().message, "rank 1 of 3: has ended");
          break;
        }
        ++calls;
      }
      EXPECT_EQ(calls, last);
    });
  }
}

TEST(ThreadExchange, calls_that_differ_are_refused_on_all_ranks) {
  for (const int kind : {0, 1, 2}) {
    std::atomic<int> mismatches = 0;
    on_all(make_thread_exchanges(2), [&](Exchange& exchange) {
      std::vector<float> numbers(10);
      const bool first = exchange.rank() == 0;
      const auto call = [&] {
        const std::span<float> sums(numbers.data(), kind == 1 && first ? 5 : 10);
        if (kind == 0 && first) return exchange.barrier();
        if (kind == 2) return exchange.broadcast(std::as_writable_bytes(sums), exchange.rank());
        return exchange.all_reduce(sums);
      };
      const Status status = call();
      ASSERT_FALSE(status.ok());
      mismatches += status.error().code == "exchange.mismatch" ? 1 : 0;
      EXPECT_EQ(exchange.barrier().error().code, "exchange.lost");
    });
    EXPECT_EQ(mismatches, 2) << kind;
  }
}

}  // namespace
}  // namespace subbyte
