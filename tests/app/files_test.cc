// What the program writes and leaves, and what it makes of what others left.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "app/process.h"
#include "base/partial_name.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/unprivileged.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

const std::string kModel = (fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-awq").string();
const std::string kDemo = (fs::path(SUBBYTE_TEST_DATA) / "../../demo/model").string();

ProcessResult logits(const std::string& output, bool force = true) {
  std::vector<std::string> arguments = {"logits", kModel, "--ids", "1,2,3", "-o", output};
  if (force) arguments.emplace_back("--force");
  return run_program(arguments);
}

/// As DVC, git-annex and stow make them of a model.
TEST(Inputs, may_be_links_to_elsewhere_where_the_user_says_so) {
  const TempDir folder;
  fs::create_directory(folder / "m");
  for (const auto& entry : fs::directory_iterator(kDemo)) {
    fs::create_symlink(fs::canonical(entry.path()), folder / "m" / entry.path().filename());
  }
  const std::string model = (folder / "m").string();
  const ProcessResult refused = run_program({"run", model, "-p", "a", "-n", "1"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("(--follow-links follows it) [file.link_outside]"), std::string::npos)
      << refused.err;
  for (const char* command : {"run", "inspect", "verify"}) {
    std::vector<std::string> arguments = {command, model, "--follow-links"};
    if (arguments[0] == "run") arguments.insert(arguments.end(), {"-p", "a", "-n", "1"});
    const ProcessResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 0) << command << result.err;
  }
}

TEST(Outputs, never_replace_or_follow_a_link) {
  const TempDir folder;
  folder.write("precious", "text");
  fs::create_symlink("precious", folder / "link");
  for (const std::string& output : {(folder / "link").string(), std::string("/dev/stdout")}) {
    const ProcessResult result = logits(output);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find("[file.not_regular]"), std::string::npos) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_TRUE(fs::is_symlink(output));
  }
  EXPECT_EQ(folder.read("precious"), "text");
  EXPECT_EQ(folder.names(), (Names{"link", "precious"}));
}

TEST(Outputs, may_be_standard_output) {
  const TempDir folder;
  ASSERT_EQ(logits((folder / "file").string()).exit_code, 0);
  const ProcessResult result = logits("-", false);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out == folder.read("file"));
}

TEST(Outputs, on_standard_output_begin_when_the_model_is_there) {
  const TempDir folder;
  fs::copy(kModel, folder / "model");
  fs::resize_file(folder / "model/model.safetensors", 1000);
  const ProcessResult result =
      run_program({"logits", (folder / "model").string(), "--ids", "1", "-o", "-"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
}

TEST(Outputs, are_refused_before_the_work) {
  const TempDir folder;
  folder.write("file", "mine");
  const ProcessResult result = logits((folder / "file").string(), false);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("[file.exists]"), std::string::npos) << result.err;
}

/// Directories are; a file beside the weights is where others write one, too.
TEST(Outputs, are_not_a_part_of_the_model_that_they_are_made_of) {
  const TempDir folder;
  fs::copy(kModel, folder / "model");
  const Names before = folder.names();
  for (const char* const inside : {"model/new", "model/a/b", "model/../model/new"}) {
    for (const std::vector<std::string>& how : std::vector<std::vector<std::string>>{
             {"convert", "--to", "f32"}, {"pack", "--to", "marlin"}}) {
      const ProcessResult result = run_program(
          {how[0], (folder / "model").string(), (folder.path() / inside).string(), how[1], how[2]});
      EXPECT_EQ(result.exit_code, 1) << inside;
      EXPECT_NE(result.err.find("[file.inside]"), std::string::npos) << result.err;
    }
  }
  EXPECT_EQ(folder.names(), before);
  const std::string beside = (folder / "model.new").string();
  EXPECT_EQ(run_program({"convert", (folder / "model").string(), beside, "--to", "f32"}).exit_code,
            0);
  const std::string file = (folder / "model/model.gguf").string();
  EXPECT_EQ(run_program({"convert", beside, file, "--to", "gguf"}).exit_code, 0);
}

/// `subbyte synth` in a file system of 64 MB, of a user and mounts of its own.
TEST(Outputs, that_do_not_fit_are_refused_before_weights_are_written) {
  const TempDir folder;
  const std::string inner = "mount -t tmpfs -o size=64m none " + folder.path().native();
  const std::string unshare = "unshare -rm sh -c '" + inner;
  if (std::system((unshare + "' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "the kernel refuses mounts in a user namespace";
  }
  const std::string synth = std::string(" && ") + kProgramPath + " synth " +
                            (folder / "model").native() +
                            " --shape 0.6b 2>&1 | grep -q \"bytes of free space.*file.no_space\"" +
                            " && test -z \"$(ls -A " + folder.path().native() + ")\"'";
  EXPECT_EQ(std::system((unshare + synth).c_str()), 0);
}

/// What `synth` leaves when it is killed in the middle.
void kill_synth(const TempDir& folder) {
  const ProcessResult result = run_program(
      {"synth", (folder / "model").string(), "--shape", "0.6b"}, {.watch = [&](int pid) {
        if (folder.names().empty()) return false;
        ::usleep(20'000);
        ::kill(pid, SIGKILL);
        return true;
      }});
  ASSERT_EQ(result.exit_code, 128 + SIGKILL);
  ASSERT_EQ(folder.names().size(), 1u);
}

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777;
}

TEST(Outputs, that_replace_a_private_file_are_private) {
  const TempDir folder;
  folder.write("out", "old");
  fs::permissions(folder / "out", fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_EQ(logits((folder / "out").string()).exit_code, 0);
  EXPECT_EQ(mode_of(folder / "out"), 0600u);

  const std::string saved = (folder / "chat.json").string();
  const auto chat = [&](const std::string& input) {
    return run_program({"chat", kDemo, "-n", "1"}, {.input = input}).exit_code;
  };
  ASSERT_EQ(chat("hi\n/save " + saved + "\n/exit\n"), 0);
  fs::permissions(saved, fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_EQ(chat("/load " + saved + "\nhi\n/save\n/exit\n"), 0);
  EXPECT_EQ(mode_of(saved), 0600u);
}

TEST(Outputs, that_cannot_be_printed_are_an_error) {
  const std::vector<std::string> commands[] = {
      {"--help"},
      {"--version"},
      {"run", "--help"},
      {"help"},
      {"help", "run"},
      {"man"},
      {"completion", "bash"},
      {"devices"},
      {"devices", "--json"},
      {"plan", kModel, "--gpus", "2xH200"},
      {"inspect", kModel},
      {"inspect", kModel, "--json"},
      {"verify", kModel},
      {"verify", kModel, "--json"},
      {"diff", kModel, kModel},
      {"diff", kModel, kModel, "--json"},
      {"tokenize", kDemo, "a"},
      {"logits", kModel, "--ids", "1", "-o", "-"},
      {"run", kDemo, "-p", "a", "-n", "2"},
  };
  for (const std::vector<std::string>& command : commands) {
    const ProcessResult result = run_program(command, {.out_file = "/dev/full"});
    EXPECT_NE(result.exit_code, 0) << command.front();
    EXPECT_NE(result.err.find("[file."), std::string::npos) << command.front() << result.err;
  }
}

/// More shards than a process may have files open.
TEST(Inputs, may_be_more_files_than_may_be_open) {
  const TempDir folder;
  fs::copy(kModel, folder / "model");
  fs::remove(folder / "model/model.safetensors");
  std::string map;
  for (int i = 0; i < 1100; ++i) {
    const std::string number = std::to_string(i);
    const std::string header =
        "{\"t" + number + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    const std::string file = "m" + number + ".safetensors";
    folder.write("model/" + file,
                 std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header);
    map += (i == 0 ? "\"t" : ",\"t") + number + "\":\"" + file + "\"";
  }
  folder.write("model/model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  const ProcessResult result =
      run_program({"verify", (folder / "model").string()}, {.max_open_files = 256});
  EXPECT_EQ(result.exit_code, 3);  // all opened, and none has a tensor of the model
  EXPECT_EQ(result.err.find("Too many open files"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("t1099"), std::string::npos);
}

/// A safetensors file with one tensor of zeros, which takes no room on the disk.
fs::path write_zeros(const TempDir& folder, uint64_t bytes) {
  const std::string end = std::to_string(bytes);
  std::string header = R"({"zeros":{"dtype":"BF16","shape":[)" + std::to_string(bytes / 2) +
                       R"(],"data_offsets":[0,)" + end + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const auto size = static_cast<uint64_t>(header.size());
  std::string begin(sizeof size, '\0');
  std::memcpy(begin.data(), &size, sizeof size);
  fs::path file = folder.write("zeros.safetensors", begin + header);
  fs::resize_file(file, sizeof size + header.size() + bytes);
  return file;
}

/// A page that is gone is a SIGBUS, which must look like any other error.
TEST(Inputs, that_are_cut_short_while_they_are_read_are_an_error) {
  const TempDir folder;
  const fs::path file = write_zeros(folder, uint64_t{32} << 30);
  const ProcessResult result =
      run_program({"verify", file.string(), "--json", "--threads", "16"}, {.watch = [&](int pid) {
                    // Part of the tensor has been read: no check of the length follows.
                    std::ifstream memory("/proc/" + std::to_string(pid) + "/statm");
                    int64_t pages = 0, resident = 0, mapped = 0;
                    memory >> pages >> resident >> mapped;
                    if (mapped * sysconf(_SC_PAGESIZE) < int64_t{64} << 20) return false;
                    fs::resize_file(file, 4096);
                    return true;
                  }});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "subbyte: error: a file was cut short while it was read [file.changed]\n");
  EXPECT_EQ(nlohmann::json::parse(result.out).at("error").at("code"), "file.changed");
}

/// As run and chat refuse them.
TEST(Logits, that_are_no_numbers_are_refused_with_their_place) {
  const TempDir folder;
  const std::string model = (folder / "model").string();
  ASSERT_EQ(run_program({"synth", model, "--shape", "tiny", "--format", "bf16"}).exit_code, 0);
  std::string bytes = folder.read("model/model.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  const auto header = nlohmann::json::parse(bytes.substr(8, size));
  const uint64_t begin = header.at("model.layers.0.mlp.down_proj.weight").at("data_offsets").at(0);
  bytes.replace(8 + size + begin + 1000, 2, "\xc0\x7f");  // NaN in bf16
  folder.write("model/model.safetensors", bytes);
  const std::string output = (folder / "logits").string();
  const ProcessResult result = run_program({"logits", model, "--ids", "1,2,3", "-o", output});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("of token 0, id 1; the first numbers"), std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("[logits.not_finite]"), std::string::npos) << result.err;
  EXPECT_EQ(folder.names(), Names{"model"});
}

/// Values of some 500,000, which f32 and bf16 have and f16 has not.
TEST(Logits, that_a_cache_of_f16_overflows_name_the_option_that_helps) {
  const TempDir folder;
  const std::string model = (folder / "model").string();
  ASSERT_EQ(run_program({"synth", model, "--shape", "tiny", "--format", "bf16"}).exit_code, 0);
  std::string bytes = folder.read("model/model.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  const auto place = nlohmann::json::parse(bytes.substr(8, size))
                         .at("model.layers.0.self_attn.v_proj.weight")
                         .at("data_offsets");
  for (uint64_t at = place.at(0); at < place.at(1); at += 2) {
    bytes.replace(8 + size + at, 2, "\xea\x46");  // 29952 in bf16
  }
  folder.write("model/model.safetensors", bytes);
  const auto logits_with = [&](const char* type) {
    return run_program({"logits", model, "--ids", "1,2,3", "-o", (folder / "logits").string(),
                        "--force", "--kv-cache-type", type});
  };
  const ProcessResult refused = logits_with("f16");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("--kv-cache-type bf16 does [logits.not_finite]"), std::string::npos)
      << refused.err;
  EXPECT_EQ(logits_with("bf16").exit_code, 0) << logits_with("bf16").err;
}

TEST(Leftovers, of_a_killed_command_are_named_and_removed_by_the_next) {
  const TempDir folder;
  ASSERT_NO_FATAL_FAILURE(kill_synth(folder));
  const std::string left = *folder.names().begin();
  const ProcessResult result =
      run_program({"synth", (folder / "model").string(), "--shape", "tiny"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.err.find(left), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(", removed\n"), std::string::npos) << result.err;
  EXPECT_EQ(folder.names(), Names{"model"});
}

/// A directory of the user that only looks like one.
TEST(Leftovers, are_never_what_has_no_mark_of_this_program) {
  const TempDir folder;
  folder.write("model.partial-2024-1/thesis", "years of work");
  const std::string model = (folder / "model").string();
  EXPECT_EQ(run_program({"synth", model, "--shape", "tiny"}).exit_code, 0);
  EXPECT_EQ(folder.read("model.partial-2024-1/thesis"), "years of work");
}

TEST(Leftovers, of_a_killed_logits_are_removed_by_the_next) {
  const TempDir folder;
  const std::string left = partial_name("file", 4000000, 1);
  folder.write(left, "half");
  const ProcessResult result = logits((folder / "file").string());
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.err.find(left), std::string::npos) << result.err;
  EXPECT_EQ(folder.names(), Names{"file"});
}

TEST(Clean, removes_leftovers_and_nothing_else) {
  const TempDir folder;
  ASSERT_NO_FATAL_FAILURE(kill_synth(folder));
  const std::string strange = partial_name("a", 4000000, 1);
  folder.write("notes.partial-x", "text");
  folder.write("model.partial-2024-1/thesis", "text");
  folder.write(strange + "/inner/file", "text");
  const std::string directory = folder.path().string();
  const Names before = folder.names();
  const ProcessResult listed = run_program({"clean", directory, "--dry-run"});
  EXPECT_EQ(listed.exit_code, 0);
  EXPECT_NE(listed.out.find("would be removed"), std::string::npos) << listed.out;
  EXPECT_EQ(folder.names(), before);
  const ProcessResult as_json = run_program({"clean", directory, "--dry-run", "--json"});
  const auto found = nlohmann::json::parse(as_json.out);
  ASSERT_EQ(found["leftovers"].size(), 2u) << as_json.out;
  for (const auto& leftover : found["leftovers"]) {
    const bool is_strange = leftover["path"].get<std::string>().ends_with(strange);
    EXPECT_EQ(leftover["state"], is_strange ? "strange" : "abandoned") << as_json.out;
    EXPECT_EQ(leftover["removed"], false);
  }
  const ProcessResult result = run_program({"clean", directory});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 2) << result.out;
  EXPECT_EQ(folder.names(), (Names{strange, "model.partial-2024-1", "notes.partial-x"}));
  EXPECT_EQ(run_program({"clean", (folder / "gone").string()}).exit_code, 1);
}

TEST(Clean, leaves_alone_what_another_user_made) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user here";
  const TempDir folder;
  const std::string left = partial_name("model", 4000000, 1);
  fs::permissions(folder.path(), fs::perms::all);
  {
    const Unprivileged nobody;
    if (!nobody.active()) GTEST_SKIP() << "the kernel refuses to act as another user";
    folder.write(left, "text");
  }
  const ProcessResult result = run_program({"clean", folder.path().string()});
  EXPECT_NE(result.out.find("another user made it"), std::string::npos) << result.out;
  EXPECT_EQ(folder.names(), Names{left});
}

}  // namespace
}  // namespace subbyte
