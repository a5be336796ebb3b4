// Each pattern is that of the tokenizer.json of the models that the name comes from.

#include "checkpoints/containers/gguf_pre_tokenizers.h"

#include <algorithm>

namespace subbyte {
namespace {

// Parts of patterns.
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define SIGNS R"( ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define LINES R"(\s*[\r\n]+)"
#define SPACES R"(\s+(?!\S)|\s+)"
#define UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define FIRST R"([^\r\n\p{L}\p{N}]?)"
#define CASED_WORDS(end) FIRST UPPER "*" LOWER "+" end "|" FIRST UPPER "+" LOWER "*" end
#define SIGNS_AND_SLASH R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)"
#define GPT2 R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"
#define CJK R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"
#define ASCII_SIGNS R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
#define WORD_OF_MARKS R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
#define BLOOM R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+)"

#define BY_DIGITS(digits) CONTRACTIONS "|" WORD "|" digits "|" SIGNS "|" LINES "|" SPACES

constexpr std::string_view kGpt2[] = {GPT2};
constexpr std::string_view kDigitsThenGpt2[] = {R"(\p{N})", GPT2};
constexpr std::string_view kOneDigit[] = {BY_DIGITS(R"(\p{N})")};
constexpr std::string_view kThreeDigits[] = {BY_DIGITS(R"(\p{N}{1,3})")};
constexpr std::string_view kQwen35[] = {
    CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" LINES
                 "|" SPACES};
constexpr std::string_view kO200k[] = {
    CASED_WORDS(CONTRACTIONS "?") R"(|\p{N}{1,3}|)" SIGNS_AND_SLASH "|" LINES "|" SPACES};
constexpr std::string_view kTekken[] = {CASED_WORDS("") R"(|\p{N}|)" SIGNS_AND_SLASH "|" LINES
                                                        "|" SPACES};
constexpr std::string_view kDeepseek3[] = {
    R"(\p{N}{1,3})", CJK,
    ASCII_SIGNS "|" WORD_OF_MARKS R"(| ?[\p{P}\p{S}]+[\r\n]*|)" LINES "|" SPACES};
constexpr std::string_view kDeepseekCoder[] = {
    R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
    R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", R"(\p{N})"};
constexpr std::string_view kFalcon[] = {R"([\p{P}\$\+<=>\^~\|`]+)", GPT2, R"([0-9][0-9][0-9])"};
constexpr std::string_view kBloom[] = {BLOOM};
constexpr std::string_view kViking[] = {BLOOM, R"(\p{N})"};
constexpr std::string_view kLines[] = {
    CONTRACTIONS "|" WORD R"(|\p{N}{1,3}|)" SIGNS "|" LINES
                 R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S))"
                 R"(|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"};
constexpr std::string_view kBailing[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*)"
    R"(|\s*[\r\n]|)" SPACES};
constexpr std::string_view kSeedCoder[] = {
    CONTRACTIONS "|" WORD R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)" LINES "|" SPACES};
constexpr std::string_view kUfakzeka[] = {WORD R"(|\p{N}|)" SIGNS "|" LINES "|" SPACES};
constexpr std::string_view kLaguna[] = {R"([^\n]+|[\n]+)", BY_DIGITS(R"(\p{N})")};
constexpr std::string_view kMiniCpm5[] = {R"(\p{N}{1,3})", BY_DIGITS(R"(\p{N}+)")};
constexpr std::string_view kYoutu[] = {
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019})"
    R"(\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+)"
    R"(|[\x{3105}-\x{312F}]+|)" CJK,
    CASED_WORDS(CONTRACTIONS "?") R"(|\p{N}|)" SIGNS_AND_SLASH "|" LINES "|" SPACES};

// clang-format off
constexpr GgufPreTokenizer kAll[] = {
    {"gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling", kGpt2},
    {"starcoder refact smollm codeshell exaone minerva-7b mellum2", kDigitsThenGpt2},
    {"command-r", kDigitsThenGpt2, false, false, true},
    {"qwen2 megrez", kOneDigit, false, false, true},
    {"deepseek-r1-qwen kormo f2llmv2 stablelm2 hunyuan solar-open grok-2", kOneDigit},
    {"qwen35", kQwen35, false, false, true},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2", kThreeDigits, true, true},
    {"glm4 glm5", kThreeDigits, true},
    {"chatglm-bpe dbrx smaug-bpe", kThreeDigits},
    {"gpt-4o kanana2 llama4 talkie", kO200k, true},
    {"minimax-m2", kO200k},
    {"tekken", kTekken, true, true},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", kDeepseek3},
    {"deepseek-coder", kDeepseekCoder},
    {"falcon", kFalcon},
    {"bloom gpt3-finnish poro-chat", kBloom},
    {"viking", kViking},
    {"jais-2", kLines},
    {"bailingmoe bailingmoe2 llada-moe", kBailing},
    {"seed-coder", kSeedCoder},
    {"ufakzeka", kUfakzeka},
    {"laguna", kLaguna},
    {"minicpm5", kMiniCpm5, true},
    {"youtu", kYoutu, true},
};
// clang-format on

bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  for (const GgufPreTokenizer& known : kAll) {
    if (has_word(known.names, name)) return &known;
  }
  return nullptr;
}

std::span<const GgufPreTokenizer> all_gguf_pre_tokenizers() {
  return kAll;
}

}  // namespace subbyte
