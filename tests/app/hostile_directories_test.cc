// Directories that are not what they should be, as every command meets them: each is refused with
// one line, nothing hangs, and nothing is left behind.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "app/process.h"
#include "backends/backends.h"
#include "base/thread_pool.h"
#include "checkpoints/containers/tensor_source.h"
#include "checkpoints/model_path.h"
#include "models/model.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_tensors.h"
#include "support/unprivileged.h"
#include "synth/synth.h"
#include "transform/transform.h"
#include "verify/inspect.h"
#include "verify/verify.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kIndex = "model/model.safetensors.index.json";
constexpr const char* kFirst = "model/model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model/model-00002-of-00002.safetensors";
constexpr const char* kSecondName = "model-00002-of-00002.safetensors";

struct Hostile {
  const char* name;
  std::string_view code;  // of loading and converting
  std::function<void(const TempDir&)> damage;
  bool as_nobody = false;  // what permissions forbid, root may do
};

std::ostream& operator<<(std::ostream& out, const Hostile& hostile) {
  return out << hostile.name;
}

void write_part(const TempDir& dir, const char* name, const std::vector<TestTensor>& tensors) {
  ASSERT_TRUE(write_tensors(dir / name, tensors).ok());
}

/// A sound model in two shards.
void write_sound(const TempDir& dir) {
  ThreadPool pool(2);
  SynthOptions options;
  options.shape = "tiny";
  options.format = "awq";
  ASSERT_TRUE(synthesize(dir / "model", options, pool).ok());
  std::vector<TestTensor> parts[2];
  Json map = Json::object();
  {
    const auto source = TensorSource::open(dir / "model");
    ASSERT_TRUE(source.ok());
    for (const auto& [name, tensor] : source->tensors()) {
      const std::size_t part = map.size() % 2;
      map[name] = fmt::format("model-0000{}-of-00002.safetensors", part + 1);
      parts[part].push_back(
          {name, tensor.dtype, tensor.shape,
           std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())});
    }
  }
  fs::remove(dir / "model/model.safetensors");
  write_part(dir, kFirst, parts[0]);
  write_part(dir, kSecond, parts[1]);
  dir.write(kIndex, Json({{"weight_map", map}}).dump());
}

void remove(const TempDir& dir, const char* name) {
  fs::remove_all(dir / name);
}

void make_pipe(const TempDir& dir, const char* name) {
  remove(dir, name);
  ASSERT_EQ(::mkfifo((dir / name).c_str(), 0600), 0);
}

void make_directory(const TempDir& dir, const char* name) {
  remove(dir, name);
  fs::create_directory(dir / name);
}

void make_link(const TempDir& dir, const char* name, const std::string& target) {
  remove(dir, name);
  fs::create_symlink(target, dir / name);
}

void make_socket(const TempDir& dir, const char* name) {
  remove(dir, name);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (dir / name).c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(listener);
}

/// The second shard under another name in the index, and only there.
void name_second_shard(const TempDir& dir, const std::string& name) {
  Json index = Json::parse(dir.read(kIndex));
  for (auto& [tensor, shard] : index["weight_map"].items()) {
    if (shard == kSecondName) shard = name;
  }
  dir.write(kIndex, index.dump());
}

void forbid(const TempDir& dir, const char* name) {
  fs::permissions(dir.path(), fs::perms::all);
  fs::permissions(dir / name, fs::perms::none);
}

std::vector<Hostile> hostile_paths() {
  return {
      {"model_is_a_loop", "model.not_found",
       [](const TempDir& dir) {
         remove(dir, "model");
         fs::create_symlink("other", dir / "model");
         fs::create_symlink("model", dir / "other");
       }},
      {"model_is_a_dangling_link", "model.not_found",
       [](const TempDir& dir) { make_link(dir, "model", "gone"); }},
      {"model_is_a_pipe", "model.not_found", [](const TempDir& dir) { make_pipe(dir, "model"); }},
      {"model_is_a_socket", "model.not_found",
       [](const TempDir& dir) { make_socket(dir, "model"); }},
      {"model_is_an_endless_device", "model.not_found",
       [](const TempDir& dir) { make_link(dir, "model", "/dev/zero"); }},
      {"model_is_an_empty_file", "model.not_found",
       [](const TempDir& dir) {
         remove(dir, "model");
         dir.write("model", "");
       }},
      {"model_is_a_text", "model.not_found",
       [](const TempDir& dir) {
         remove(dir, "model");
         dir.write("model", "not a model\n");
       }},
      {"model_is_empty", "model.not_found",
       [](const TempDir& dir) { make_directory(dir, "model"); }},
      {"model_is_forbidden", "file.permission", [](const TempDir& dir) { forbid(dir, "model"); },
       true},
      {"only_a_pickle", "index.pickle_only",
       [](const TempDir& dir) {
         for (const char* name : {kIndex, kFirst, kSecond}) remove(dir, name);
         dir.write("model/pytorch_model.bin", "PK\x03\x04");
       }},
      {"only_a_gguf", "gguf.truncated",
       [](const TempDir& dir) {
         for (const char* name : {kIndex, kFirst, kSecond}) remove(dir, name);
         dir.write("model/model-q4.gguf", "GGUF");
       }},
      {"no_weights", "index.no_checkpoint",
       [](const TempDir& dir) {
         for (const char* name : {kIndex, kFirst, kSecond}) remove(dir, name);
       }},
  };
}

std::vector<Hostile> hostile_configs() {
  constexpr const char* kConfig = "model/config.json";
  return {
      {"config_is_a_directory", "file.not_regular",
       [](const TempDir& dir) { make_directory(dir, kConfig); }},
      {"config_is_a_pipe", "file.not_regular", [](const TempDir& dir) { make_pipe(dir, kConfig); }},
      {"config_is_an_endless_device", "file.link_outside",
       [](const TempDir& dir) { make_link(dir, kConfig, "/dev/zero"); }},
      {"config_is_a_loop", "file.not_regular",
       [](const TempDir& dir) { make_link(dir, kConfig, "config.json"); }},
      {"config_is_a_link_to_nothing", "file.not_found",
       [](const TempDir& dir) { make_link(dir, kConfig, "gone"); }},
      {"config_is_utf_16", "json.utf8",
       [](const TempDir& dir) { dir.write(kConfig, std::string("\xFF\xFE{\0}\0", 6)); }},
      {"config_is_empty", "json.syntax", [](const TempDir& dir) { dir.write(kConfig, ""); }},
      {"config_is_huge", "json.too_large",
       [](const TempDir& dir) { dir.write(kConfig, std::string(17 << 20, ' ')); }},
      {"config_is_deep", "json.depth",
       [](const TempDir& dir) { dir.write(kConfig, "{\"a\":" + std::string(100'000, '[')); }},
      {"config_has_a_key_twice", "json.duplicate_key",
       [](const TempDir& dir) {
         const std::string text = dir.read(kConfig);
         dir.write(kConfig, "{\"model_type\":\"llama\"," + text.substr(text.find('{') + 1));
       }},
      {"config_is_forbidden", "file.permission",
       [](const TempDir& dir) {
         fs::permissions(dir / "model", fs::perms::all);
         forbid(dir, kConfig);
       },
       true},
  };
}

std::vector<Hostile> hostile_indices() {
  const auto named = [](const char* name, const std::string& shard,
                        std::string_view code = "index.shard_name") {
    return Hostile{name, code, [shard](const TempDir& dir) {
                     fs::copy(dir / kSecond, dir / "outside.safetensors");
                     fs::create_directory(dir / "model/sub");
                     fs::copy(dir / kSecond, dir / "model/sub/2.safetensors");
                     name_second_shard(dir, shard);
                   }};
  };
  return {
      {"index_is_a_directory", "file.not_regular",
       [](const TempDir& dir) { make_directory(dir, kIndex); }},
      {"index_is_a_pipe", "file.not_regular", [](const TempDir& dir) { make_pipe(dir, kIndex); }},
      {"index_is_a_link_outside", "index.link_outside",
       [](const TempDir& dir) {
         fs::rename(dir / kIndex, dir / "index.json");
         make_link(dir, kIndex, "../index.json");
       }},
      {"index_is_empty", "index.json", [](const TempDir& dir) { dir.write(kIndex, ""); }},
      {"index_names_a_tensor_twice", "index.duplicate_key",
       [](const TempDir& dir) {
         std::string text = dir.read(kIndex);
         const std::string key = "\"model.norm.weight\":";
         text.insert(text.find(key), key + "\"" + kSecondName + "\",");
         dir.write(kIndex, text);
       }},
      named("shard_above", "../outside.safetensors"),
      named("shard_down_and_up", "sub/../../outside.safetensors"),
      named("shard_absolute", "/outside.safetensors"),
      named("shard_below", "sub/2.safetensors"),
      named("shard_with_a_backslash", "..\\outside.safetensors"),
      named("shard_is_the_directory", "."),
      named("shard_of_a_very_long_name", std::string(300, 'n') + ".safetensors"),
      named("shard_with_a_line_break", "2\n.safetensors"),
      named("shard_in_other_case", "MODEL-00002-of-00002.safetensors", "index.shard_missing"),
  };
}

std::vector<Hostile> hostile_shards() {
  return {
      {"shard_missing", "index.shard_missing", [](const TempDir& dir) { remove(dir, kSecond); }},
      {"shard_is_a_directory", "file.not_regular",
       [](const TempDir& dir) { make_directory(dir, kSecond); }},
      {"shard_is_a_pipe", "file.not_regular", [](const TempDir& dir) { make_pipe(dir, kSecond); }},
      {"shard_is_a_loop", "file.not_regular",
       [](const TempDir& dir) { make_link(dir, kSecond, kSecondName); }},
      {"shard_is_a_link_outside", "index.link_outside",
       [](const TempDir& dir) {
         fs::rename(dir / kSecond, dir / "outside.safetensors");
         make_link(dir, kSecond, "../outside.safetensors");
       }},
      {"shard_is_an_endless_device", "index.link_outside",
       [](const TempDir& dir) { make_link(dir, kSecond, "/dev/zero"); }},
      {"shard_is_empty", "safetensors.too_small",
       [](const TempDir& dir) { dir.write(kSecond, ""); }},
      {"shard_is_cut", "safetensors.truncated_data",
       [](const TempDir& dir) {
         fs::resize_file(dir / kSecond, fs::file_size(dir / kSecond) - 1);
       }},
      {"shard_is_forbidden", "file.permission",
       [](const TempDir& dir) {
         fs::permissions(dir / "model", fs::perms::all);
         forbid(dir, kSecond);
       },
       true},
      {"shard_in_two_places", "index.tensor_twice",
       [](const TempDir& dir) {
         remove(dir, kSecond);
         fs::create_hard_link(dir / kFirst, dir / kSecond);
       }},
      {"shard_has_a_name_twice", "safetensors.duplicate_name",
       [](const TempDir& dir) {
         const std::string one = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
         const std::string two = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]})";
         dir.write(kSecond, safetensors_bytes("{" + one + "," + two + "}", "ab"));
       }},
      {"single_file_is_a_directory", "file.not_regular",
       [](const TempDir& dir) { make_directory(dir, "model/model.safetensors"); }},
      {"single_file_is_a_socket", "file.not_regular",
       [](const TempDir& dir) { make_socket(dir, "model/model.safetensors"); }},
      {"ak48_that_is_cut", "orin.too_small",
       [](const TempDir& dir) {
         make_directory(dir, "model");
         dir.write("model/model.ak48", "84ka");
       }},
  };
}

std::vector<Hostile> all_hostile() {
  std::vector<Hostile> all = hostile_paths();
  for (const auto& more : {hostile_configs(), hostile_indices(), hostile_shards()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

/// Those for which the program need not run as nobody, who may not go where it lies.
std::vector<Hostile> hostile_to_root() {
  std::vector<Hostile> all = all_hostile();
  std::erase_if(all, [](const Hostile& hostile) { return hostile.as_nobody; });
  return all;
}

/// What the commands do with `model`, in the process of the test.
class Commands {
 public:
  explicit Commands(const TempDir& dir) : model_(dir / "model"), out_(dir / "out") {}

  Status inspect() {
    SUBBYTE_TRY(const auto path, find_checkpoint(model_.native()));
    SUBBYTE_TRY(const Inspection found, subbyte::inspect(path, pool_));
    if (!found.problems.empty()) return Error{"problems", found.problems.front()};
    return {};
  }
  Status verify() {
    SUBBYTE_TRY(const auto path, find_checkpoint(model_.native()));
    SUBBYTE_TRY(const VerifyReport report, subbyte::verify(path, {}, pool_));
    for (const Finding& finding : report.findings) {
      if (finding.severity == Severity::kError) return Error{"finding", to_string(finding)};
    }
    return {};
  }
  Status convert() {
    SUBBYTE_TRY(const auto path, find_model(model_.native()));
    SUBBYTE_TRY(const auto report, convert_model(path, out_, {.format = "gptq_v2"}, pool_));
    return {};
  }
  Status run() {
    SUBBYTE_TRY(const auto path, find_model(model_.native()));
    SUBBYTE_TRY(const auto backend, make_backend({.device = "cpu", .num_threads = 1}));
    SUBBYTE_TRY(const auto model, load_model(path, *backend));
    return {};
  }

 private:
  const fs::path model_;
  const fs::path out_;
  ThreadPool pool_{1};
};

void expect_refusal(const char* command, const Status& status, std::string_view code = {}) {
  ASSERT_FALSE(status.ok()) << command;
  if (!code.empty()) {
    EXPECT_EQ(status.error().code, code) << command << ": " << status.error().message;
  }
  EXPECT_FALSE(status.error().message.empty()) << command;
  EXPECT_LT(status.error().message.size(), 1000u) << command;
  for (const char c : status.error().message) {
    EXPECT_GE(static_cast<unsigned char>(c), 0x20) << command << ": " << status.error().message;
  }
}

class HostileDirectories : public testing::TestWithParam<Hostile> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(write_sound(dir_));
    ASSERT_NO_FATAL_FAILURE(GetParam().damage(dir_));
    before_ = dir_.names();
  }
  void TearDown() override {
    EXPECT_EQ(dir_.names(), before_);
    if (!GetParam().as_nobody) return;
    std::error_code ignored;
    fs::permissions(dir_ / "model", fs::perms::all, ignored);
  }

  TempDir dir_;
  std::set<std::string> before_;
};

TEST_P(HostileDirectories, are_refused_with_one_line) {
  std::optional<Unprivileged> nobody;
  if (GetParam().as_nobody) nobody.emplace();
  ASSERT_TRUE(!nobody || nobody->active());
  Commands commands(dir_);
  expect_refusal("inspect", commands.inspect());
  expect_refusal("verify", commands.verify());
  expect_refusal("convert", commands.convert(), GetParam().code);
  expect_refusal("run", commands.run(), GetParam().code);
}

class HostileToTheProgram : public HostileDirectories {};

/// One line on stderr, or what is wrong on stdout and exit code 3.
TEST_P(HostileToTheProgram, are_refused_with_one_line) {
  const std::string model = dir_ / "model";
  const std::vector<std::vector<std::string>> calls = {
      {"inspect", model},
      {"verify", model},
      {"convert", model, dir_ / "out", "--to", "gptq_v2"},
      {"run", model, "-p", "Hello", "-n", "1"}};
  for (const auto& arguments : calls) {
    const ProcessResult result = run_program(arguments);
    SCOPED_TRACE(arguments.front() + ": " + result.err);
    if (result.exit_code == 3) {
      EXPECT_TRUE(arguments.front() == "inspect" || arguments.front() == "verify");
      EXPECT_FALSE(result.out.empty());
      continue;
    }
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1);
    EXPECT_TRUE(result.out.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostileDirectories, testing::ValuesIn(all_hostile()),
                         [](const auto& param) { return std::string(param.param.name); });

INSTANTIATE_TEST_SUITE_P(All, HostileToTheProgram, testing::ValuesIn(hostile_to_root()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(HostileDirectory, the_sound_one_is_not_refused) {
  const TempDir dir;
  ASSERT_NO_FATAL_FAILURE(write_sound(dir));
  Commands commands(dir);
  EXPECT_TRUE(commands.inspect().ok());
  EXPECT_TRUE(commands.verify().ok());
  EXPECT_TRUE(commands.run().ok());
  EXPECT_TRUE(commands.convert().ok());
  const ProcessResult run = run_program({"run", dir / "model", "-p", "Hello", "-n", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST(HostileDirectory, says_what_is_there_instead) {
  const auto said_of = [](const std::string& name) {
    const TempDir dir;
    const auto all = all_hostile();
    const auto found = std::ranges::find(all, name, &Hostile::name);
    write_sound(dir);
    found->damage(dir);
    return run_program({"run", dir / "model", "-p", "Hello", "-n", "1"}).err;
  };
  EXPECT_NE(said_of("only_a_gguf").find("model-q4.gguf: expected at least 24 bytes"),
            std::string::npos);
  EXPECT_NE(said_of("config_is_utf_16").find("begins as UTF-16 does; save it as UTF-8"),
            std::string::npos);
  EXPECT_NE(said_of("config_is_a_link_to_nothing").find("the symbolic link leads to no file"),
            std::string::npos);
}

TEST(HostileDirectory, the_documentation_says_how_many_there_are) {
  std::ifstream file(std::string(SUBBYTE_TEST_DATA) + "/../../docs/safetensors.md");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string count = fmt::format("{} hostile directories", all_hostile().size());
  EXPECT_NE(text.find(count), std::string::npos) << "docs/safetensors.md lacks: " << count;
}

}  // namespace
}  // namespace subbyte
