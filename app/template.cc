// subbyte template: the prompt that the chat template of a model makes of messages.

#include <fmt/format.h>

#include <cstdio>

#include "app/command.h"
#include "app/output.h"
#include "app/text_input.h"
#include "base/model_file.h"
#include "base/quote.h"
#include "checkpoints/model_path.h"
#include "completions/request.h"
#include "session/chat_prompt.h"
#include "text/chat_template.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string model;
  std::string messages;
  std::string tools;
  std::vector<std::string> settings;
  bool no_generation_prompt = false;
  bool continue_final_message = false;
  std::optional<std::string> now;
  bool json = false;
};

/// A template needs no model: a directory that has one will do, or its file.
Result<ChatTemplate> open_template(const std::string& name) {
  const std::filesystem::path path = name;
  if (path.extension() == ".jinja") {
    SUBBYTE_TRY(const std::string text, read_text(name));
    return ChatTemplate::compile(text, name);
  }
  std::filesystem::path directory = path;
  const bool is_directory_of_texts =
      is_there(directory / "tokenizer_config.json") || is_there(directory / "chat_template.jinja");
  if (!is_directory_of_texts) {
    SUBBYTE_TRY(const auto found, find_model(name));
    directory = model_directory(found);
  }
  SUBBYTE_TRY(auto found, ChatTemplate::read(directory));
  if (found) return std::move(*found);
  return Error{"template.none",
               fmt::format("{}: neither chat_template.jinja nor tokenizer_config.json has a chat "
                           "template; `subbyte chat` uses the format of the family",
                           directory.string())};
}

std::string name_of(const std::string& file) {
  return file == "-" ? "standard input" : file;
}

Result<json::Value> read_json(const std::string& file) {
  SUBBYTE_TRY(const std::string text, read_text(file));
  return json::parse(text, name_of(file), {}, json::kTextMemoryFactor);
}

/// A list of messages, which the template gets as it is, or a request, of which it gets what it
/// does when `run --prompts` answers it.
Result<TemplateInput> read_messages(const std::string& file, const ChatTemplate& chat) {
  SUBBYTE_TRY(json::Value value, read_json(file));
  if (value.is_object() && value.contains("messages")) {
    SUBBYTE_TRY(const json::Object object, json::Object::of(value, name_of(file)));
    SUBBYTE_TRY(const CompletionRequest request, read_chat(object));
    return template_input(chat, request.messages, request.chat);
  }
  TemplateInput input;
  input.messages = std::move(value);
  if (input.messages.is_array()) return input;
  return Error{"template.messages",
               fmt::format("{}: expected a list of messages, or an object with \"messages\"",
                           name_of(file))};
}

/// NAME=JSON
Status add_setting(const std::string& text, json::Value& variables) {
  const std::size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0) {
    return Error{"usage.set", fmt::format("--set: expected NAME=JSON, found {}", quote(text))};
  }
  const std::string name = text.substr(0, sign);
  const auto value = json::parse(std::string_view(text).substr(sign + 1), "--set " + name);
  if (!value.ok()) {
    return Error{"usage.set",
                 fmt::format("--set {}: expected JSON, such as true, 3 or '\"text\"': {}",
                             quote_name(name), value.error().message)};
  }
  variables[name] = *value;
  return {};
}

Result<TemplateInput> read_input(const Options& options, const ChatTemplate& chat) {
  SUBBYTE_TRY(TemplateInput input, read_messages(options.messages, chat));
  if (!options.tools.empty()) {
    SUBBYTE_TRY(input.tools, read_json(options.tools));
  }
  for (const std::string& setting : options.settings) {
    SUBBYTE_CHECK(add_setting(setting, input.variables));
  }
  if (options.no_generation_prompt) input.add_generation_prompt = false;
  if (options.continue_final_message) input.continue_final_message = true;
  const auto now = parse_time(options.now.value_or(today()));
  if (!now) {
    return Error{"usage.now",
                 "--now: expected a day such as 2025-08-05, or a time such as 2025-08-05T13:30:00"};
  }
  input.now = *now;
  return input;
}

json::Value as_json(const jinja::OriginText& text) {
  json::Value spans = json::Value::array();
  std::size_t begin = 0;
  for (const jinja::OriginText::Run& run : text.runs()) {
    spans.push_back({{"text", text.bytes().substr(begin, run.end - begin)},
                     {"from", run.origin == jinja::Origin::kInput ? "input" : "template"}});
    begin = run.end;
  }
  return {{"text", text.bytes()}, {"spans", std::move(spans)}};
}

Result<ExitCode> run(const Options& options) {
  SUBBYTE_TRY(const ChatTemplate chat, open_template(options.model));
  SUBBYTE_TRY(const TemplateInput input, read_input(options, chat));
  SUBBYTE_TRY(const jinja::OriginText text, chat.render(input));
  print(stdout, options.json ? json_text(as_json(text), -1) : text.bytes());
  return kOk;
}

}  // namespace

void add_template(Program& program, Invocation&) {
  Command command = program.add_command(
      "template", "Print the prompt that a model's chat template makes of messages",
      "  subbyte template ./model --messages chat.json\n"
      "  subbyte template ./model --messages chat.json --tools tools.json\n"
      "  subbyte template ./model --messages chat.json --set enable_thinking=false\n"
      "  subbyte template chat_template.jinja --messages - --json < chat.json");
  auto options = std::make_shared<Options>();
  command
      .option("MODEL,-m,--model", options->model,
              "directory, file of a template (.jinja) or org/name[@revision]")
      .required();
  command
      .option("--messages", options->messages,
              "JSON: a list of messages, or a request with messages; - is stdin")
      .value("FILE")
      .required();
  command.option("--tools", options->tools, "JSON: a list of tools").value("FILE");
  command.option("--set", options->settings, "give a variable of the template a value of JSON")
      .value("NAME=JSON");
  command.flag("--no-generation-prompt", options->no_generation_prompt,
               "end after the last message");
  command.flag("--continue-final-message", options->continue_final_message,
               "end within the last message, to go on with it");
  command.option("--now", options->now, "the day or time that the template sees (today)")
      .value("TIME");
  command.flag("--json", options->json, "print the text and where its parts come from");
  command.run([options] { return run(*options); });
}

}  // namespace subbyte::app
