// goldens.def against the folders of tests/data/goldens: none is forgotten, and what a line says of
// a golden is what its files say.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "base/thread_pool.h"
#include "models/model_config.h"
#include "support/goldens.h"
#include "verify/inspect.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

using testing::golden_folder;

TEST(GoldensList, names_every_folder_once) {
  std::multiset<std::string> listed;
  for (const testing::Golden& golden : testing::kGoldenModels) listed.insert(golden.name);
  std::multiset<std::string> found;
  for (const auto& entry : fs::directory_iterator(golden_folder("."))) {
    found.insert(entry.path().filename().string());
  }
  EXPECT_EQ(listed, found);
}

TEST(GoldensList, every_golden_is_run_or_refused) {
  using namespace testing;
  for (const Golden& golden : kGoldenModels) {
    const uint32_t way = golden.uses & (kEveryWay | kTool | kReferenceInF16 | kRefused | kStates);
    EXPECT_TRUE(way != 0 && (way & (way - 1)) == 0) << golden.name << ": one of them";
  }
}

TEST(GoldensList, says_what_the_files_are) {
  ThreadPool pool(1);
  for (const testing::Golden& golden : testing::kGoldenModels) {
    const auto config = read_model_config(golden_folder(golden.name));
    ASSERT_TRUE(config.ok()) << golden.name << ": " << config.error().message;
    EXPECT_EQ(config->model_type, golden.model_type) << golden.name;
    const auto report = inspect(golden_folder(golden.name), pool);
    ASSERT_TRUE(report.ok()) << golden.name << ": " << report.error().message;
    std::set<std::string> importers;
    for (const auto& entry : report->weights) importers.insert(entry.flavour);
    EXPECT_TRUE(importers.contains(golden.importer)) << golden.name;
    if (std::string_view(golden.importer) != "dense") continue;
    EXPECT_EQ(importers, (std::set<std::string>{"dense", "tensor"})) << golden.name;
  }
}

}  // namespace
}  // namespace subbyte
