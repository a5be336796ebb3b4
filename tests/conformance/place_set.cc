#include "conformance/place_set.h"

#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/partial_name.h"
#include "conformance/tiny_models.h"

namespace subbyte::conformance {
namespace {

namespace fs = std::filesystem;
using Kind = Place::Kind;

constexpr const char* kSnapshot = "models--org--name/snapshots/0123abcd";
// Files that a conversion copies, and files that it reads: each has to come through the same door.
constexpr const char* kCopied[] = {
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",    "README.md", "LICENSE",
    "merges.txt",     "tokenizer.model",       "special_tokens_map.json"};
constexpr const char* kRead[] = {"config.json", "model.safetensors"};

class PlaceList {
 public:
  void section(int number) { number_ = number; }

  PlaceCase& add(const std::string& name, std::string_view code, std::vector<Place> places) {
    PlaceCase& one = cases_.emplace_back();
    one.name = (code.empty() ? "y_" : "n_") + std::to_string(number_ / 10) +
               std::to_string(number_ % 10) + "_" + name;
    one.number = number_;
    one.code = code;
    one.places = {{Kind::kModel, one.model}};
    one.places.insert(one.places.end(), places.begin(), places.end());
    return one;
  }
  std::vector<PlaceCase> take() { return std::move(cases_); }

 private:
  std::vector<PlaceCase> cases_;
  int number_ = 0;
};

/// "README.md" as a part of a name.
std::string plain(std::string name) {
  for (char& c : name) c = c == '.' ? '_' : c;
  return name;
}

std::string_view link_code(std::string_view file) {
  return file == "model.safetensors" ? "index.link_outside" : "file.link_outside";
}

/// A link in the place of a file; what was there lies outside, so that a program that follows it
/// finds all it needs.
std::vector<Place> link_to(const std::string& file, const std::string& target) {
  return {{Kind::kModel, "outside"},
          {Kind::kFile, "outside/secret", "the user's own"},
          {Kind::kLink, "model/" + file, target}};
}

void add_links(PlaceList& list) {
  list.section(72);
  for (const char* file : kCopied) {
    list.add("above_" + plain(file), link_code(file), link_to(file, "../outside/secret"));
    list.add("device_" + plain(file), link_code(file), link_to(file, "/dev/zero"));
  }
  for (const char* file : kRead) {
    list.add("above_" + plain(file), link_code(file),
             link_to(file, std::string("../outside/") + file));
    list.add("beside_" + plain(file), link_code(file),
             {{Kind::kModel, "model/sub"},
              {Kind::kLink, std::string("model/") + file, std::string("sub/") + file}});
  }
  list.add("chain", "file.link_outside",
           {{Kind::kFile, "outside/secret", "the user's own"},
            {Kind::kLink, "outside/first", "secret"},
            {Kind::kLink, "model/README.md", "../outside/first"}});
  list.add("folder_like_a_cache", "file.link_outside",
           {{Kind::kFile, "blobs/1", "text"}, {Kind::kLink, "model/README.md", "../blobs/1"}});
  const auto in_cache = [&](const char* name, const char* target) {
    PlaceCase& one = list.add(name, "file.link_outside", {});
    one.model = kSnapshot;
    one.places = {{Kind::kModel, kSnapshot},
                  {Kind::kFile, "models--org--name/blobs/1", "text"},
                  {Kind::kFile, "models--org--name/secret", "text"},
                  {Kind::kFile, "models--org--name/blobs/below/2", "text"},
                  {Kind::kFile, "models--org--other/blobs/1", "text"},
                  {Kind::kLink, std::string(kSnapshot) + "/README.md", target}};
  };
  in_cache("blob_of_another_model", "../../../models--org--other/blobs/1");
  in_cache("beside_the_blobs", "../../secret");
  in_cache("below_the_blobs", "../../blobs/below/2");
  in_cache("through_the_blobs_and_up", "../../blobs/../secret");
}

void add_special_files(PlaceList& list) {
  list.section(73);
  for (const char* file : kCopied) {
    list.add("pipe_" + plain(file), "file.not_regular",
             {{Kind::kPipe, std::string("model/") + file}});
    list.add("directory_" + plain(file), "file.not_regular",
             {{Kind::kDirectory, std::string("model/") + file}});
  }
  for (const char* file : kRead) {
    list.add("pipe_" + plain(file), "file.not_regular",
             {{Kind::kPipe, std::string("model/") + file}});
  }
}

void add_broken_links(PlaceList& list) {
  list.section(74);
  for (const char* file : kCopied) {
    list.add("dangling_" + plain(file), "file.not_found",
             {{Kind::kLink, std::string("model/") + file, "nowhere"}});
    list.add("loop_" + plain(file), "file.not_regular",
             {{Kind::kLink, std::string("model/") + file, file}});
  }
}

void add_sizes(PlaceList& list) {
  list.section(75);
  constexpr uint64_t kTooLarge = (uint64_t{256} << 20) + 1;
  for (const char* file : kCopied) {
    list.add("huge_" + plain(file), "file.too_large",
             {{Kind::kHole, std::string("model/") + file, "", kTooLarge}});
  }
  list.add("huge_config", "json.too_large", {{Kind::kHole, "model/config.json", "", 17 << 20}});
}

void add_leftovers(PlaceList& list) {
  const std::string left = partial_name("out", 4000000, 7);
  list.section(0);
  PlaceCase* one = &list.add("leftover_file", {}, {{Kind::kFile, left, "half"}});
  one->leaves = {left};
  one = &list.add("leftover_directory", {}, {{Kind::kFile, left + "/model.safetensors", "half"}});
  one->leaves = {left};
  list.section(76);
  one = &list.add("link_named_so", {},
                  {{Kind::kFile, "precious/file", "text"}, {Kind::kLink, left, "precious"}});
  one->stays = {left, "precious/file"};
  one = &list.add("pipe_named_so", {}, {{Kind::kPipe, left}});
  one->stays = {left};
  one = &list.add("directories_in_it", {}, {{Kind::kFile, left + "/sub/file", "text"}});
  one->stays = {left + "/sub/file"};
  one = &list.add(
      "link_in_it", {},
      {{Kind::kFile, "precious/file", "text"}, {Kind::kLink, left + "/a", "../precious"}});
  one->stays = {left + "/a", "precious/file"};
  one = &list.add("another_name", {}, {{Kind::kFile, "out.partial-notes", "text"}});
  one->stays = {"out.partial-notes"};
  one = &list.add("without_the_mark", {}, {{Kind::kFile, "out.partial-2024-1/file", "text"}});
  one->stays = {"out.partial-2024-1/file"};
  const std::string other = partial_name("out2", 4000000, 7);
  one = &list.add("of_another_output", {}, {{Kind::kFile, other, "text"}});
  one->stays = {other};
  one = &list.add("shard_of_an_enemy", {},
                  {{Kind::kModel, left},
                   {Kind::kFile, left + "/resume.json", "{}"},
                   {Kind::kFile, left + "/secret", "text"}});
  one->stays = {left + "/resume.json"};
}

void add_outputs(PlaceList& list) {
  list.section(77);
  const auto add = [&](const char* name, std::vector<Place> places, std::string stays) {
    list.add(name, "file.exists", std::move(places)).stays = {std::move(stays)};
  };
  add("file", {{Kind::kFile, "out", "old"}}, "out");
  add("empty_directory", {{Kind::kDirectory, "out"}}, "out");
  add("pipe", {{Kind::kPipe, "out"}}, "out");
  add("link_to_a_directory", {{Kind::kDirectory, "other"}, {Kind::kLink, "out", "other"}}, "other");
  add("dangling_link", {{Kind::kLink, "out", "other"}}, "out");
}

/// A forged line, an escape sequence, one of a single byte in Latin-1, the other direction.
const std::string kEscapes = "\nsubbyte: done\r\x1b[2J\x1b]0;x\x07\u009b31m\u202e";

/// A file of the sound model with one text in it changed to the escapes.
Place changed(const std::string& name, const std::function<void(TinyModel&)>& change) {
  TinyModel model = awq_model();
  change(model);
  for (auto& [file, content] : model.files()) {
    if (file == name) return {Kind::kFile, "model/" + name, content};
  }
  return {};
}

void add_names(PlaceList& list) {
  list.section(78);
  PlaceCase& path = list.add("path", {}, {});
  path.model = "model" + kEscapes;
  path.places = {{Kind::kModel, path.model}};
  PlaceCase& refused = list.add("path_with_a_pipe", "file.not_regular", {});
  refused.model = "model" + kEscapes;
  refused.places = {{Kind::kModel, refused.model}, {Kind::kPipe, refused.model + "/README.md"}};
  const auto in_config = [&](const char* name, const char* code, const char* key) {
    list.add(name, code, {changed("config.json", [&](TinyModel& model) {
               model.quantization()[key] = "awq" + kEscapes;
             })});
  };
  in_config("method", "quantization.method", "quant_method");
  in_config("bits", "json.type", "bits");
  in_config("version", "quantization.version", "version");
  list.add("tensor", {}, {changed("model.safetensors", [](TinyModel& model) {
             model.tensors.front().name += R"(\nsubbyte: done\u001b[2J\u009b31m\u202e)";  // in JSON
           })});
  nlohmann::ordered_json index;
  index["weight_map"]["a" + kEscapes] = "1" + kEscapes + ".safetensors";
  PlaceCase& shard = list.add("shard", "index.shard_name", {});
  shard.places = {changed("config.json", [](TinyModel&) {}),
                  {Kind::kFile, "model/model.safetensors.index.json", index.dump()}};
}

void add_controls(PlaceList& list) {
  list.section(0);
  list.add("plain", {}, {{Kind::kFile, "model/README.md", "text"}});
  list.add("hard_link", {},
           {{Kind::kFile, "other", "text"}, {Kind::kHardLink, "model/README.md", "other"}});
  PlaceCase& cache = list.add("blob", {}, {});
  cache.model = kSnapshot;
  cache.places = {{Kind::kModel, kSnapshot},
                  {Kind::kFile, "models--org--name/blobs/1", "text"},
                  {Kind::kLink, std::string(kSnapshot) + "/README.md", "../../blobs/1"}};
  PlaceCase& named = list.add("model_through_a_link", {}, {{Kind::kLink, "link", "model"}});
  named.model = "link";
}

Status io_error(const fs::path& path) {
  return Error{"file.io", path.native() + ": this file system cannot hold it"};
}

Status write_file(const fs::path& path, const std::string& content, uint64_t bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!stream.flush()) return io_error(path);
  std::error_code failure;
  if (bytes > 0) fs::resize_file(path, bytes, failure);
  return failure ? io_error(path) : Status();
}

Status make(const Place& place, const fs::path& root) {
  const fs::path path = root / place.path;
  std::error_code failure;
  fs::create_directories(path.parent_path(), failure);
  if (place.kind != Kind::kModel) fs::remove(path, failure);  // of the sound model
  switch (place.kind) {
    case Kind::kModel:
      fs::create_directories(path, failure);
      for (const auto& [name, content] : awq_model().files()) {
        SUBBYTE_CHECK(write_file(path / name, content, 0));
      }
      return {};
    case Kind::kFile:
    case Kind::kHole:
      return write_file(path, place.content, place.bytes);
    case Kind::kLink:
      fs::create_symlink(place.content, path, failure);
      break;
    case Kind::kHardLink:
      fs::create_hard_link(root / place.content, path, failure);
      break;
    case Kind::kPipe:
      if (::mkfifo(path.c_str(), 0600) != 0) return io_error(path);
      break;
    case Kind::kDirectory:
      fs::create_directory(path, failure);
      break;
  }
  return failure ? io_error(path) : Status();
}

}  // namespace

std::vector<PlaceCase> place_cases() {
  PlaceList list;
  add_controls(list);
  add_links(list);
  add_special_files(list);
  add_broken_links(list);
  add_sizes(list);
  add_leftovers(list);
  add_outputs(list);
  add_names(list);
  return list.take();
}

Status make_places(const PlaceCase& one, const fs::path& root) {
  for (const Place& place : one.places) SUBBYTE_CHECK(make(place, root));
  return {};
}

std::string place_manifest(const std::vector<PlaceCase>& cases) {
  std::string manifest = "[\n";
  for (const PlaceCase& one : cases) {
    nlohmann::ordered_json entry = {{"directory", "directories/" + one.name},
                                    {"model", one.model},
                                    {"class", one.number},
                                    {"expect", one.code.empty() ? "convert" : "refuse"}};
    if (!one.code.empty()) entry["code"] = one.code;
    if (!one.stays.empty()) entry["stays"] = one.stays;
    if (!one.leaves.empty()) entry["leaves"] = one.leaves;
    if (manifest.size() > 2) manifest += ",\n";
    manifest += entry.dump();
  }
  return manifest + "\n]\n";
}

}  // namespace subbyte::conformance
