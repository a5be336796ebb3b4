// Damaged GGUF files, one of each kind: verify names what is wrong with each, and what opens a
// model refuses it, within a second and few bytes.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <limits>
#include <ostream>

#include "base/thread_pool.h"
#include "models/checkpoint.h"
#include "support/gguf_bytes.h"
#include "support/temp_dir.h"
#include "support/test_names.h"
#include "text/tokenizer.h"
#include "verify/verify.h"

namespace subbyte {
namespace {

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ4_0 = 2;
constexpr uint32_t kTokens = 8;
constexpr uint32_t kBool = 7;
constexpr uint32_t kFloat = 6;

/// A model of one layer with two heads of 16, whose parts a case may leave out or have otherwise.
struct Parts {
  std::string architecture = "qwen3moe";
  std::vector<std::string> without = {};  // keys and tensors
  std::vector<std::string> tokens = {"a", "b", "c", "ab", "abc", "d", "e", "f"};
  std::vector<std::string> merges = {"a b", "ab c"};
  uint64_t experts = 2;
};

bool has(const Parts& parts, std::string_view name) {
  return std::ranges::find(parts.without, name) == parts.without.end();
}

GgufBytes file_of(const Parts& parts) {
  GgufBytes file;
  const std::string before = parts.architecture + ".";
  const auto number = [&](const char* name, uint32_t value) {
    if (has(parts, name)) file.u32(before + name, value);
  };
  file.text("general.architecture", parts.architecture);
  number("embedding_length", 32);
  number("block_count", 1);
  number("attention.head_count", 2);
  number("attention.head_count_kv", 1);
  number("attention.key_length", 16);
  number("context_length", 64);
  number("feed_forward_length", 32);
  number("expert_count", 2);
  number("expert_used_count", 1);
  number("expert_feed_forward_length", 32);
  if (has(parts, "eps")) file.f32(before + "attention.layer_norm_rms_epsilon", 1e-5F);
  if (has(parts, "freq")) file.f32(before + "rope.freq_base", 10000);
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", "qwen2");
  if (has(parts, "tokens")) file.texts("tokenizer.ggml.tokens", parts.tokens);
  file.texts("tokenizer.ggml.merges", parts.merges);
  if (has(parts, "types")) {
    file.numbers("tokenizer.ggml.token_type", 5, std::vector<int32_t>(parts.tokens.size(), 1));
  }
  if (has(parts, "eos")) file.u32("tokenizer.ggml.eos_token_id", 5);
  file.tensor("token_embd.weight", {32, kTokens}, kF32, 32 * kTokens * 4);
  const std::string layer = "blk.0.";
  const auto matrix = [&](const char* name, uint64_t rows) {
    if (has(parts, name)) {
      file.tensor(layer + name + ".weight", {32, rows}, kQ4_0, rows * 18);
    }
  };
  const auto norm = [&](const std::string& name, uint64_t size) {
    const std::size_t begin = file.data.size();
    file.tensor(name + ".weight", {size}, kF32, size * 4);
    const float one = 1;
    for (uint64_t i = 0; i < size; ++i) {
      std::memcpy(file.data.data() + begin + i * sizeof one, &one, sizeof one);
    }
  };
  matrix("attn_q", 32);
  matrix("attn_k", 16);
  matrix("attn_v", 16);
  matrix("attn_output", 32);
  matrix("ffn_gate_inp", 2);
  for (const char* const name : {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
    file.tensor(layer + name + ".weight", {32, 32, parts.experts}, kQ4_0, parts.experts * 32 * 18);
  }
  norm(layer + "attn_norm", 32);
  norm(layer + "ffn_norm", 32);
  norm(layer + "attn_q_norm", 16);
  norm(layer + "attn_k_norm", 16);
  norm("output_norm", 32);
  return file;
}

/// The bytes of an unharmed model that a case changes.
std::string sound() {
  return file_of({}).bytes();
}

std::string with(const Parts& parts, const std::function<void(GgufBytes&)>& change = {}) {
  GgufBytes file = file_of(parts);
  if (change) change(file);
  return file.bytes();
}

std::string added(const std::function<void(GgufBytes&)>& change) {
  return with({}, change);
}

/// Pieces of a tokenizer with scores, and the embedding for them.
std::string of_pieces(const std::vector<std::string>& pieces) {
  GgufBytes file;
  file.text("general.architecture", "llama");
  file.u32("llama.embedding_length", 4);
  for (const char* const name :
       {"block_count", "attention.head_count", "context_length", "feed_forward_length"}) {
    file.u32(std::string("llama.") + name, 2);
  }
  file.f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  file.u32("tokenizer.ggml.bos_token_id", 0);
  file.text("tokenizer.ggml.model", "llama");
  file.texts("tokenizer.ggml.tokens", pieces);
  file.numbers("tokenizer.ggml.scores", kFloat, std::vector<float>(pieces.size(), 0));
  file.numbers("tokenizer.ggml.token_type", 5, std::vector<int32_t>(pieces.size(), 1));
  file.tensor("token_embd.weight", {4, pieces.size()}, kF32, pieces.size() * 16);
  return file.bytes();
}

/// Each is the start of the next: as many cuts as bytes.
std::string of_starts() {
  std::vector<std::string> pieces;
  for (std::size_t size = 1; size <= 5000; ++size) pieces.emplace_back(size, 'a');
  return of_pieces(pieces);
}

/// So many that sorting them takes long.
std::string of_many() {
  std::vector<std::string> pieces;
  for (uint32_t i = 0; i < 400'000; ++i) pieces.push_back("a" + std::to_string(i));
  return of_pieces(pieces);
}

struct Case {
  const char* name;
  std::string (*make)();
  const char* code;
  const char* words;  // of the message
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

constexpr uint64_t kHuge = uint64_t{1} << 62;

const Case kCases[] = {
    {"a_text_beyond_the_end",
     [] { return added([](GgufBytes& file) { file.key("x", 8, raw(kHuge)); }); }, "gguf.truncated",
     "text"},
    {"a_list_beyond_the_end",
     [] { return added([](GgufBytes& file) { file.key("x", 9, raw(uint32_t{4}) + raw(kHuge)); }); },
     "gguf.truncated", "x"},
    {"more_keys_than_bytes", [] { return added([](GgufBytes& file) { file.num_keys = kHuge; }); },
     "gguf.limit", "keys"},
    {"more_tensors_than_bytes",
     [] { return added([](GgufBytes& file) { file.num_tensors = kHuge; }); }, "gguf.limit",
     "tensors"},
    {"dimensions_that_overflow",
     [] { return added([](GgufBytes& file) {
            file.place("x", {kHuge, 32}, kF32, 0);
          }); },
     "gguf.tensor", "size"},
    {"a_tensor_beyond_the_end",
     [] {
       return added([](GgufBytes& file) { file.place("x", {1 << 20}, kF32, file.data.size()); });
     },
     "gguf.truncated", "x"},
    {"tensors_that_overlap",
     [] { return added([](GgufBytes& file) { file.place("x", {8}, kF32, 0); }); }, "gguf.offset",
     "x"},
    {"a_row_that_blocks_do_not_divide",
     [] { return added([](GgufBytes& file) {
            file.tensor("x", {40, 2}, kQ4_0, 64);
          }); },
     "gguf.tensor", "blocks of 32"},
    {"a_scale_that_is_not_finite",
     [] {
       return added([](GgufBytes& file) {
         const uint16_t nan = 0x7E00;
         std::memcpy(file.data.data() + 32 * kTokens * 4, &nan, sizeof nan);
       });
     },
     "import.scale_not_finite", "block 0"},
    {"a_type_that_was_removed",
     [] { return added([](GgufBytes& file) {
            file.tensor("x", {32, 2}, 4, 64);
          }); }, "gguf.type",
     "removed"},
    {"a_type_that_is_not_known",
     [] { return added([](GgufBytes& file) {
            file.tensor("x", {32, 2}, 99, 64);
          }); }, "gguf.type",
     "not known"},
    {"a_key_twice",
     [] { return added([](GgufBytes& file) { file.u32("qwen3moe.block_count", 1); }); }, "gguf.key",
     "twice"},
    {"a_tensor_twice",
     [] {
       return added([](GgufBytes& file) { file.tensor("output_norm.weight", {32}, kF32, 128); });
     },
     "gguf.tensor", "twice"},
    {"a_name_of_64_bytes",
     [] {
       return added([](GgufBytes& file) { file.tensor(std::string(64, 'x'), {32}, kF32, 128); });
     },
     "gguf.tensor", "1 to 63 bytes"},
    {"a_list_of_lists",
     [] {
       return added([](GgufBytes& file) { file.key("x", 9, raw(uint32_t{9}) + raw(uint64_t{1})); });
     },
     "gguf.value", "arrays"},
    {"no_heads",
     [] {
       return with({.without = {"attention.head_count"}},
                   [](GgufBytes& file) { file.u32("qwen3moe.attention.head_count", 0); });
     },
     "gguf.value", "attention.head_count"},
    {"more_experts_used_than_there_are",
     [] {
       return with({.without = {"expert_used_count"}},
                   [](GgufBytes& file) { file.u32("qwen3moe.expert_used_count", 3); });
     },
     "json.range", "num_experts_per_tok"},
    {"a_stack_of_other_experts", [] { return with({.experts = 3}); }, "gguf.tensor", "ffn_up_exps"},
    {"fewer_tokens_than_rows",
     [] {
       return with({.tokens = {"a", "b", "c", "ab", "abc", "d"}});
     },
     "gguf.value", "tokens"},
    {"types_of_other_length",
     [] {
       return with({.without = {"types"}}, [](GgufBytes& file) {
         file.numbers("tokenizer.ggml.token_type", 5, std::vector<int32_t>(5, 1));
       });
     },
     "gguf.tokenizer", "token_type"},
    {"a_flag_of_2",
     [] {
       return added([](GgufBytes& file) {
         file.key("tokenizer.ggml.add_bos_token", kBool, raw(uint8_t{2}));
       });
     },
     "gguf.value", "true"},
    {"a_name_with_a_zero_byte",
     [] { return added([](GgufBytes& file) { file.u32(std::string_view("a\0b", 3), 1); }); },
     "gguf.key", "zero byte"},
    {"a_number_that_is_not_finite",
     [] {
       return with({.without = {"eps"}}, [](GgufBytes& file) {
         file.f32("qwen3moe.attention.layer_norm_rms_epsilon",
                  std::numeric_limits<float>::infinity());
       });
     },
     "gguf.value", "finite"},
    {"a_base_of_0",
     [] {
       return with({.without = {"freq"}},
                   [](GgufBytes& file) { file.f32("qwen3moe.rope.freq_base", 0); });
     },
     "json.range", "rope_theta"},
    {"a_merge_that_makes_no_token",
     [] {
       return with({.merges = {"a b", "a c"}});
     },
     "tokenizer.merge_unknown_result", "ac"},
    {"a_merge_twice",
     [] {
       return with({.merges = {"a b", "ab c", "a b"}});
     },
     "gguf.tokenizer", "twice"},
    {"an_empty_token",
     [] {
       return with({.tokens = {"a", "b", "c", "ab", "abc", "", "e", "f"}});
     },
     "gguf.tokenizer", "empty"},
    {"an_end_beyond_the_vocabulary",
     [] {
       return with({.without = {"eos"}},
                   [](GgufBytes& file) { file.u32("tokenizer.ggml.eos_token_id", 8); });
     },
     "gguf.tokenizer", "eos_token_id"},
    {"a_text_that_is_no_utf8",
     [] { return added([](GgufBytes& file) { file.text("general.name", "\xFF"); }); }, "gguf.value",
     "UTF-8"},
    {"a_layer_below_0",
     [] {
       return added([](GgufBytes& file) { file.tensor("blk.-1.attn_q.weight", {32}, kF32, 128); });
     },
     "gguf.tensor", "not part of"},
    {"a_part_that_is_missing",
     [] {
       return added([](GgufBytes& file) {
         file.key("split.no", 2, raw(uint16_t{0}));
         file.key("split.count", 2, raw(uint16_t{2}));
         file.key("split.tensors.count", 5, raw(int32_t{20}));
       });
     },
     "gguf.parts", "part 2 of 2"},
    {"a_vision_projector",
     [] { return added([](GgufBytes& file) { file.text("general.type", "mmproj"); }); },
     "gguf.kind", "mmproj"},
    {"pieces_that_begin_each_other", of_starts, "gguf.tokenizer", "too long"},
    {"pieces_without_end", of_many, "gguf.tokenizer", "too many"},
    {"another_file_of_that_name", [] { return std::string(64, 'x'); }, "gguf.magic", "GGUF"},
};

class GgufDamage : public ::testing::TestWithParam<Case> {
 protected:
  std::filesystem::path write(const std::string& bytes) const {
    return folder_.write("m-00001-of-00002.gguf", bytes);
  }

  TempDir folder_;
  ThreadPool pool_{1};
};

std::string text_of(const Finding& finding) {
  return finding.code + " " + finding.where + ": " + to_string(finding);
}

/// All that a command looks at before it reads weights; of scales what verify reads.
Status opened(const std::filesystem::path& path, Executor& pool) {
  const ModelFiles files(path);
  const auto tokenizer = open_tokenizer(path / "tokenizer.json", files);
  const CheckpointParts checkpoint = open_checkpoint(files);
  SUBBYTE_CHECK(checkpoint.check_model());
  if (!tokenizer.ok()) return tokenizer.error();
  const ImportContext context = checkpoint.context(pool);
  SUBBYTE_TRY(const auto tensors, checkpoint.find_tensors(context));
  for (const FoundTensor& tensor : tensors) {
    for (const ModuleInfo& info : tensor.infos) SUBBYTE_CHECK(check_module_scales(context, info));
  }
  return {};
}

TEST(GgufDamage, none_is_found_in_a_sound_file) {
  const TempDir folder;
  ThreadPool pool(1);
  const auto path = folder.write("m.gguf", sound());
  const auto report = verify(path, {}, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const Finding& finding : report->findings) {
    EXPECT_NE(finding.severity, Severity::kError) << text_of(finding);
  }
  const Status status = opened(path, pool);
  EXPECT_TRUE(status.ok()) << status.error().message;
}

TEST_P(GgufDamage, is_named_by_verify_once) {
  const auto report = verify(write(GetParam().make()), {}, pool_);
  ASSERT_TRUE(report.ok()) << report.error().message;
  std::string all;
  int named = 0;
  std::set<std::string> texts;
  for (const Finding& finding : report->findings) {
    const std::string text = text_of(finding);
    all += text + "\n";
    EXPECT_TRUE(texts.insert(text).second) << text;
    const bool is_it =
        finding.code == GetParam().code && text.find(GetParam().words) != std::string::npos;
    named += is_it && finding.severity == Severity::kError;
  }
  EXPECT_EQ(named, 1) << all;
}

TEST_P(GgufDamage, is_refused_by_what_opens_a_model) {
  const Status status = opened(write(GetParam().make()), pool_);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, GetParam().code) << status.error().message;
}

/// A second is wanted: there is a factor for machines, and one for sanitizers of unoptimized code.
#ifdef __SANITIZE_ADDRESS__
constexpr double kMostSeconds = 40;
#else
constexpr double kMostSeconds = 10;
#endif

double processor_seconds(const rusage& usage) {
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST_P(GgufDamage, takes_no_time) {
  const auto path = write(GetParam().make());
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  (void)verify(path, {}, pool_);
  (void)opened(path, pool_);
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(processor_seconds(after) - processor_seconds(before), kMostSeconds);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 400 << 10);  // KiB
}

INSTANTIATE_TEST_SUITE_P(All, GgufDamage, ::testing::ValuesIn(kCases), NamedByValue());

TEST(GgufDamage, of_several_kinds_is_all_named) {
  const TempDir folder;
  ThreadPool pool(1);
  const auto path = folder.write("m.gguf", with({}, [](GgufBytes& file) {
                                   file.tensor("blk.0.strange.weight", {32}, kF32, 128);
                                   file.tensor("stranger.weight", {32}, kF32, 128);
                                   file.f32("qwen3moe.logit_scale", 2);
                                   file.f32("qwen3moe.residual_scale", 2);
                                 }));
  const auto report = verify(path, {}, pool);
  ASSERT_TRUE(report.ok());
  std::string all;
  for (const Finding& finding : report->findings) all += text_of(finding) + "\n";
  for (const char* const name : {"strange", "stranger", "logit_scale", "residual_scale"}) {
    EXPECT_NE(all.find(name), std::string::npos) << name << "\n" << all;
  }
}

TEST(GgufDamage, of_a_tokenizer_is_all_named) {
  const TempDir folder;
  ThreadPool pool(1);
  const auto path = folder.write(
      "m.gguf", with({.without = {"types", "eos"}, .merges = {"a b", "a b"}}, [](GgufBytes& file) {
        file.numbers("tokenizer.ggml.token_type", 5, std::vector<int32_t>(5, 1));
        file.u32("tokenizer.ggml.unknown_token_id", 99);
        file.u32("tokenizer.ggml.eot_token_id", 77);
        file.u32("tokenizer.chat_template", 1);
      }));
  const auto report = verify(path, {}, pool);
  ASSERT_TRUE(report.ok());
  std::string all;
  for (const Finding& finding : report->findings) all += text_of(finding) + "\n";
  for (const char* const name :
       {"token_type", "appears twice", "unknown_token_id", "eot_token_id", "chat_template"}) {
    const std::size_t first = all.find(name);
    EXPECT_NE(first, std::string::npos) << name << "\n" << all;
    EXPECT_EQ(all.find(name, first + 1), std::string::npos) << name << "\n" << all;
  }
}

}  // namespace
}  // namespace subbyte
