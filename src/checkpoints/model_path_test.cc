#include "checkpoints/model_path.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "base/cache_directory.h"
#include "base/model_file.h"
#include "checkpoints/model_cache.h"
#include "support/gguf_bytes.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVariables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                      "XDG_CACHE_HOME", "HOME"};

class FindModel : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) {
      const char* value = std::getenv(name);
      saved_.push_back(value == nullptr ? std::nullopt : std::optional<std::string>(value));
      ::unsetenv(name);
    }
    set("HF_HUB_CACHE", dir_ / "cache");
  }
  void TearDown() override {
    for (std::size_t i = 0; i < saved_.size(); ++i) {
      if (saved_[i]) {
        ::setenv(kVariables[i], saved_[i]->c_str(), 1);
      } else {
        ::unsetenv(kVariables[i]);
      }
    }
  }

  static void set(const char* name, const fs::path& value) { ::setenv(name, value.c_str(), 1); }

  /// A snapshot with a config.json in a cache below `cache`.
  fs::path add_snapshot(const std::string& cache, const std::string& commit) {
    const std::string place = cache + "/models--org--name/snapshots/" + commit;
    return dir_.write(place + "/config.json", "{}").parent_path();
  }
  void add_ref(const std::string& name, const std::string& commit) {
    dir_.write("cache/models--org--name/refs/" + name, commit);
  }

  std::string found(std::string_view name) {
    const auto path = find_model(name);
    return path.ok() ? path->string() : std::string(path.error().code);
  }

  TempDir dir_;
  std::vector<std::optional<std::string>> saved_;
};

TEST_F(FindModel, takes_a_directory_as_it_is) {
  dir_.write("here/config.json", "{}");
  EXPECT_EQ(found((dir_ / "here").string()), (dir_ / "here").string());
  fs::create_directories(dir_ / "empty");
  const auto empty = find_model((dir_ / "empty").string());
  EXPECT_EQ(empty.error().code, "model.not_found");
  EXPECT_NE(empty.error().message.find("no config.json"), std::string::npos);
}

TEST_F(FindModel, a_name_without_characters_is_not_the_directory_of_the_process) {
  dir_.write("config.json", "{}");
  const fs::path before = fs::current_path();
  fs::current_path(dir_.path());
  const auto model = find_model("");
  const auto checkpoint = find_checkpoint("");
  fs::current_path(before);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, "model.not_found");
  EXPECT_EQ(model.error().message,
            "\"\": expected a directory, a file or org/name, found a name without characters");
  EXPECT_FALSE(checkpoint.ok());
}

TEST_F(FindModel, follows_refs_to_snapshots) {
  const fs::path first = add_snapshot("cache", "0123abc");
  const fs::path second = add_snapshot("cache", "4567def");
  add_ref("main", "0123abc");
  add_ref("v2.0", "4567def\n");
  EXPECT_EQ(found("org/name"), first.string());
  EXPECT_EQ(found("org/name@main"), first.string());
  EXPECT_EQ(found("org/name@v2.0"), second.string());
  EXPECT_EQ(found("org/name@4567def"), second.string());  // a commit needs no ref
  EXPECT_EQ(found("org/name@other"), "model.not_found");
  EXPECT_EQ(found("org/other"), "model.not_found");
}

TEST_F(FindModel, a_ref_must_be_a_plain_name) {
  dir_.write("outside/config.json", "{}");
  dir_.write("cache/models--org--name/outside/config.json", "{}");
  fs::create_directories(dir_ / "cache/models--org--name/snapshots");
  for (const char* target : {"../outside", "../../../outside", "/etc", "..", ".", "", "a/b"}) {
    add_ref("main", target);
    EXPECT_EQ(found("org/name"), "model.not_found") << target;
  }
}

TEST_F(FindModel, refuses_names_that_leave_the_cache) {
  dir_.write("config.json", "{}");
  dir_.write("cache/config.json", "{}");
  for (const char* name :
       {"../..", "org/..", "../name", "org/name@..", "org/name@../../x", "org/name@", "/name",
        "org/", "org", "", "org/a/b", "org/na me", "org/name@a@b", "org\\name", "org/n\nme"}) {
    EXPECT_EQ(found(name), "model.not_found") << name;
  }
}

TEST_F(FindModel, the_first_variable_that_is_set_counts) {
  // From the last place to the first: each new variable hides those after it.
  ::unsetenv("HF_HUB_CACHE");
  const auto add = [&](const std::string& cache) { return add_snapshot(cache, "main").string(); };
  set("HOME", dir_ / "home");
  EXPECT_EQ(found("org/name"), "model.not_found");
  const std::string home = add("home/.cache/huggingface/hub");
  EXPECT_EQ(found("org/name"), home);
  set("XDG_CACHE_HOME", dir_ / "xdg");
  EXPECT_EQ(found("org/name"), "model.not_found");  // no falling back
  const std::string xdg = add("xdg/huggingface/hub");
  EXPECT_EQ(found("org/name"), xdg);
  set("HF_HOME", dir_ / "hf");
  const std::string hf = add("hf/hub");
  EXPECT_EQ(found("org/name"), hf);
  set("HUGGINGFACE_HUB_CACHE", dir_ / "older");
  const std::string older = add("older");
  EXPECT_EQ(found("org/name"), older);
  set("HF_HUB_CACHE", dir_ / "newer");
  const std::string newer = add("newer");
  EXPECT_EQ(found("org/name"), newer);
  ::setenv("HF_HUB_CACHE", "", 1);  // empty is not set
  EXPECT_EQ(found("org/name"), older);
}

TEST_F(FindModel, names_the_tool_that_fetches_and_names_in_other_case) {
  const auto message_of = [](std::string_view name) { return find_model(name).error().message; };
  EXPECT_TRUE(message_of("org/name").ends_with("; `hf download org/name` fetches it"));
  add_snapshot("cache", "main");
  EXPECT_TRUE(message_of("Org/Name@main").ends_with("; the cache has org/name"));
  EXPECT_TRUE(message_of("org/names").ends_with("; `hf download org/names` fetches it"));
}

TEST_F(FindModel, a_download_that_did_not_end_is_named) {
  const fs::path snapshot = add_snapshot("cache", "main");
  EXPECT_EQ(found("org/name"), snapshot.string());  // weights may have other names
  const fs::path blobs = snapshot.parent_path().parent_path() / "blobs";
  dir_.write("cache/models--org--name/blobs/abc.incomplete", "part");
  const auto begun = find_model("org/name");
  ASSERT_FALSE(begun.ok());
  EXPECT_EQ(begun.error().code, "model.unfinished");
  EXPECT_NE(begun.error().message.find("\"abc.incomplete\" is left of a download"),
            std::string::npos)
      << begun.error().message;
  dir_.write("cache/models--org--name/snapshots/main/model-00001-of-00002.safetensors", "x");
  EXPECT_EQ(found("org/name"), "model.unfinished");
  dir_.write("cache/models--org--name/snapshots/main/model-00002-of-00002.safetensors", "x");
  EXPECT_EQ(found("org/name"), snapshot.string());  // the rest is of another download
  fs::create_symlink("../../blobs/gone", snapshot / "tokenizer.json");
  const auto dangling = find_model(snapshot.string());
  ASSERT_FALSE(dangling.ok());
  EXPECT_NE(dangling.error().message.find("\"tokenizer.json\" leads to no blob"), std::string::npos)
      << dangling.error().message;
}

TEST_F(FindModel, a_download_into_a_directory_that_did_not_end_is_named) {
  dir_.write("here/config.json", "{}");
  dir_.write("here/.cache/huggingface/download/model.safetensors.0123.incomplete", "part");
  EXPECT_EQ(found((dir_ / "here").string()), "model.unfinished");
  dir_.write("here/model.safetensors", "x");
  EXPECT_EQ(found((dir_ / "here").string()), (dir_ / "here").string());
}

/// A GGUF file with a tensor, or one of another thing.
std::string gguf_of(std::string_view type) {
  GgufBytes file;
  file.text("general.type", type);
  file.tensor("a", {1}, 0, 4);
  return file.bytes();
}

TEST_F(FindModel, a_gguf_is_a_model_by_its_first_bytes) {
  const fs::path file = dir_.write("there/model.gguf", gguf_of("model"));
  dir_.write("there/mmproj-model.gguf", gguf_of("mmproj"));
  EXPECT_EQ(found(file.string()), file.string());
  EXPECT_EQ(found(file.parent_path().string()), file.string());
  EXPECT_EQ(find_model("there/none.gguf").error().message, "there/none.gguf: no such file");
  const fs::path loud = dir_.write("loud/MODEL.GGUF", gguf_of("model"));
  EXPECT_EQ(found(loud.parent_path().string()), loud.string());
  const fs::path blob = dir_.write("blobs/sha256-0123", gguf_of("model"));
  EXPECT_EQ(found(blob.string()), blob.string());
  dir_.write("there/config.json", "{}");  // as some put it beside
  EXPECT_EQ(found(file.parent_path().string()), file.string());
  dir_.write("there/model.safetensors", "x");
  EXPECT_EQ(found(file.parent_path().string()), file.parent_path().string());
}

TEST_F(FindModel, what_is_no_gguf_or_a_later_part_is_no_second_model) {
  const fs::path file = dir_.write("one/model.gguf", gguf_of("model"));
  dir_.write("one/notes.gguf", "x");
  EXPECT_EQ(found(file.parent_path().string()), file.string());
  // Alone they are opened, which says what is wrong.
  const fs::path part = dir_.write("parts/m-00002-of-00002.gguf", gguf_of("model"));
  EXPECT_EQ(found(part.parent_path().string()), part.string());
  const fs::path broken = dir_.write("broken/m.gguf", "x");
  EXPECT_EQ(found(broken.parent_path().string()), broken.string());
}

TEST_F(FindModel, of_several_ggufs_one_is_named_after_a_colon) {
  const fs::path snapshot = dir_.path() / "cache/models--org--demo-GGUF/snapshots/0123456789abcdef";
  dir_.write("cache/models--org--demo-GGUF/refs/main", "0123456789abcdef");
  const auto write = [&](const std::string& name) {
    return dir_.write((snapshot / name).lexically_relative(dir_.path()).string(), gguf_of("model"));
  };
  const fs::path small = write("demo-Q4_K_M.gguf");
  write("demo-Q4_K_XL.gguf");
  const fs::path parts = write("Q8_0/demo-Q8_0-00001-of-00002.gguf");
  const fs::path later = write("Q8_0/demo-Q8_0-00002-of-00002.gguf");
  EXPECT_EQ(found("org/demo-GGUF:Q4_K_M"), small.string());
  EXPECT_EQ(found("org/demo-GGUF:q4_k_m"), small.string());
  EXPECT_EQ(found("org/demo-GGUF:demo-Q4_K_M.gguf"), small.string());
  EXPECT_EQ(found("org/demo-GGUF:Q8_0"), parts.string());
  EXPECT_EQ(found("org/demo-GGUF:Q4_K"), "model.not_found");
  for (const fs::path& part : {parts, later}) {
    const fs::path name = part.lexically_relative(snapshot);
    EXPECT_EQ(found("org/demo-GGUF:" + name.string()), part.string());
    EXPECT_EQ(found("org/demo-GGUF@main:" + name.filename().string()), part.string());
  }
  const auto all = find_model("org/demo-GGUF");
  ASSERT_FALSE(all.ok());
  EXPECT_NE(all.error().message.find("found \"Q8_0/demo-Q8_0-00001-of-00002.gguf\", "
                                     "\"demo-Q4_K_M.gguf\", \"demo-Q4_K_XL.gguf\""),
            std::string::npos)
      << all.error().message;
}

/// By commands that take files, too.
TEST_F(FindModel, files_that_are_no_model_are_refused_by_one_sentence) {
  dir_.write("model/config.json", "{}");
  for (const auto& [name, words] :
       {std::pair("model/config.json", "one file of a model; its directory is the model")}) {
    for (const auto& refused :
         {find_model((dir_ / name).native()), find_checkpoint((dir_ / name).native())}) {
      ASSERT_FALSE(refused.ok()) << name;
      EXPECT_EQ(refused.error().code, "model.not_found");
      EXPECT_NE(refused.error().message.find(words), std::string::npos) << refused.error().message;
    }
  }
  dir_.write("weights/model.safetensors", "");
  EXPECT_TRUE(find_checkpoint((dir_ / "weights/model.safetensors").native()).ok());
  EXPECT_TRUE(find_checkpoint((dir_ / "weights").native()).ok());
}

TEST_F(FindModel, a_directory_that_may_not_be_entered_is_named) {
  const fs::path model = dir_.write("closed/model/config.json", "{}").parent_path();
  fs::permissions(dir_.path(), fs::perms::owner_all | fs::perms::others_exec);
  fs::permissions(dir_ / "closed", fs::perms::none);
  const bool is_root = ::geteuid() == 0;  // whom no permission stops
  if (is_root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const std::string outside = found((dir_ / "closed").string());
  const std::string inside = found(model.string());
  if (is_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(dir_ / "closed", fs::perms::owner_all);
  EXPECT_EQ(outside, "file.permission");
  EXPECT_EQ(inside, "file.permission");
}

TEST_F(FindModel, says_where_it_looked) {
  const auto path = find_model("org/name@v1");
  ASSERT_FALSE(path.ok());
  const std::string place = (dir_ / "cache/models--org--name/snapshots/v1").string();
  EXPECT_NE(path.error().message.find(place), std::string::npos) << path.error().message;
}

TEST_F(FindModel, the_cache_is_listed) {
  EXPECT_TRUE(list_cache().empty());
  const fs::path first = add_snapshot("cache", "0123abc");
  add_snapshot("cache", "4567def");
  add_ref("main", "0123abc");
  dir_.write("cache/models--org--name/snapshots/0123abc/model.safetensors", "12345");
  dir_.write("cache/datasets--org--data/snapshots/main/config.json", "{}");
  dir_.write("cache/models--x/snapshots/main/config.json", "{}");
  dir_.write("cache/models--org--other/blobs/a.incomplete", "");
  dir_.write("cache/models--org--other/snapshots/9/config.json", "{}");
  const auto models = list_cache();
  ASSERT_EQ(models.size(), 4u);
  EXPECT_EQ(models[0].name, "org/name");
  EXPECT_EQ(models[0].revision, "main");
  EXPECT_EQ(models[0].snapshot, first);
  EXPECT_EQ(models[0].bytes, 7u);
  EXPECT_EQ(models[0].unfinished, "");
  EXPECT_EQ(models[1].revision, "4567def");
  EXPECT_EQ(models[2].name, "org/other");
  EXPECT_NE(models[2].unfinished, "");
  EXPECT_EQ(models[3].name, "x");  // a model without an organisation
  EXPECT_EQ(found("x"), models[3].snapshot.string());
}

TEST_F(FindModel, names_of_branches_have_slashes) {
  const fs::path snapshot = add_snapshot("cache", "0123abc");
  dir_.write("cache/models--org--name/refs/refs/pr/3", "0123abc");
  EXPECT_EQ(found("org/name@refs/pr/3"), snapshot.string());
  EXPECT_EQ(found("org/name@refs/pr/4"), "model.not_found");
  EXPECT_EQ(found("org/name@refs/../refs/pr/3"), "model.not_found");
  EXPECT_EQ(list_cache().at(0).revision, "refs/pr/3");
}

TEST_F(FindModel, variables_are_expanded_as_their_owner_does_it) {
  const std::string snapshot = add_snapshot("home/hf/hub", "main").string();
  ::unsetenv("HF_HUB_CACHE");
  set("HOME", dir_ / "home");
  for (const char* home : {"~/hf", "$HOME/hf", "${HOME}/hf"}) {
    set("HF_HOME", home);
    EXPECT_EQ(found("org/name"), snapshot) << home;
  }
  for (const char* home : {"$NO_SUCH_VARIABLE/hf", "${HOME/hf", "~no-such-user/hf", "$"}) {
    set("HF_HOME", home);
    EXPECT_EQ(cache_directory(), fs::path(home) / "hub");
  }
  set("HF_HUB_CACHE", "~/hf/hub");
  EXPECT_EQ(found("org/name"), snapshot);
  set("HF_HUB_CACHE", "");
  ::unsetenv("HF_HOME");
  set("XDG_CACHE_HOME", "~/x");
  EXPECT_EQ(cache_directory(), dir_ / "home/x/huggingface/hub");
}

TEST_F(FindModel, of_another_revision_the_one_that_is_there_is_named) {
  const auto help_for = [](std::string_view name) {
    const std::string message = find_model(name).error().message;
    return message.substr(message.rfind("; ") + 2);
  };
  add_snapshot("cache", "0123abc");
  EXPECT_EQ(help_for("org/name"), "the cache has org/name@0123abc");
  add_ref("main", "4567def");  // whose files are gone
  EXPECT_EQ(help_for("org/name"), "the cache has org/name@0123abc");
  add_ref("main", "0123abc");
  EXPECT_EQ(help_for("org/name@v2"), "the cache has org/name");
  dir_.write("cache/models--org--begun/refs/main", "0123abc");
  EXPECT_EQ(help_for("org/begun"), "`hf download org/begun` fetches it");
}

TEST_F(FindModel, an_address_or_a_short_name_leads_to_the_name) {
  const auto message_of = [](std::string_view name) { return find_model(name).error().message; };
  for (const char* name : {"https://example.org/Org/Name", "https://example.org/Org/Name/tree/main",
                           "example.org/Org/Name:Q4_K_M", "http://example.org/Org/Name?x=1"}) {
    EXPECT_NE(message_of(name).find("`hf download Org/Name` fetches that model"), std::string::npos)
        << message_of(name);
  }
  for (const char* name : {"qwen3", "qwen3:8b", "https://example.org/", "https://example.org/a"}) {
    EXPECT_TRUE(
        message_of(name).ends_with("; `subbyte list` shows the models that are here, `hf "
                                   "download org/name` fetches one"))
        << message_of(name);
  }
}

TEST_F(FindModel, a_file_of_a_model_leads_to_its_directory) {
  const fs::path config = dir_.write("here/config.json", "{}");
  dir_.write("here/tokenizer.json", "{}");
  for (const char* name : {"config.json", "tokenizer.json"}) {
    const auto model = find_model((config.parent_path() / name).string());
    EXPECT_NE(model.error().message.find("its directory is the model"), std::string::npos);
  }
  const fs::path params = dir_.write("mistral/params.json", "{}");
  const auto model = find_model(params.parent_path().string());
  EXPECT_NE(model.error().message.find("params.json"), std::string::npos);
}

/// How people move a model, or its blobs, to another disk.
TEST_F(FindModel, folders_of_the_cache_may_be_links) {
  const fs::path hub = dir_ / "cache";
  const auto add_model = [&](const fs::path& entry) {
    fs::create_directories(entry / "blobs");
    fs::create_directories(entry / "snapshots/0123abc");
    dir_.write(entry.lexically_relative(dir_.path()).string() + "/blobs/1", "{}");
    fs::create_symlink("../../blobs/1", entry / "snapshots/0123abc/config.json");
  };
  const auto opens = [](const fs::path& snapshot) {
    return open_model_file(snapshot / "config.json", kAnyFileSize).ok();
  };
  fs::create_directories(hub);
  add_model(dir_ / "disk/moved");
  fs::create_directory_symlink(dir_ / "disk/moved", hub / "models--org--name");
  EXPECT_TRUE(opens(hub / "models--org--name/snapshots/0123abc"));
  add_model(hub / "models--org--other");
  fs::rename(hub / "models--org--other/blobs", dir_ / "disk/blobs");
  fs::create_directory_symlink(dir_ / "disk/blobs", hub / "models--org--other/blobs");
  EXPECT_TRUE(opens(hub / "models--org--other/snapshots/0123abc"));
  // Elsewhere the blobs of a gift may not be a folder of the user's.
  fs::rename(hub / "models--org--other", dir_ / "models--org--other");
  EXPECT_FALSE(opens(dir_ / "models--org--other/snapshots/0123abc"));
  // And in the cache a file of the model leads to its blobs, or nowhere.
  dir_.write("secret", "{}");
  fs::create_symlink(dir_ / "secret", dir_ / "disk/moved/snapshots/0123abc/tokenizer.json");
  EXPECT_EQ(
      open_model_file(hub / "models--org--name/snapshots/0123abc/tokenizer.json", kAnyFileSize)
          .error()
          .code,
      "file.link_outside");
}

}  // namespace
}  // namespace subbyte
