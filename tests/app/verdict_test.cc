// The exit code of inspect against that of run, on every directory of the conformance sets. Where
// there is no tokenizer, it stands against that of logits, which takes token ids and opens the
// model as run does.

#include <gtest/gtest.h>

#include <filesystem>

#include "app/process.h"
#include "conformance/metadata_set.h"
#include "conformance/place_set.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte::conformance {
namespace {

namespace fs = std::filesystem;

struct Counts {
  int taken = 0;
  int refused = 0;
};

void compare(const fs::path& path, Counts& counts) {
  const ProcessResult inspected = run_program({"inspect", path.string(), "--json"});
  std::vector<std::string> command = {"logits", path.string(), "--ids", "1", "-o", "-"};
  if (fs::symlink_status(path / "tokenizer.json").type() != fs::file_type::not_found) {
    command = {"run", path.string(), "-p", "a", "-n", "1"};
  }
  const ProcessResult computed = run_program(command);
  EXPECT_EQ(inspected.exit_code == 0, computed.exit_code == 0) << inspected.out << computed.err;
  EXPECT_TRUE(inspected.exit_code == 0 || inspected.exit_code == 1 || inspected.exit_code == 3);
  EXPECT_TRUE(computed.exit_code == 0 || computed.exit_code == 1);
  ++(computed.exit_code == 0 ? counts.taken : counts.refused);
}

TEST(Verdict, of_inspect_is_that_of_run_for_every_model) {
  Counts counts;
  for (const MetadataCase& one : metadata_cases()) {
    SCOPED_TRACE(one.name);
    const TempDir dir;
    for (const auto& [name, content] : one.files) dir.write(name, content);
    compare(dir.path(), counts);
  }
  EXPECT_GT(counts.taken, 25);
  EXPECT_GT(counts.refused, 180);
}

TEST(Verdict, of_inspect_is_that_of_run_for_every_container) {
  Counts counts;
  for (const auto& entry :
       fs::directory_iterator(fs::path(kConformance) / "safetensors/directories")) {
    SCOPED_TRACE(entry.path());
    compare(entry.path() / "model", counts);
  }
  EXPECT_GT(counts.refused, 40);
}

TEST(Verdict, of_inspect_is_that_of_run_in_every_place) {
  Counts counts;
  for (const PlaceCase& one : place_cases()) {
    SCOPED_TRACE(one.name);
    const TempDir root;
    ASSERT_TRUE(make_places(one, root.path()).ok());
    compare(root / one.model, counts);
  }
  EXPECT_GT(counts.taken, 20);
  EXPECT_GE(counts.refused, 7);
}

}  // namespace
}  // namespace subbyte::conformance
