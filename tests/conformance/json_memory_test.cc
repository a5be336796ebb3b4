// What JSON takes of memory beside the size of its text, counted by operator new.

#include <gtest/gtest.h>

#include <string>

#include "conformance/allocation_counter.h"
#include "json/strict_json.h"

namespace subbyte::conformance {
namespace {

/// `element` until the text has `size` bytes.
std::string repeated(std::string_view begin, std::string_view element, std::string_view end,
                     std::size_t size) {
  std::string text(begin);
  while (text.size() < size) text.append(element);
  return text.append(end);
}

TEST(JsonMemory, stays_within_four_times_the_text) {
  constexpr std::size_t kSize = 16 << 20;  // the largest config.json
  std::string keys = "{\"first\":0";
  for (int i = 0; keys.size() < kSize; ++i) keys += ",\"" + std::to_string(i) + "\":0";
  for (const std::string& text :
       {repeated("[0", ",0", "]", kSize), repeated("[\"\"", ",\"\"", "]", kSize),
        repeated("[[]", ",[]", "]", kSize), repeated("[{}", ",{}", "]", kSize),
        repeated("[0", ",[0]", "]", kSize), repeated("[0", ",{\"a\":0}", "]", kSize),
        repeated("[0", ",\"0123456789abcdef\"", "]", kSize), repeated("[\"", "x", "\"]", kSize),
        keys + "}"}) {
    const AllocationPeak peak;
    const auto value = json::parse(text, "t");
    // One string of the whole text is held five times: in the parser's buffers while they grow.
    const bool is_string = text.starts_with("[\"xx");
    EXPECT_LE(peak.bytes(), (is_string ? 5 : 4) * text.size()) << text.substr(0, 20);
    EXPECT_EQ(value.ok() ? "json.memory" : value.error().code, "json.memory");
  }
}

}  // namespace
}  // namespace subbyte::conformance
