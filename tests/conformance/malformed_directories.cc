// Classes 59 to 62: the index of a model that is split into shards.

#include "conformance/case_list.h"

namespace subbyte::conformance {
namespace {

namespace codes = index_codes;

constexpr const char* kIndex = "model/model.safetensors.index.json";

/// A shard that holds these tensors, one byte each.
std::string shard(std::string_view names) {
  std::string header = "{";
  for (std::size_t i = 0; i < names.size(); ++i) {
    header +=
        (i == 0 ? "" : ",") + entry(names.substr(i, 1), "U8", "[1]",
                                    "[" + std::to_string(i) + "," + std::to_string(i + 1) + "]");
  }
  return safetensors_bytes(header + "}", sample_data(names.size()));
}

/// An index with this text as weight_map.
std::string index(std::string_view weight_map) {
  return std::string(R"({"metadata":{"total_size":2},"weight_map":)").append(weight_map) + "}";
}

constexpr const char* kGoodMap = R"({"a":"1.safetensors","b":"2.safetensors"})";

class DirectoryList {
 public:
  void section(int number, std::string_view code) {
    number_ = number;
    code_ = code;
  }
  /// A directory with the shards 1 (tensor a) and 2 (tensor b) and this text as index.
  DirectoryCase& add(std::string_view name, std::string index_text) {
    return add(name, std::move(index_text), code_);
  }
  DirectoryCase& add(std::string_view name, std::string index_text, std::string_view code) {
    cases_.push_back({case_name(number_, name, code),
                      number_,
                      {{kIndex, std::move(index_text)},
                       {"model/1.safetensors", shard("a")},
                       {"model/2.safetensors", shard("b")}},
                      {},
                      code});
    return cases_.back();
  }
  /// Without index or shards.
  DirectoryCase& add_empty(std::string_view name, std::string_view code) {
    DirectoryCase& added = add(name, "", code);
    added.files.clear();
    return added;
  }
  std::vector<DirectoryCase> take() { return std::move(cases_); }

 private:
  std::vector<DirectoryCase> cases_;
  int number_ = kControl;
  std::string_view code_;
};

void add_shard_names(DirectoryList& list) {
  // The file is there wherever it can be: refused for its name, not for being missing.
  const auto add = [&](std::string_view name, const std::string& json_name) -> DirectoryCase& {
    DirectoryCase& added =
        list.add(name, index(R"({"a":"1.safetensors","b":")" + json_name + "\"}"));
    added.files.emplace_back("outside.safetensors", shard("b"));
    return added;
  };
  list.section(59, codes::kShardName);
  add("parent", "../outside.safetensors");
  add("absolute", "/etc/passwd");
  add("absolute_shard", "/outside.safetensors");
  add("down_and_up", "sub/../../outside.safetensors")
      .files.emplace_back("model/sub/3.safetensors", shard("b"));
  add("below", "sub/3.safetensors").files.emplace_back("model/sub/3.safetensors", shard("b"));
  add("here", "./2.safetensors");
  add("backslash", "..\\\\outside.safetensors");
  add("empty", "");
  add("dot", ".");
  add("two_dots", "..");
  add("nul", "2.safetensors\\u0000");
  add("nul_inside", "2.safetensors\\u0000.safetensors");
  add("newline", "2\\n.safetensors");
  add("other_ending", "config.json").files.emplace_back("model/config.json", shard("b"));
  add("partial_output", "2.safetensors.partial-1-2");
  add("too_long", std::string(260, 'n') + ".safetensors");

  list.section(59, codes::kLinkOutside);
  const auto linked = [&](std::string_view name, const std::string& target) {
    DirectoryCase& added = add(name, "3.safetensors");
    added.links.emplace_back("model/3.safetensors", target);
  };
  linked("link_to_parent", "../outside.safetensors");
  linked("link_to_sibling", "2.safetensors");
  linked("link_to_system", "/etc/passwd");
  DirectoryCase& through = add("link_of_index", "2.safetensors");
  through.files[0].first = "index.json";
  through.links.emplace_back(kIndex, "../index.json");
  DirectoryCase& single = list.add_empty("link_of_single_file", codes::kLinkOutside);
  single.files.emplace_back("outside.safetensors", shard("a"));
  single.links.emplace_back("model/model.safetensors", "../outside.safetensors");
}

void add_texts(DirectoryList& list) {
  list.section(60, codes::kWeightMap);
  list.add("no_weight_map", R"({"metadata":{"total_size":2}})");
  list.add("weight_map_null", index("null"));
  list.add("weight_map_array", index(R"(["1.safetensors"])"));
  list.add("weight_map_string", index(R"("1.safetensors")"));
  list.add("weight_map_empty", index("{}"));

  list.section(60, codes::kShardType);
  list.add("shard_number", index(R"({"a":1,"b":2})"));
  list.add("shard_null", index(R"({"a":"1.safetensors","b":null})"));
  list.add("shard_array", index(R"({"a":["1.safetensors"],"b":"2.safetensors"})"));
  list.add("shard_object", index(R"({"a":{"file":"1.safetensors"},"b":"2.safetensors"})"));

  list.section(60, codes::kDuplicateKey);
  list.add("tensor_twice",
           index(R"({"a":"1.safetensors","b":"2.safetensors","a":"2.safetensors"})"));
  list.add("tensor_twice_escaped",
           index(R"({"a":"1.safetensors","b":"2.safetensors","\u0061":"1.safetensors"})"));
  list.add("weight_map_twice", std::string(R"({"weight_map":{},"weight_map":)") + kGoodMap + "}");

  list.section(60, codes::kJson);
  list.add("empty_file", "");
  list.add("cut", index(kGoodMap).substr(0, 60));
  list.add("text_after", index(kGoodMap) + "x");
  list.add("nul_after", index(kGoodMap) + '\0');
  list.add("byte_order_mark", "\xef\xbb\xbf" + index(kGoodMap));
  list.add("not_utf8",
           index(R"({"a":"1.safetensors","b)"
                 "\xff"
                 R"(":"2.safetensors"})"),
           codes::kUtf8);
  list.add("deep", R"({"metadata":)" + repeat("[", 1000) + repeat("]", 1000) + "}", codes::kDepth);
  list.add("array", "[]", codes::kNotObject);
  list.add("null", "null", codes::kNotObject);
  list.add("metadata_array", std::string(R"({"metadata":[],"weight_map":)") + kGoodMap + "}",
           codes::kMetadata);
}

void add_shards(DirectoryList& list) {
  list.section(61, codes::kShardMissing);
  list.add("shard_missing", index(R"({"a":"1.safetensors","b":"3.safetensors"})"));
  list.add("shard_dangling_link", index(R"({"a":"1.safetensors","b":"3.safetensors"})"))
      .links.emplace_back("model/3.safetensors", "gone");
  list.add("tensor_missing",
           index(R"({"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"})"),
           codes::kTensorMissing);
  list.add("tensors_swapped", index(R"({"a":"2.safetensors","b":"1.safetensors"})"),
           codes::kTensorMissing);
  list.add("tensor_in_two_shards", index(kGoodMap), codes::kTensorTwice).files[2].second =
      shard("ba");
  list.add("shard_is_a_copy", "", codes::kTensorTwice).files = {
      {kIndex, index(kGoodMap)},
      {"model/1.safetensors", shard("ab")},
      {"model/2.safetensors", shard("ab")}};
  list.add("tensor_not_in_index", index(kGoodMap), codes::kTensorUnlisted).files[2].second =
      shard("bc");
  list.add("tensor_only_in_shard", index(R"({"a":"1.safetensors"})"), codes::kTensorUnlisted)
      .files[1]
      .second = shard("ab");
  list.add("shard_empty", index(kGoodMap), safetensors_codes::kTooSmall).files[2].second.clear();
  list.add("shard_cut", index(kGoodMap), safetensors_codes::kTruncatedData)
      .files[2]
      .second.pop_back();
  list.add("shard_is_a_directory", index(R"({"a":"1.safetensors","b":"3.safetensors"})"),
           "file.not_regular")
      .files.emplace_back("model/3.safetensors/file", "");
  list.add_empty("no_checkpoint", codes::kNoCheckpoint)
      .files.emplace_back("model/config.json", "{}");
  list.add_empty("pickle_only", codes::kPickleOnly)
      .files.emplace_back("model/pytorch_model.bin", "PK\x03\x04");
  list.add_empty("pickle_shards_only", codes::kPickleOnly)
      .files.emplace_back("model/pytorch_model-00001-of-00002.bin", "PK\x03\x04");
}

void add_sizes(DirectoryList& list) {
  const auto many = [](int count) {
    std::string map = "{";
    for (int i = 0; i < count; ++i) {
      const std::string text = std::to_string(i);
      map += (i == 0 ? "\"" : ",\"") + text + "\":\"model-" + text + "-of-01000000.safetensors\"";
    }
    return index(map + "}");
  };
  list.section(62, codes::kTooManyShards);
  list.add("shards_10001", many(10'001));
  list.add("shards_100000", many(100'000));
  list.add("shards_1000000", many(1'000'000), codes::kTooLarge);

  const auto total = [](std::string_view size) {
    return std::string(R"({"metadata":{"total_size":)").append(size) + R"(},"weight_map":)" +
           kGoodMap + "}";
  };
  list.section(62, codes::kTotalSize);
  list.add("total_size_string", total(R"("2")"));
  list.add("total_size_negative", total("-2"));
  list.add("total_size_fraction", total("2.5"));
  list.add("total_size_array", total("[2]"));
  list.add("total_size_true", total("true"));
  list.add("total_size_two_64", total("18446744073709551616"));

  list.section(kControl, {});
  list.add("two_shards", index(kGoodMap));
  list.add("total_size_float", total("2.0"));
  list.add("total_size_wrong", total("1000"));
  list.add("no_metadata", std::string(R"({"weight_map":)") + kGoodMap + "}");
  list.add("shard_not_in_index", index(kGoodMap))
      .files.emplace_back("model/3.safetensors", "not looked at");
  list.add_empty("single_file", {}).files.emplace_back("model/model.safetensors", shard("ab"));
}

}  // namespace

bool DirectoryCase::published() const {
  std::size_t size = 0;
  for (const auto& [path, bytes] : files) size += bytes.size();
  return links.empty() && size < kPublishedBytes;
}

std::vector<DirectoryCase> directory_cases() {
  DirectoryList list;
  add_shard_names(list);
  add_texts(list);
  add_shards(list);
  add_sizes(list);
  return list.take();
}

}  // namespace subbyte::conformance
