// What a killed `convert` left, of a small model: its first shard, or its record. The first byte of
// the input says which of both the rest is, or changes (the record names inodes, and so is another
// one in each run of this program). Only with the right record is anything kept, and only a shard
// whose header and length are those that it would get.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "base/partial_name.h"
#include "base/thread_pool.h"
#include "conformance/tiny_models.h"
#include "fuzz/fuzz.h"
#include "transform/transform.h"

using namespace subbyte;

namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;

constexpr const char* kRecord = "resume.json";

Files read_all(const fs::path& directory) {
  Files files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = {std::istreambuf_iterator<char>(file),
                                      std::istreambuf_iterator<char>()};
  }
  return files;
}

void write_all(const fs::path& directory, const Files& files) {
  fs::create_directory(directory);
  fs::permissions(directory, fs::perms::owner_all);
  for (const auto& [name, content] : files) {
    std::ofstream(directory / name, std::ios::binary).write(content.data(), std::ssize(content));
  }
}

/// One folder for all runs: a source, a whole conversion of it, and half of one.
class Stage {
 public:
  Stage() {
    Files source;
    for (auto& [name, content] : conformance::awq_model().files()) source[name] = content;
    write_all(scratch_.path() / "source", source);
    const auto snapshot = [&](uint64_t done, uint64_t total) {
      if (done < total / 2 || !half_.empty()) return;
      for (const auto& entry : fs::directory_iterator(scratch_.path())) {
        const std::string name = entry.path().filename();
        if (name.starts_with("out.partial-")) half_ = read_all(entry.path());
      }
    };
    fuzz::require(convert(snapshot).ok(), "a conversion");
    whole_ = read_all(out());
    std::erase_if(half_, [](const auto& file) { return file.first.find("partial") != npos; });
    fuzz::require(half_.contains(kRecord) && half_.contains(first_shard()), "half of one");
  }

  const Files& whole() const { return whole_; }
  const Files& half() const { return half_; }
  std::string first_shard() const { return whole_.lower_bound("model-00001-of-")->first; }

  /// Goes on from the half with `content` for one of its files.
  Files go_on(const std::string& name, std::string_view content) {
    Files left = half_;
    left[name] = content;
    fs::remove_all(out());
    write_all(scratch_.path() / partial_name("out", 1, 1), left);
    const auto status = convert(nullptr);
    fuzz::require(status.ok(), "a conversion that goes on or begins anew");
    const fs::path old = scratch_.path() / partial_name("out", 1, 1);
    fuzz::require(fs::exists(old) == is_of_another(left.at(kRecord)),
                  "what is of use to none goes");
    fs::remove_all(old);
    return read_all(out());
  }

 private:
  static constexpr auto npos = std::string::npos;

  /// Whether the record says that another command made the leftover, which may still go on with it.
  bool is_of_another(const std::string& record) const {
    const std::string& own = half_.at(kRecord);
    const std::size_t what = own.find("}\n[") + 2;  // the rest is the state of the source
    return !record.empty() && record.substr(0, what) != own.substr(0, what);
  }

  fs::path out() const { return scratch_.path() / "out"; }
  Status convert(const ByteProgress& progress) {
    const ConvertOptions options = {.format = "gptq_v2", .shard_bytes = 2000};
    SUBBYTE_TRY(const auto report,
                convert_model(scratch_.path() / "source", out(), options, pool_, progress));
    return {};
  }

  fuzz::Scratch scratch_;
  ThreadPool pool_{1};
  Files whole_;
  Files half_;
};

/// `truth` with bytes replaced or appended by triples of place and value; a byte that is left over
/// cuts so many off.
std::string changed(std::string truth, std::string_view changes) {
  for (; changes.size() >= 3; changes.remove_prefix(3)) {
    const auto low = static_cast<unsigned char>(changes[0]);
    const auto high = static_cast<unsigned char>(changes[1]);
    const std::size_t place = (low + std::size_t{256} * high) % (truth.size() + 1);
    if (place == truth.size()) truth.push_back(0);
    truth[place] = changes[2];
  }
  const std::size_t cut = changes.empty() ? 0 : static_cast<unsigned char>(changes[0]);
  truth.resize(truth.size() - std::min(cut, truth.size()));
  return truth;
}

/// Length and JSON of a safetensors file.
std::string_view header_of(std::string_view file) {
  uint64_t length = 0;
  if (file.size() < sizeof length) return file;
  std::copy_n(file.data(), sizeof length, reinterpret_cast<char*>(&length));
  return file.substr(0, sizeof length + std::min<uint64_t>(length, file.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static Stage stage;
  if (size == 0) return 0;
  const fuzz::Exact rest(data + 1, size - 1);
  const std::string shard = stage.first_shard();
  const std::string name = data[0] % 2 != 0 ? kRecord : shard;
  const bool is_literal = data[0] % 4 >= 2;
  const std::string left =
      is_literal ? std::string(rest.text()) : changed(stage.half().at(name), rest.text());
  Files made = stage.go_on(name, left);
  const std::string& expected = stage.whole().at(shard);
  if (name == shard && made.at(shard) != expected) {
    fuzz::require(made.at(shard) == left, "a shard that is kept or made");
    fuzz::require(left.size() == expected.size(), "the right length");
    fuzz::require(header_of(left) == header_of(expected), "the right header");
    made[shard] = expected;
  }
  fuzz::require(made == stage.whole(), "all other files as in a run that was not killed");
  return 0;
}
