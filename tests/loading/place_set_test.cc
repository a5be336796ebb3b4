// Every case of the set of places against convert_model, and the published manifest against the
// generator.

#include "conformance/place_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/partial_name.h"
#include "base/thread_pool.h"
#include "checkpoints/model_path.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "transform/transform.h"

namespace subbyte::conformance {
namespace {

namespace fs = std::filesystem;

const fs::path kPublished = fs::path(kConformance) / "places";

std::string read_text(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

Status convert(const PlaceCase& one, const fs::path& root) {
  ThreadPool pool(1);
  SUBBYTE_TRY(const fs::path model, find_model((root / one.model).native()));
  return [&]() -> Status {
    SUBBYTE_TRY(const auto report, convert_model(model, root / "out", {.format = "gptq_v2"}, pool));
    return {};
  }();
}

/// Neither control characters nor C1 nor what turns the direction of text.
bool is_printable_line(const std::string& text) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  return std::ranges::none_of(text, is_control) && text.find("\xc2\x9b") == std::string::npos &&
         text.find("\xe2\x80\xae") == std::string::npos;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

TEST(PlaceSet, every_case_is_refused_with_its_own_code_or_converted) {
  for (const PlaceCase& one : place_cases()) {
    SCOPED_TRACE(one.name);
    const TempDir root;
    ASSERT_TRUE(make_places(one, root.path()).ok());
    const bool was_there = is_there(root / "out");
    const Status status = convert(one, root.path());
    EXPECT_EQ(status.ok() ? "" : status.error().code, one.code)
        << (status.ok() ? "" : status.error().message);
    if (!status.ok()) {
      EXPECT_TRUE(is_printable_line(status.error().message)) << status.error().message;
    }
    EXPECT_EQ(is_there(root / "out"), status.ok() || was_there);
    for (const std::string& path : one.stays) EXPECT_TRUE(is_there(root / path)) << path;
    for (const std::string& path : one.leaves) EXPECT_FALSE(is_there(root / path)) << path;
    const std::set<std::string> names = root.names();
    const auto ours = std::ranges::count_if(names, [&](const std::string& name) {
      const auto target = target_of_partial(name);
      return target && *target == "out" && name != partial_name("out", 4000000, 7);
    });
    EXPECT_EQ(ours, 0);
  }
}

/// Nothing that the user has elsewhere may be in what is published.
TEST(PlaceSet, nothing_from_outside_is_in_the_result) {
  for (const PlaceCase& one : place_cases()) {
    const TempDir root;
    ASSERT_TRUE(make_places(one, root.path()).ok());
    if (!convert(one, root.path()).ok()) continue;
    for (const auto& entry : fs::directory_iterator(root / "out")) {
      EXPECT_TRUE(entry.is_regular_file() && !entry.is_symlink()) << one.name;
      EXPECT_EQ(read_text(entry.path()).find("the user's own"), std::string::npos) << one.name;
    }
  }
}

TEST(PlaceSet, names_are_unique_and_every_class_is_there) {
  std::set<std::string> names;
  std::map<int, int> counts;
  for (const PlaceCase& one : place_cases()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    ++counts[one.number];
  }
  EXPECT_GE(counts[0], 6);
  for (int number = kFirstPlaceClass; number <= kLastPlaceClass; ++number) {
    EXPECT_GE(counts[number], 5) << "class " << number;
    EXPECT_NE(read_text(kPublished / "README.md").find("\n|" + std::to_string(number) + "|"),
              std::string::npos);
  }
}

TEST(PlaceSet, has_the_manifest_that_is_published) {
  EXPECT_EQ(read_text(kPublished / "manifest.json"), place_manifest(place_cases()))
      << "run write_place_set --manifest conformance/places";
}

}  // namespace
}  // namespace subbyte::conformance
