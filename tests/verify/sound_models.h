#pragma once
// Tiny models of which verify has nothing to say, for tests that damage one thing in them.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "conformance/tiny_models.h"
#include "support/small_tokenizer.h"
#include "support/temp_dir.h"
#include "verify/verify.h"

namespace subbyte::conformance {

inline constexpr uint64_t kTokens = 272;  // vocab_size; the tokenizer has ids below 256

/// Those of tiny_models.h with scales that are positive, a tokenizer, and a vocabulary for it.
TinyModel sound_dense();
TinyModel sound_awq();
TinyModel sound_gptq(bool v1 = true);  // symmetric
TinyModel sound_mxfp4();
/// Dense but for kUp, which is quantized: NVFP4 of ModelOpt, FP8 in blocks of 16 x 16, NF4 of
/// bitsandbytes, or 4 bits of compressed-tensors with zero points.
TinyModel sound_nvfp4();
TinyModel sound_fp8();
TinyModel sound_nf4();
TinyModel sound_packed();
/// Dense, with layers that keep a state: three gated delta nets and one with attention.
TinyModel sound_delta_net();

/// The tokenizer.json of a model.
TokenizerJson tokenizer_of(const TinyModel& model);
void set_file(TinyModel& model, const std::string& name, const std::string& content);

void write_model(const TinyModel& model, const TempDir& dir);

/// The report of a directory or file; fails the test when there is none.
VerifyReport verify_path(const std::filesystem::path& path, int threads = 2);
VerifyReport verify_model(const TinyModel& model, int threads = 2);

/// One line for each finding: "error import.shape model.norm.weight".
std::vector<std::string> lines(const VerifyReport& report);

}  // namespace subbyte::conformance
