#include "exchange/message.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace subbyte {
namespace {

MessageWriter written(std::size_t count) {
  MessageWriter message;
  message.add(int64_t{-5});
  message.add_all(std::span<const int32_t>(std::vector<int32_t>(count, 7)));
  message.add_text("text");
  return message;
}

TEST(RankMessages, others_receive_what_the_first_rank_sends) {
  auto ranks = make_thread_exchanges(3);
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([mine = std::move(rank)] {
      for (const std::size_t count : {0, 3, 500, 100000}) {
        if (mine->rank() == 0) {
          ASSERT_TRUE(send(*mine, 4, written(count)).ok());
          continue;
        }
        auto message = receive(*mine);
        ASSERT_TRUE(message.ok());
        EXPECT_EQ(message->kind(), 4u);
        EXPECT_EQ(message->take<int64_t>(), -5);
        EXPECT_EQ(message->take_all<int32_t>(), std::vector<int32_t>(count, 7));
        EXPECT_EQ(message->take_text(), "text");
        EXPECT_EQ(message->take_text(), "");  // beyond the end
        EXPECT_EQ(message->take<int32_t>(), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RankMessages, a_length_beyond_the_end_is_nothing) {
  MessageWriter message;
  message.add(uint64_t{1} << 60);
  MessageReader reader(1, {message.bytes().begin(), message.bytes().end()});
  EXPECT_TRUE(reader.take_all<int64_t>().empty());
}

TEST(RankMessages, ranks_agree_on_what_they_are) {
  auto ranks = make_thread_exchanges(3);
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([mine = std::move(rank)] {
      EXPECT_TRUE(agree_on(*mine, "a rank").ok());
      const Status other = agree_on(*mine, mine->rank() == 2 ? "a stage" : "a rank");
      ASSERT_FALSE(other.ok());
      EXPECT_EQ(other.error().message,
                "rank 2 of 3: expected what rank 0 is, a rank, found a stage");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RankMessages, ranks_agree_on_the_first_error) {
  auto ranks = make_thread_exchanges(3);
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([mine = std::move(rank)] {
      EXPECT_TRUE(agree(*mine, {}).ok());
      const Status failed = mine->rank() == 0 ? Status() : Status(Error{"file.io", "cannot read"});
      EXPECT_EQ(agree(*mine, failed).error().message, "rank 1 of 3: cannot read");
      const Status all = Error{"file.io", "cannot read"};
      const Status agreed = agree(*mine, all);
      EXPECT_EQ(agreed.error().code, mine->rank() == 0 ? "file.io" : "exchange.failed");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RankMessages, the_least_of_a_number_is_known_to_all) {
  auto ranks = make_thread_exchanges(3);
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([mine = std::move(rank)] {
      const auto found = least(*mine, std::vector<int64_t>{7, 5, int64_t{1} << 40}[mine->rank()]);
      ASSERT_TRUE(found.ok());
      EXPECT_EQ(*found, 5);
      const auto failed = least(
          *mine, mine->rank() == 1 ? Result<int64_t>(Error{"memory", "none"}) : Result<int64_t>(3));
      ASSERT_FALSE(failed.ok());
      EXPECT_EQ(failed.error().message, "rank 1 of 3: none");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace subbyte
