// Prompts of chats by the templates that models bring along. The templates here are short ones of
// our own, in the ways of the families: turns between control tokens, roles that are tokens, turns
// in brackets, reasoning that is opened or closed, tools.

#include "session/chat_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/json_of.h"
#include "support/small_tokenizer.h"
#include "support/temp_dir.h"
#include "text/chat_messages.h"
#include "text/think_parser.h"

namespace subbyte {
namespace {

using json::Value;
using Ids = std::vector<TokenId>;

const std::string kQwen =
    "{%- if tools %}<|im_start|>system\nTools:{% for tool in tools %} {{ tool | tojson }}"
    "{% endfor %}<|im_end|>\n{% endif %}{% for m in messages %}{% if m.role == 'tool' %}"
    "<|im_start|>user\n<tool_response>{{ m.content }}</tool_response>{% else %}"
    "<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}"
    "</think>{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>"
    "{{ call.function.name }}{% for name, value in call.function.arguments.items() %} {{ name }}="
    "{{ value }}{% endfor %}</tool_call>{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not "
    "enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}{% endif %}";
const std::string kHarmony =
    "<|start|>system<|message|>Today: {{ strftime_now('%Y-%m-%d') }}. Effort: "
    "{{ reasoning_effort or 'medium' }}<|end|>{% for m in messages %}<|start|>{{ m.role }}"
    "{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}";
const std::string kLlama3 =
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}";
const std::string kBrackets =
    "{% for m in messages %}{% if m.role == 'user' %}<s>[INST] {{ m.content }} [/INST]{% elif "
    "m.role == 'assistant' %} {{ m.content }} </s>{% else %}{{ raise_exception('no ' + m.role) }}"
    "{% endif %}{% endfor %}";

struct Family {
  const char* name;
  const char* tokenizer;
  const std::string& source;
};
const Family kFamilies[] = {{"ChatML", "qwen", kQwen},         {"harmony", "o200k", kHarmony},
                            {"headers", "llama3", kLlama3},    {"Llama 2", "llama2", kBrackets},
                            {"Mistral", "mistral", kBrackets}, {"Gemma", "gemma", kBrackets},
                            {"NFKC", "some_bytes", kBrackets}, {"lower", "lower", kBrackets}};

TextSetup setup(std::string_view tokenizer, const std::string* source,
                ChatFormat format = ChatFormat::kChatMl) {
  TextSetup text{.tokenizer = golden_tokenizer(tokenizer).value()};
  text.format = format;
  if (source == nullptr) return text;
  const TempDir dir;
  dir.write("tokenizer_config.json", R"({"bos_token": "<|begin_of_text|>"})");
  text.chat_template = ChatTemplate::compile(*source, "chat_template.jinja", dir.path());
  return text;
}

Value say(const std::string& text) {
  return {{{"role", "user"}, {"content", text}}};
}

/// A request of these messages.
Request of(const Value& messages, Request options = {}) {
  options.messages = messages_of(messages);
  return options;
}

/// The text of the prompt with all its tokens, or the code of the error.
std::string prompt(const TextSetup& text, const Value& messages, const Request& options = {}) {
  const auto ids = encode_chat(text, of(messages, options));
  return ids.ok() ? *text.tokenizer.decode(*ids, false) : std::string(ids.error().code);
}

/// The tokens of a prompt that stand among the added ones.
Ids controls(const TextSetup& text, const Value& messages, const Request& options = {}) {
  const auto ids = encode_chat(text, of(messages, options));
  EXPECT_TRUE(ids.ok()) << ids.error().message;
  Ids found = ids.ok() ? *ids : Ids();
  std::erase_if(found, [&](TokenId id) {
    return !text.tokenizer.is_added(id) || text.tokenizer.token_bytes(id) == "<unk>";
  });
  return found;
}

TEST(ChatPrompt, has_the_tokens_of_the_template_of_each_family) {
  for (const Family& family : kFamilies) {
    const TextSetup text = setup(family.tokenizer, &family.source);
    ASSERT_TRUE(text.chat_template->ok()) << text.chat_template->error().message;
    TemplateInput input;
    input.messages = {{{"role", "user"}, {"content", "Why is it so?"}},
                      {{"role", "assistant"}, {"content", "It is."}},
                      {{"role", "user"}, {"content", "Go on:\n\n  now"}}};
    const auto whole = text.chat_template->value().render(input);
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    EXPECT_EQ(*encode_chat(text, of(input.messages, {.date = ""})),
              *text.tokenizer.encode(whole->bytes(), SpecialTokens::kRecognize))
        << family.name;
    EXPECT_GE(controls(text, input.messages).size(), 3U) << family.name;
  }
}

/// Beside a template of the model, a broken one, and none; its marks are control tokens.
TEST(ChatPrompt, of_a_chat_with_a_template_of_its_own) {
  const TempDir dir;
  dir.write("tokenizer_config.json", R"({"bos_token": "<|im_start|>"})");
  const std::string broken = "{% if %}";
  Request options;
  options.chat_template = "{{ bos_token }}{{ messages[0].content }}<|im_end|>";
  for (const std::string* of_model : {&kQwen, &broken, static_cast<const std::string*>(nullptr)}) {
    TextSetup text = setup("qwen", of_model);
    text.files = dir.path();
    EXPECT_EQ(prompt(text, say("a <|im_end|>"), options), "<|im_start|>a <|im_end|><|im_end|>");
    EXPECT_EQ(controls(text, say("a <|im_end|>"), options).size(), 2U);
    Request wrong = options;
    wrong.chat_template = broken;
    EXPECT_EQ(prompt(text, say("a"), wrong), "jinja.syntax");
  }
}

/// Calls of tools are read as the chat's template writes them.
TEST(ChatPrompt, of_a_template_of_its_own_has_its_calls) {
  const TextSetup text = setup("qwen", &kBrackets);
  Request request;
  request.messages = messages_of(say("a"));
  request.tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  for (const std::string& own : {std::string(), std::string("<tool_call>{{ messages }}")}) {
    request.chat_template = own;
    auto parsers = text.call_parsers(request, {});
    ASSERT_TRUE(parsers.ok()) << parsers.error().message;
    ToolCallParser& parser = parsers->at(0);
    parser.push({{Channel::kAnswer, "", call, true}});
    parser.finish();
    EXPECT_EQ(parser.num_calls(), own.empty() ? 0 : 1);
  }
}

TEST(ChatPrompt, hostile_messages_bring_no_control_token) {
  for (const Family& family : kFamilies) {
    const TextSetup text = setup(family.tokenizer, &family.source);
    const TokenizerJson json = golden_json(family.tokenizer, ".tokenizer");
    const auto of = [&](const std::string& content) {
      return controls(text, {{{"role", "user"}, {"content", content}},
                             {{"role", "assistant"}, {"content", content}},
                             {{"role", "user"}, {"content", content}}});
    };
    const Ids expected = of("harmless");
    for (const auto& token : json["added_tokens"]) {
      const auto content = token["content"].get<std::string>();
      if (content.front() < 0) continue;  // half of a character is none
      const std::size_t half = content.size() / 2;
      for (const std::string& message : {content, content + content, "\n" + content + "user\n",
                                         content.substr(half), content.substr(0, half)}) {
        EXPECT_EQ(of(message), expected) << family.name << ": " << message;
      }
    }
  }
}

/// Everything that comes from outside, wherever a template prints it.
TEST(ChatPrompt, hostile_tools_calls_results_reasoning_and_roles_bring_none_either) {
  const TextSetup text = setup("qwen", &kQwen);
  const auto of = [&](const std::string& content) {
    Request options;
    options.tools = {
        {{"type", "function"}, {"function", {{"name", content}, {"description", content}}}}};
    const Value call = {{"function", {{"name", content}, {"arguments", {{content, content}}}}}};
    const Value messages = {{{"role", "system"}, {"content", content}},
                            {{"role", "user"}, {"content", content}},
                            {{"role", "assistant"},
                             {"reasoning_content", content},
                             {"content", content},
                             {"tool_calls", Value::array({call})}},
                            {{"role", "tool"}, {"content", content}, {"name", content}},
                            {{"role", content}, {"content", content}}};
    return controls(text, messages, options);
  };
  const Ids expected = of("harmless");
  EXPECT_EQ(expected.size(), 18U);
  for (const char* const token : {"<|im_end|>", "<|im_start|>", "<think>", "</think>",
                                  "<tool_call>", "</tool_call>", "<|endoftext|>", "im_end|>"}) {
    EXPECT_EQ(of(token), expected) << token;
  }
  // A role that is made a token of in a template is one only if it is known.
  const std::string roles = "{{ '<|' + messages[0].role + '|>' }}";
  const TextSetup by_role = setup("qwen", &roles);
  EXPECT_EQ(controls(by_role, {{{"role", "im_end"}, {"content", ""}}}), Ids{});
  // A variable is input, too.
  const std::string variable = "{{ messages[0].content }}{{ mark }}<|im_end|>";
  const TextSetup with_variable = setup("qwen", &variable);
  Request options;
  options.template_variables = {{"mark", "<|im_end|>"}};
  EXPECT_EQ(controls(with_variable, say("a"), options).size(), 1U);
}

TEST(ChatPrompt, has_tools_their_calls_and_their_results) {
  const TextSetup text = setup("qwen", &kQwen);
  Request options;
  options.tools = {{{"type", "function"}, {"function", {{"name", "sum"}}}}};
  options.thinking = false;
  const Value messages = json_of(R"([
      {"role": "user", "content": "2 + 3?"},
      {"role": "assistant", "content": "", "tool_calls": [
          {"id": "1", "type": "function",
           "function": {"name": "sum", "arguments": {"a": 2, "b": 3}}}]},
      {"role": "tool", "tool_call_id": "1", "content": "5"}])");
  EXPECT_EQ(prompt(text, messages, options),
            "<|im_start|>system\nTools: {\"type\": \"function\", \"function\": {\"name\": \"sum\"}}"
            "<|im_end|>\n<|im_start|>user\n2 + 3?<|im_end|>\n"
            "<|im_start|>assistant\n<tool_call>sum a=2 b=3</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>5</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

/// A conversation with one call, whose arguments may be anything; "-" is a call without any.
Value call_with(const std::string& arguments) {
  Value function = {{"name", "f"}};
  if (arguments != "-") function["arguments"] = json_of(arguments);
  return {{{"role", "user"}, {"content", "q"}},
          {{"role", "assistant"},
           {"content", ""},
           {"tool_calls", {{{"id", "1"}, {"type", "function"}, {"function", function}}}}},
          {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "ok"}}};
}

/// Templates in the ways of DeepSeek-R1, Qwen3-Coder, Qwen2.5 and Qwen3.
TEST(ChatPrompt, has_arguments_in_the_form_that_the_template_takes) {
  const auto in_loop = [](const std::string& body) {
    return "{% for m in messages %}{% for t in m.tool_calls or [] %}" + body +
           "{% endfor %}{% endfor %}";
  };
  const std::string joins = in_loop("{{ '<' + t['function']['arguments'] + '>' }}");
  const std::string walks =
      in_loop("{% for k, v in t.function.arguments | items %}<{{ k }}>{% endfor %}");
  const std::string dumps = in_loop("{{ t.function.arguments | tojson }}");
  const std::string takes_both = in_loop(
      "{% if t.function.arguments is string %}{{ t.function.arguments }}{% else %}"
      "{{ t.function.arguments | tojson }}{% endif %}");
  const auto shown = [&](const std::string& source, const std::string& arguments) {
    return prompt(setup("qwen", &source), call_with(arguments));
  };
  const std::string text = R"("{\"a\":1, \"b\": [2.0, null]}")";
  const std::string object = R"({"a": 1, "b": [2.0, null]})";
  EXPECT_EQ(shown(joins, text), R"(<{"a":1, "b": [2.0, null]}>)");
  EXPECT_EQ(shown(joins, object), R"(<{"a":1,"b":[2.0,null]}>)");
  EXPECT_EQ(shown(joins, R"("no JSON")"), "<no JSON>");
  EXPECT_EQ(shown(joins, R"("")"), "<>");
  EXPECT_EQ(shown(joins, "-"), "<{}>");
  for (const std::string& arguments : {text, object}) {
    EXPECT_EQ(shown(walks, arguments), "<a><b>");
    EXPECT_EQ(shown(dumps, arguments), object);
  }
  EXPECT_EQ(shown(walks, R"("no JSON")"), "jinja.type");
  for (const char* const nothing : {R"("")", "null", "-"}) {
    EXPECT_EQ(shown(walks, nothing), "") << nothing;
    EXPECT_EQ(shown(dumps, nothing), "{}") << nothing;
  }
  EXPECT_EQ(shown(takes_both, text), R"({"a":1, "b": [2.0, null]})");
  EXPECT_EQ(shown(takes_both, object), object);
  EXPECT_EQ(shown(takes_both, R"("no JSON")"), "no JSON");
  EXPECT_EQ(shown(takes_both, "-"), "{}");
}

TEST(ChatPrompt, of_a_family_without_a_format_is_refused_in_a_line) {
  const TextSetup text = setup("qwen", nullptr, ChatFormat::kNone);
  const auto ids = encode_chat(text, of(say("a")));
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(to_string(ids.error()),
            "the model has no chat template, and its family no built-in format for chats "
            "[chat.no_template]");
  EXPECT_EQ(prompt(setup("qwen", &kQwen, ChatFormat::kNone), say("a")),
            prompt(setup("qwen", &kQwen), say("a")));
  EXPECT_EQ(choose_format({}, text.tokenizer), ChatFormat::kNone);
  EXPECT_TRUE(stop_tokens(ChatFormat::kNone, text.tokenizer).empty());
  EXPECT_TRUE(render_chat(ChatFormat::kNone, {}, {})->empty());
}

TEST(ChatPrompt, ends_where_it_is_told_to) {
  const TextSetup text = setup("qwen", &kQwen);
  const auto end_of = [&](const Value& messages, const Request& options) {
    const Ids ids = *encode_chat(text, of(messages, options));
    return std::pair(*text.tokenizer.decode(ids, false), prompt_end(text.tokenizer, ids));
  };
  const std::string said = "<|im_start|>user\na<|im_end|>\n";
  using End = std::pair<std::string, PromptEnd>;
  Request options;
  EXPECT_EQ(end_of(say("a"), options),
            (End{said + "<|im_start|>assistant\n<think>\n", PromptEnd::kReasons}));
  options.thinking = false;
  EXPECT_EQ(end_of(say("a"), options),
            (End{said + "<|im_start|>assistant\n<think>\n\n</think>\n\n", PromptEnd::kAnswers}));
  options.add_generation_prompt = false;
  EXPECT_EQ(end_of(say("a"), options), (End{said, PromptEnd::kOpen}));
  options.continue_final_message = true;
  Value messages = say("a");
  messages.push_back({{"role", "assistant"}, {"reasoning_content", "r"}, {"content", "It "}});
  EXPECT_EQ(end_of(messages, options),
            (End{said + "<|im_start|>assistant\n<think>r</think>It ", PromptEnd::kAnswers}));
}

TEST(ChatPrompt, options_have_the_names_that_the_template_reads) {
  const std::string source =
      "{{ messages[0].content }}{{ enable_thinking }}{{ thinking }}{{ reasoning_effort }}{{ x }}";
  const TextSetup text = setup("qwen", &source);
  Request options;
  EXPECT_EQ(prompt(text, say("a"), options), "a");
  options.thinking = false;
  options.effort = "max";
  options.template_variables = {{"x", {1, 2}}};
  EXPECT_EQ(prompt(text, say("a"), options), "aFalseFalsemax[1, 2]");
  options.template_variables = {{"x", {1, 2}}, {"enable_thinking", true}};
  EXPECT_EQ(prompt(text, say("a"), options), "aTrueFalsemax[1, 2]");
}

TEST(ChatPrompt, options_that_would_do_nothing_are_refused) {
  const std::string plain = "{{ messages[0].content }}";
  const TextSetup by_template = setup("qwen", &plain);
  const TextSetup by_format = setup("qwen", nullptr);
  const TextSetup by_harmony = setup("o200k", nullptr, ChatFormat::kHarmony);
  const TextSetup by_headers = setup("llama3", nullptr, ChatFormat::kHeaders);
  const auto refused = [&](const TextSetup& text, const Request& options) {
    return prompt(text, say("a"), options) == "chat.option";
  };
  Request no_thinking, effort, tools, variable, goes_on;
  no_thinking.thinking = false;
  effort.effort = "low";
  tools.tools = {{{"type", "function"}}};
  variable.template_variables = {{"x", 1}};
  goes_on.continue_final_message = true;
  for (const Request& options : {no_thinking, effort, tools, variable}) {
    EXPECT_TRUE(refused(by_template, options));
  }
  EXPECT_FALSE(refused(by_template, goes_on));
  for (const Request& options : {effort, tools, variable, goes_on}) {
    EXPECT_TRUE(refused(by_format, options));
  }
  EXPECT_FALSE(refused(by_format, no_thinking));
  EXPECT_TRUE(refused(by_harmony, no_thinking));
  EXPECT_TRUE(refused(by_headers, no_thinking));
  EXPECT_FALSE(refused(by_harmony, effort));
  effort.effort = "max";
  EXPECT_TRUE(refused(by_harmony, effort));
  variable.template_variables = {{"x", nullptr}};
  EXPECT_FALSE(refused(by_template, variable));
  variable.template_variables = {{"enable_thinking", false}};
  EXPECT_EQ(prompt(by_format, say("a"), variable), prompt(by_format, say("a"), no_thinking));
}

TEST(ChatPrompt, says_what_a_developer_does_where_the_template_knows_none) {
  const std::string knows = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  const std::string drops =
      "{% for m in messages %}{% if m.role in ['system', 'user'] %}[{{ m.role }}]{{ m.content }}"
      "{% endif %}{% endfor %}";
  const std::string raises =
      "{% for m in messages %}{% if m.role == 'developer' %}{{ raise_exception('no') }}{% endif %}"
      "[{{ m.role }}]{{ m.content }}{% endfor %}";
  const Value messages = {{{"role", "developer"}, {"content", "b"}},
                          {{"role", "user"}, {"content", "a"}}};
  EXPECT_EQ(prompt(setup("qwen", &knows), messages), "[developer]b[user]a");
  EXPECT_EQ(prompt(setup("qwen", &drops), messages), "[system]b[user]a");
  EXPECT_EQ(prompt(setup("qwen", &raises), messages), "[system]b[user]a");
}

/// As vLLM and llama.cpp: a template that looks into lists sees them, others texts on lines.
TEST(ChatPrompt, has_parts_of_a_content_as_the_template_takes_them) {
  const std::string looks =
      "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for part in m.content %}[{{ part.text | trim }}]{% endfor %}{% endif %};{% endfor %}";
  const std::string prints = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";
  const std::string passes =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %};{% endfor %}";
  const std::string user =
      "{% for m in messages %}{% if m.role == 'user' and m.content is not string %}"
      "{% for part in m.content %}[{{ part.text }}]{% endfor %}{% else %}{{ m.content }}{% endif %}"
      ";{% endfor %}";
  const Value parts = {{{"type", "text"}, {"text", " a"}}, {{"type", "text"}, {"text", "b "}}};
  Value messages = Value::array();
  for (const char* const role : {"system", "user", "assistant", "tool"}) {
    messages.push_back({{"role", role}, {"content", parts}});
  }
  EXPECT_EQ(prompt(setup("qwen", &looks), messages),
            "system:[a][b];user:[a][b];assistant:[a][b];tool: a\nb ;");
  EXPECT_EQ(prompt(setup("qwen", &prints), messages),
            "system: a\nb ;user: a\nb ;assistant: a\nb ;tool: a\nb ;");
  EXPECT_EQ(prompt(setup("qwen", &passes), messages), " a\nb ; a\nb ; a\nb ; a\nb ;");
  EXPECT_EQ(prompt(setup("qwen", &user), messages), " a\nb ;[ a][b ]; a\nb ; a\nb ;");
  const Value one = {{{"role", "user"}, {"content", parts}}};
  EXPECT_EQ(prompt(setup("qwen", nullptr), one),
            "<|im_start|>user\n a\nb <|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatPrompt, names_the_day_where_the_template_does) {
  TextSetup text = setup("o200k", &kHarmony, ChatFormat::kHarmony);
  Request options;
  options.date = "2025-08-05";
  EXPECT_NE(prompt(text, say("a"), options).find("Today: 2025-08-05. Effort: medium<|end|>"),
            std::string::npos);
  EXPECT_TRUE(chats_name_the_day(text));
  EXPECT_FALSE(chats_name_the_day(setup("qwen", &kQwen)));
  EXPECT_TRUE(chats_name_the_day(setup("o200k", nullptr, ChatFormat::kHarmony)));
}

TEST(ChatPrompt, a_template_that_cannot_be_used_refuses_chats_and_nothing_else) {
  const std::string broken = "{% if %}";
  const TextSetup text = setup("qwen", &broken);
  EXPECT_EQ(prompt(text, say("a")), "jinja.syntax");
  Request request;
  request.prompt = "a";
  EXPECT_TRUE(text.encode(request).ok());
  request = {.messages = messages_of(say("a"))};
  EXPECT_EQ(text.encode(request).error().code, "jinja.syntax");
  EXPECT_EQ(prompt(setup("llama2", &kBrackets), {{{"role", "system"}, {"content", "a"}}}),
            "jinja.raised");
}

}  // namespace
}  // namespace subbyte
