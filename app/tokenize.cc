// subbyte tokenize and detokenize: text to ids and back.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "app/command.h"
#include "app/output.h"
#include "app/text_input.h"
#include "base/model_file.h"
#include "base/utf8.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/model_path.h"
#include "subbyte/json.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string model;
  std::vector<std::string> words;
  bool from_stdin = false;
  bool keep_newline = false;
  bool special = false;
  bool pieces = false;
  bool json = false;
};

/// A tokenizer needs no model: its file, or a directory that has it, will do.
Result<Tokenizer> open_tokenizer(const std::string& name) {
  std::error_code failure;
  const std::filesystem::path file = name;
  const bool is_model =
      file.extension() == ".gguf" || file.extension() == ".safetensors" || is_model_file(file);
  if (!is_model && std::filesystem::is_regular_file(file, failure)) {
    // A link that the user names may lead anywhere, unlike those in a model.
    const auto path = std::filesystem::canonical(file, failure);
    return Tokenizer::load(failure ? file : path);
  }
  const std::filesystem::path directory = name;
  if (is_there(directory / "tokenizer.json")) {
    return load_tokenizer(directory);
  }
  SUBBYTE_TRY(const auto found, find_model(name));
  return load_tokenizer(ModelFiles(found));
}

/// What was given as arguments, with a blank between them as `echo` has it, or on standard input.
Result<std::string> input_of(const Options& options) {
  if (options.words.empty() || options.from_stdin) {
    return options.keep_newline ? read_text("-") : read_prompt("-");
  }
  return fmt::format("{}", fmt::join(options.words, " "));
}

/// The bytes of a token as text where they are some, else as a list of numbers.
Json piece_of(const Tokenizer& tokenizer, TokenId id) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  if (!find_invalid_utf8(bytes)) return bytes;
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

std::string as_json(const Options& options, const Tokenizer& tokenizer,
                    const std::vector<TokenId>& ids) {
  Json root = {{"ids", ids}, {"count", ids.size()}};
  if (options.pieces) {
    root["pieces"] = Json::array();
    for (const TokenId id : ids) root["pieces"].push_back(piece_of(tokenizer, id));
  }
  return json_text(root, -1);
}

std::string as_text(const Options& options, const Tokenizer& tokenizer,
                    const std::vector<TokenId>& ids) {
  if (!options.pieces) return line("{}", fmt::join(ids, ","));
  std::string text;
  for (const TokenId id : ids) text += line("{:>7}  {}", id, quote(tokenizer.token_bytes(id)));
  return text;
}

Result<ExitCode> tokenize(const Options& options) {
  SUBBYTE_TRY(const Tokenizer tokenizer, open_tokenizer(options.model));
  SUBBYTE_TRY(const std::string text, input_of(options));
  SUBBYTE_TRY(const auto ids,
              tokenizer.encode_prompt(
                  text, options.special ? SpecialTokens::kRecognize : SpecialTokens::kAsText));
  print(stdout, options.json ? as_json(options, tokenizer, ids) : as_text(options, tokenizer, ids));
  return kOk;
}

Result<ExitCode> detokenize(const Options& options) {
  SUBBYTE_TRY(const Tokenizer tokenizer, open_tokenizer(options.model));
  SUBBYTE_TRY(const std::string list, input_of(options));
  SUBBYTE_TRY(const std::vector<TokenId> ids, parse_ids(list));
  SUBBYTE_TRY(std::string text, tokenizer.decode(ids, /*skip_special=*/!options.special));
  print(stdout, options.json ? json_text({{"text", text}}, -1) : text + "\n");
  return kOk;
}

}  // namespace

void add_tokenize(Program& program, Invocation&) {
  Command command =
      program.add_command("tokenize", "Print the token ids of a text",
                          "  subbyte tokenize ./model \"Hello world\"\n"
                          "  subbyte tokenize ./model Hello world --pieces\n"
                          "  subbyte tokenize ./model --stdin --json < book.txt\n"
                          "  subbyte tokenize ./model --special \"<|im_start|>user\"");
  auto options = std::make_shared<Options>();
  command.model(options->model, "directory, GGUF file, tokenizer.json or org/name[@revision]");
  const Argument text = command.option(
      "TEXT", options->words,
      "the text; words are joined by blanks (default: stdin, without the newline at its end)");
  command.flag("--stdin", options->from_stdin, "read the text from stdin").excludes(text);
  command.flag("--keep-newline", options->keep_newline, "with the newline at the end of stdin")
      .excludes(text);
  command.flag("--special", options->special, "recognise special tokens in the text");
  command.flag("--pieces", options->pieces, "show what each token is");
  command.flag("--json", options->json, "print {\"ids\": [...], \"count\": ...}");
  command.run([options] { return tokenize(*options); });
}

void add_detokenize(Program& program, Invocation&) {
  Command command = program.add_command("detokenize", "Print the text of token ids",
                                        "  subbyte detokenize ./model 9707,1879\n"
                                        "  subbyte detokenize ./model 9707 1879\n"
                                        "  subbyte tokenize ./model Hello --json | subbyte "
                                        "detokenize ./model");
  auto options = std::make_shared<Options>();
  command.model(options->model, "directory, GGUF file, tokenizer.json or org/name[@revision]");
  const Argument text = command.option(
      "IDS", options->words, "ids with commas or blanks between them, or JSON (default: stdin)");
  command.flag("--stdin", options->from_stdin, "read the ids from stdin").excludes(text);
  command.flag("--special", options->special, "show special tokens");
  command.flag("--json", options->json, "print {\"text\": \"...\"}");
  command.run([options] { return detokenize(*options); });
}

}  // namespace subbyte::app
