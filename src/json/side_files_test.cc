#include "json/side_files.h"

#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace subbyte {
namespace {

TEST(SideFiles, are_read_once_whoever_asks) {
  const TempDir dir;
  dir.write("config.json", R"({"a": 1})");
  const SideFiles files = dir.path();
  const SideFiles copy = files;
  ASSERT_TRUE(files.has("config.json"));
  EXPECT_EQ(files.read("config.json")->value["a"], 1);
  dir.write("config.json", R"({"a": 2})");
  EXPECT_EQ(copy.read("config.json")->value["a"], 1);
  EXPECT_EQ(SideFiles(dir.path()).read("config.json")->value["a"], 2);
  EXPECT_EQ(copy.read("config.json")->where, (dir / "config.json").native());
}

TEST(SideFiles, that_are_not_there_are_not_there_after_a_read_either) {
  const TempDir dir;
  const SideFiles files = dir.path();
  EXPECT_EQ(files.read("config.json").error().code, "file.not_found");
  EXPECT_FALSE(files.has("config.json"));
  EXPECT_EQ(SideFiles().read("config.json").error().code, "file.not_found");
  EXPECT_FALSE(SideFiles().has("config.json"));
  dir.write("broken.json", "{");
  EXPECT_EQ(files.read("broken.json").error().code, "json.syntax");
  EXPECT_TRUE(files.has("broken.json"));
  EXPECT_EQ(files.read("broken.json").error().code, "json.syntax");
}

TEST(SideFiles, have_the_infinities_of_python_by_name) {
  const TempDir dir;
  dir.write("config.json", R"({"a \"Infinity": [0.0, Infinity, "Infinity", "\\"], "b": Infinity})");
  const auto config = SideFiles(dir.path()).read("config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const json::Value infinity = {{"__float__", "Infinity"}};
  EXPECT_EQ(config->value["a \"Infinity"][1], infinity);
  EXPECT_EQ(config->value["a \"Infinity"][2], "Infinity");
  EXPECT_EQ(config->value["b"], infinity);
  dir.write("nan.json", "[NaN]");
  EXPECT_EQ(SideFiles(dir.path()).read("nan.json").error().code, "json.syntax");
}

TEST(SideFiles, of_no_name_are_those_of_the_working_directory) {
  const TempDir dir;
  dir.write("config.json", "{}");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  EXPECT_TRUE(SideFiles("").has("config.json"));
  EXPECT_TRUE(SideFiles("").read("config.json").ok());
  std::filesystem::current_path(before);
}

TEST(SideFiles, have_what_a_container_puts_in) {
  const TempDir dir;
  dir.write("config.json", R"({"a": 1})");
  SideFiles files = dir.path();
  files.put("config.json", SideFile{{{"a", 3}}, "model.bin"});
  files.put("generation_config.json", Error{"orin.magic", "model.bin: another number"});
  EXPECT_EQ(files.read("config.json")->value["a"], 3);
  EXPECT_EQ(files.read("config.json")->where, "model.bin");
  EXPECT_TRUE(files.has("generation_config.json"));
  EXPECT_EQ(files.read("generation_config.json").error().code, "orin.magic");
}

}  // namespace
}  // namespace subbyte
