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
#define DEEPSEEK_LETTERS                                                                       \
  R"(A-Za-z\x{00B5}\x{00C0}-\x{00D6}\x{00D8}-\x{00F6}\x{00F8}-\x{01BA}\x{01BC}-\x{01BF})"      \
  R"(\x{01C4}-\x{0293}\x{0295}-\x{02AF}\x{0370}-\x{0373}\x{0376}\x{0377}\x{037B}-\x{037D})"    \
  R"(\x{037F}\x{0386}\x{0388}-\x{038A}\x{038C}\x{038E}-\x{03A1}\x{03A3}-\x{03F5})"             \
  R"(\x{03F7}-\x{0481}\x{048A}-\x{052F}\x{0531}-\x{0556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"   \
  R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77})"   \
  R"(\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"   \
  R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"             \
  R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3})"            \
  R"(\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"    \
  R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"     \
  R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"     \
  R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"    \
  R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})"   \
  R"(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})" \
  R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"            \
  R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"
#define SCRIPTS_WITHOUT_BLANKS                                                               \
  R"(\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF})" \
  R"(\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF})" \
  R"(\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF})"
#define BLOOM R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+)"

#define O200K CASED_WORDS(CONTRACTIONS "?") R"(|\p{N}{1,3}|)" SIGNS_AND_SLASH "|" LINES "|" SPACES
#define BY_DIGITS(digits) CONTRACTIONS "|" WORD "|" digits "|" SIGNS "|" LINES "|" SPACES

constexpr std::string_view kGpt2[] = {GPT2};
constexpr std::string_view kDigitsThenGpt2[] = {R"(\p{N})", GPT2};
constexpr std::string_view kOneDigit[] = {BY_DIGITS(R"(\p{N})")};
constexpr std::string_view kThreeDigits[] = {BY_DIGITS(R"(\p{N}{1,3})")};
constexpr std::string_view kQwen35[] = {
    CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" LINES
                 "|" SPACES};
constexpr std::string_view kO200k[] = {O200K};
constexpr std::string_view kTekken[] = {CASED_WORDS("") R"(|\p{N}|)" SIGNS_AND_SLASH "|" LINES
                                                        "|" SPACES};
constexpr std::string_view kDeepseek3[] = {
    R"(\p{N}{1,3})", CJK,
    ASCII_SIGNS "|" WORD_OF_MARKS R"(| ?[\p{P}\p{S}]+[\r\n]*|)" LINES "|" SPACES};
constexpr std::string_view kDeepseekCoder[] = {
    R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
    R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", R"(\p{N})"};
// Of \p{N}+ what numbers are cut before: three digits from their end, six, and so on.
constexpr std::string_view kSuperBpe[] = {R"(\p{N}+)", R"([\s\S](?:(?!(?:\d{3})+(?!\d))[\s\S])*)"};
constexpr std::string_view kDeepseekLlm[] = {
    R"([\r\n])",
    R"(\s?[)" DEEPSEEK_LETTERS R"(]+)",
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)",
    R"(\p{N}+)"};
constexpr std::string_view kSpark[] = {
    R"(\p{N}{1,3})", CJK, ASCII_SIGNS "|" WORD_OF_MARKS R"(| ?[\p{P}\p{S}]+|[\r\n]|)" SPACES,
    R"(\p{N})"};
constexpr std::string_view kAfmoe[] = {
    R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))", "[" SCRIPTS_WITHOUT_BLANKS "]+",
    ASCII_SIGNS "|" WORD_OF_MARKS R"(| ?[\p{P}\p{S}]+[\r\n]*|)" LINES "|" SPACES};
constexpr std::string_view kTinyAya[] = {R"(\d{1,3}(?=(?:\d{3})*(?![\p{L}\p{M}\p{N}\p{Pc}])))",
                                         O200K};
constexpr std::string_view kExaoneMoe[] = {
    CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
                 R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|)" SPACES};
constexpr std::string_view kKimi[] = {R"([\p{Han}]+|)" FIRST
                                      R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
                                      R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)" CONTRACTIONS
                                      "?|" FIRST R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
                                      R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)" CONTRACTIONS
                                      R"(?|\p{N}{1,3}|)" SIGNS "|" LINES "|" SPACES};
constexpr std::string_view kChameleon[] = {"<sentinel:[0-9]+>",       "IMGIMG[A-I]{1,4}Z",
                                           R"([\t\n]|    |  )",       R"(\p{N})",
                                           R"([\p{P}!-/:-@\[-`{-~])", GPT2};
constexpr std::string_view kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)", GPT2, R"(\p{N}+)",
                                         R"([0-9][0-9][0-9])"};
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
    {"gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling "
     "jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe modern-bert",
     kGpt2},
    {"starcoder refact smollm codeshell exaone minerva-7b mellum2", kDigitsThenGpt2},
    {"command-r", kDigitsThenGpt2, false, false, true},
    {"qwen2 megrez", kOneDigit, false, false, true},
    {"deepseek-r1-qwen kormo f2llmv2 stablelm2 hunyuan solar-open grok-2", kOneDigit},
    {"qwen35", kQwen35, false, false, true},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     kThreeDigits, true, true},
    {"glm4 glm5", kThreeDigits, true},
    {"chatglm-bpe dbrx smaug-bpe", kThreeDigits},
    {"gpt-4o kanana2 llama4 talkie granite-embed-multi-97m", kO200k, true},
    {"minimax-m2", kO200k},
    {"tekken", kTekken, true, true},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", kDeepseek3},
    {"deepseek-coder", kDeepseekCoder},
    {"deepseek-llm", kDeepseekLlm},
    {"spark2_5", kSpark},
    {"kimi-k2", kKimi},
    {"afmoe", kAfmoe},
    {"tiny_aya cohere2moe", kTinyAya},
    {"superbpe", kSuperBpe},
    {"exaone-moe", kExaoneMoe},
    {"chameleon", kChameleon, false, true},
    {"default", kDefault},
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
    {.names = "gemma4 granite-embed-multi-311m sarvam-moe", .of_characters = true},
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
