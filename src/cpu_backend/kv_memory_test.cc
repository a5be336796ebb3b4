#include "cpu_backend/kv_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>

namespace subbyte {
namespace {

constexpr KvShape kShape = {3, 2, 4, Element::kF32};

std::unique_ptr<CpuKvMemory> make(const KvShape& shape, int64_t pages) {
  auto memory = CpuKvMemory::create(shape, pages);
  EXPECT_TRUE(memory.ok());
  return std::move(memory).value();
}

TEST(CpuKvMemory, every_key_and_value_has_a_place_of_its_own) {
  const auto memory = make(kShape, 2);
  std::set<const uint8_t*> places;
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (int32_t page = 0; page < 2; ++page) {
      for (int64_t position = 0; position < kPagePositions; ++position) {
        for (int64_t head = 0; head < 2; ++head) {
          const int64_t offset = head * memory->head_bytes();
          places.insert(memory->key(layer, page, position) + offset);
          places.insert(memory->value(layer, page, position) + offset);
        }
      }
    }
  }
  EXPECT_EQ(places.size(), 2u * 3 * 2 * 2 * kPagePositions);
  // Rows of 16 bytes without gaps.
  EXPECT_EQ(*places.rbegin() - *places.begin(), 16 * (std::ssize(places) - 1));
}

TEST(CpuKvMemory, layers_are_where_keys_and_values_are_stored) {
  const auto memory = make(kShape, 3);
  for (int64_t layer = 0; layer < 3; ++layer) {
    const KvLayer view = memory->layer(layer);
    const auto* page = reinterpret_cast<const uint8_t*>(view.pages + 2 * view.page_bytes);
    EXPECT_EQ(page + view.layer_begin + 2 * view.run_bytes,
              memory->key(layer, 2, 0) + memory->head_bytes());
    EXPECT_EQ(page + view.layer_begin + view.run_bytes + 5 * 16, memory->value(layer, 2, 5));
  }
}

TEST(CpuKvMemory, copies_the_first_positions_of_a_page) {
  for (const Element type : {Element::kF32, Element::kF16, Element::kE4M3}) {
    KvShape shape = kShape;
    shape.type = type;
    const auto memory = make(shape, 2);
    const auto bytes = static_cast<std::size_t>(4 * shape.element_bytes());
    const auto each = [&](const auto& visit) {
      for (int64_t layer = 0; layer < 3; ++layer) {
        for (int64_t head = 0; head < 2; ++head) {
          for (int64_t position = 0; position < kPagePositions; ++position) {
            visit(layer, head * memory->head_bytes(), position);
          }
        }
      }
    };
    each([&](int64_t layer, int64_t offset, int64_t position) {
      std::memset(memory->key(layer, 0, position) + offset, static_cast<int>(1 + position), bytes);
      std::memset(memory->value(layer, 0, position) + offset, static_cast<int>(1 + position),
                  bytes);
      if (shape.scale_bytes() == 0) return;
      *(memory->key_scale(layer, 0, position) + offset) = static_cast<uint8_t>(101 + position);
      *(memory->value_scale(layer, 0, position) + offset) = static_cast<uint8_t>(102 + position);
    });
    memory->copy_page(0, 1, 77);
    each([&](int64_t layer, int64_t offset, int64_t position) {
      const int expected = position < 77 ? static_cast<int>(1 + position) : 0;
      EXPECT_EQ(*(memory->key(layer, 1, position) + offset), expected);
      EXPECT_EQ(*(memory->value(layer, 1, position) + offset + bytes - 1), expected);
      if (shape.scale_bytes() == 0) return;
      const int scale = position < 77 ? static_cast<int>(101 + position) : 0;
      EXPECT_EQ(*(memory->key_scale(layer, 1, position) + offset), scale);
      EXPECT_EQ(*(memory->value_scale(layer, 1, position) + offset), scale == 0 ? 0 : scale + 1);
    });
  }
}

int64_t resident_pages() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = -1;
  statm >> size >> resident;
  return resident;
}

TEST(CpuKvMemory, room_that_is_not_used_costs_nothing) {
  const int64_t before = resident_pages();
  ASSERT_GT(before, 0);
  const auto memory = make({2, 8, 128, Element::kF32}, 2048);  // 4 GiB of address space
  *memory->key(1, 2047, kPagePositions - 1) = 1;
  EXPECT_LT(resident_pages() - before, 1000);
  EXPECT_EQ(*memory->key(1, 2046, 0), 0);
}

TEST(CpuKvMemory, says_what_was_asked_for_when_there_is_not_so_much) {
  for (const int64_t pages : {int64_t{1} << 38, int64_t{1} << 52}) {
    const auto memory = CpuKvMemory::create({64, 8, 128, Element::kF16}, pages);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.error().code, "kv.memory");
    EXPECT_NE(memory.error().message.find("262144 bytes"), std::string::npos);
  }
}

}  // namespace
}  // namespace subbyte
