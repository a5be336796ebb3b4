// subbyte template: the prompt that the chat template of a model makes of messages, or the format
// of its family where it brings none along.

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "app/command.h"
#include "app/output.h"
#include "app/text_input.h"
#include "base/model_file.h"
#include "base/quote.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/model_path.h"
#include "completions/request.h"
#include "models/model_config.h"
#include "session/chat_prompt.h"
#include "session/text_setup.h"
#include "text/chat_messages.h"
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

/// What makes prompts: the template of a model, or the format of its family.
struct Form {
  std::optional<ChatTemplate> own;
  std::unique_ptr<TextSetup> built_in;
};

/// The format of a model that brings no template along.
Result<Form> open_built_in(const ModelFiles& files) {
  std::error_code failure;
  if (std::filesystem::is_directory(files.path(), failure) && !files.has(kConfigFile)) {
    return Error{"template.none",
                 fmt::format("{}: neither chat_template.jinja nor tokenizer_config.json has a chat "
                             "template, and without a config.json there is no family with a format",
                             files.directory().string())};
  }
  SUBBYTE_TRY(const ModelConfig config, read_model_config(files));
  SUBBYTE_TRY(std::unique_ptr<TextSetup> text, TextSetup::read(files, config));
  return Form{{}, std::move(text)};
}

/// A template needs no model: a directory that has one will do, or its file.
Result<Form> open_form(const std::string& name) {
  const std::filesystem::path path = name;
  if (path.extension() == ".jinja") {
    SUBBYTE_TRY(const std::string text, read_text(name));
    SUBBYTE_TRY(ChatTemplate compiled, ChatTemplate::compile(text, name));
    return Form{std::move(compiled), {}};
  }
  std::filesystem::path model = path;
  const bool is_directory_of_texts =
      is_there(path / "tokenizer_config.json") || is_there(path / "chat_template.jinja");
  if (!is_directory_of_texts) {
    SUBBYTE_TRY(model, find_model(name));
  }
  const ModelFiles files(model);
  SUBBYTE_TRY(auto found, ChatTemplate::read(files));
  if (found) return Form{std::move(*found), {}};
  return open_built_in(files);
}

std::string name_of(const std::string& file) {
  return file == "-" ? "standard input" : file;
}

Result<json::Value> read_json(const std::string& file) {
  SUBBYTE_TRY(const std::string text, read_text(file));
  return json::parse(text, name_of(file), {}, json::kTextMemoryFactor);
}

/// A list of messages, which a template gets as it is, or a request, of which it gets what it does
/// when `run --prompts` answers it.
struct Asked {
  Request request;
  bool is_request = false;
};

Result<Asked> read_asked(const std::string& file) {
  SUBBYTE_TRY(json::Value value, read_json(file));
  if (value.is_object() && value.contains("messages")) {
    SUBBYTE_TRY(const json::Object object, json::Object::of(value, name_of(file)));
    SUBBYTE_TRY(CompletionRequest request, read_chat(object));
    return Asked{std::move(request), true};
  }
  if (value.is_array()) return Asked{{.messages = messages_of(value)}, false};
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

/// What the flags say.
Status apply(const Options& options, Request& request) {
  if (!options.tools.empty()) {
    SUBBYTE_TRY(json::Value tools, read_json(options.tools));
    request.tools = std::move(tools);
  }
  json::Value variables = request.template_variables;
  for (const std::string& setting : options.settings) {
    SUBBYTE_CHECK(add_setting(setting, variables));
  }
  request.template_variables = std::move(variables);
  if (options.no_generation_prompt) request.add_generation_prompt = false;
  if (options.continue_final_message) request.continue_final_message = true;
  return {};
}

/// Parts of a prompt, one after the other.
struct Span {
  std::string text;
  bool is_input;
};

/// Flags are not asked whether the template has a place for what they say.
Result<std::vector<Span>> render_own(const Options& options, const ChatTemplate& own, Asked asked,
                                     const std::tm& now) {
  TemplateInput input;
  if (asked.is_request) {
    SUBBYTE_TRY(input, template_input(own, asked.request));
  } else {
    input.messages = to_json(asked.request.messages);
  }
  Request flags = {.add_generation_prompt = input.add_generation_prompt,
                   .continue_final_message = input.continue_final_message};
  SUBBYTE_CHECK(apply(options, flags));
  if (!flags.tools.is_null()) input.tools = flags.tools;
  for (const auto& [name, value] : flags.template_variables.items()) {
    input.variables[name] = value;
  }
  input.add_generation_prompt = flags.add_generation_prompt;
  input.continue_final_message = flags.continue_final_message;
  input.now = now;
  SUBBYTE_TRY(const jinja::OriginText text, own.render(input));
  std::vector<Span> spans;
  std::size_t begin = 0;
  for (const jinja::OriginText::Run& run : text.runs()) {
    spans.push_back({std::string(text.bytes().substr(begin, run.end - begin)),
                     run.origin == jinja::Origin::kInput});
    begin = run.end;
  }
  return spans;
}

/// Of a format that is built in only the control tokens are known to be no text of a message.
Result<std::vector<Span>> render_built_in(const Options& options, const TextSetup& text,
                                          Asked asked, const std::string& day) {
  SUBBYTE_CHECK(apply(options, asked.request));
  asked.request.date = day;
  SUBBYTE_TRY(const auto segments, built_in_prompt(text, asked.request));
  std::vector<Span> spans;
  for (const PromptSegment& segment : segments) {
    spans.push_back({segment.text, !segment.is_control});
  }
  return spans;
}

std::string as_text(const std::vector<Span>& spans) {
  std::string text;
  for (const Span& span : spans) text += span.text;
  return text;
}

json::Value as_json(const std::vector<Span>& spans) {
  json::Value list = json::Value::array();
  for (const Span& span : spans) {
    list.push_back({{"text", span.text}, {"from", span.is_input ? "input" : "template"}});
  }
  return {{"text", as_text(spans)}, {"spans", std::move(list)}};
}

Result<ExitCode> run(const Options& options) {
  SUBBYTE_TRY(const Form form, open_form(options.model));
  const std::string time = options.now.value_or(time_now());
  const auto now = parse_time(time);
  if (!now) {
    return Error{"usage.now",
                 "--now: expected a day such as 2025-08-05, or a time such as 2025-08-05T13:30:00"};
  }
  SUBBYTE_TRY(Asked asked, read_asked(options.messages));
  constexpr std::size_t kDayLength = 10;
  SUBBYTE_TRY(const auto spans, form.own
                                    ? render_own(options, *form.own, std::move(asked), *now)
                                    : render_built_in(options, *form.built_in, std::move(asked),
                                                      time.substr(0, kDayLength)));
  print(stdout, options.json ? json_text(as_json(spans), -1) : as_text(spans));
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
  command.model(options->model, "directory, GGUF file, template (.jinja) or org/name[@revision]");
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
  command.option("--now", options->now, "the day or time that the template sees (now)")
      .value("TIME");
  command.flag("--json", options->json, "print the text and where its parts come from");
  command.run([options] { return run(*options); });
}

}  // namespace subbyte::app
