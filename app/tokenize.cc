// subbyte tokenize and detokenize: text to ids and back.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/output.h"
#include "base/model_file.h"
#include "checkpoints/model_path.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string model;
  std::optional<std::string> text;
  bool from_stdin = false;
  bool special = false;
  bool json = false;
};

/// A tokenizer needs no model: its file, or a directory that has it, will do.
Result<Tokenizer> open_tokenizer(const std::string& name) {
  std::error_code failure;
  if (std::filesystem::is_regular_file(name, failure)) {
    // A link that the user names may lead anywhere, unlike those in a model.
    const auto path = std::filesystem::canonical(name, failure);
    return Tokenizer::load(failure ? std::filesystem::path(name) : path);
  }
  const std::filesystem::path directory = name;
  if (is_there(directory / "tokenizer.json")) {
    return load_tokenizer(directory);
  }
  SUBBYTE_TRY(const auto found, find_model(name));
  return load_tokenizer(model_directory(found));
}

Result<std::string> input_of(const Options& options) {
  if (options.text && !options.from_stdin) return *options.text;
  return read_text("-");
}

Result<ExitCode> tokenize(const Options& options) {
  SUBBYTE_TRY(const Tokenizer tokenizer, open_tokenizer(options.model));
  SUBBYTE_TRY(const std::string text, input_of(options));
  SUBBYTE_TRY(const auto ids, tokenizer.encode(text, options.special ? SpecialTokens::kRecognize
                                                                     : SpecialTokens::kAsText));
  const std::string output = options.json ? line("{{\"ids\": [{}]}}", fmt::join(ids, ", "))
                                          : line("{}", fmt::join(ids, ","));
  print(stdout, output);
  return kOk;
}

Result<ExitCode> detokenize(const Options& options) {
  SUBBYTE_TRY(const Tokenizer tokenizer, open_tokenizer(options.model));
  SUBBYTE_TRY(std::string list, input_of(options));
  while (!list.empty() && (list.back() == '\n' || list.back() == ' ')) list.pop_back();
  std::vector<TokenId> ids;
  if (!list.empty()) {
    SUBBYTE_TRY(ids, parse_ids(list));
  }
  SUBBYTE_TRY(std::string text, tokenizer.decode(ids, /*skip_special=*/!options.special));
  print(stdout, options.json ? json_text({{"text", text}}, -1) : text + "\n");
  return kOk;
}

}  // namespace

void add_tokenize(CLI::App& app, Invocation& invocation) {
  Command command = add_command(app, "tokenize", "Print the token ids of a text",
                                "  subbyte tokenize ./model \"Hello world\"\n"
                                "  subbyte tokenize ./model --stdin --json < book.txt\n"
                                "  subbyte tokenize ./model --special \"<|im_start|>user\"");
  auto options = std::make_shared<Options>();
  command.option("MODEL", options->model, "directory, tokenizer.json or org/name[@revision]")
      .required();
  const Argument text = command.option("TEXT", options->text, "the text (default: stdin)");
  command.flag("--stdin", options->from_stdin, "read the text from stdin").excludes(text);
  command.flag("--special", options->special, "recognise special tokens in the text");
  command.flag("--json", options->json, "print {\"ids\": [...]}");
  command.callback(
      [options, &invocation] { invocation.run = [options] { return tokenize(*options); }; });
}

void add_detokenize(CLI::App& app, Invocation& invocation) {
  Command command = add_command(app, "detokenize", "Print the text of token ids",
                                "  subbyte detokenize ./model 9707,1879\n"
                                "  subbyte tokenize ./model Hello | subbyte detokenize ./model");
  auto options = std::make_shared<Options>();
  command.option("MODEL", options->model, "directory, tokenizer.json or org/name[@revision]")
      .required();
  const Argument text =
      command.option("IDS", options->text, "ids separated by commas (default: stdin)");
  command.flag("--stdin", options->from_stdin, "read the ids from stdin").excludes(text);
  command.flag("--special", options->special, "show special tokens");
  command.flag("--json", options->json, "print {\"text\": \"...\"}");
  command.callback(
      [options, &invocation] { invocation.run = [options] { return detokenize(*options); }; });
}

}  // namespace subbyte::app
