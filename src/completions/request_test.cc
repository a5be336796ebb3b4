#include "completions/request.h"

#include <gtest/gtest.h>

#include "session/text_setup.h"

#include "support/json_of.h"
#include "support/small_tokenizer.h"
#include "text/chat_messages.h"

namespace subbyte {
namespace {

using json::KeyRule;
using json::KeyUse;
using json::Value;

Request defaults() {
  Request made;
  made.max_tokens = 12;
  return made;
}

Result<CompletionRequest> read(const Value& body) {
  const auto object = json::Object::of(body, "line");
  return read_completion(*object, defaults());
}

Value chat(const Value& message) {
  return {{"messages", Value::array({{{"role", "user"}, {"content", "a"}}, message})}};
}

std::string refusal(const Value& body) {
  const auto request = read(body);
  return request.ok() ? "" : std::string(request.error().code) + " " + request.error().message;
}

/// What a request is sampled with where nobody else has wishes.
Value sampling_of(const CompletionRequest& request) {
  return to_json(SamplingDefaults().with(request.sampling));
}

/// The values of a table's list.
Value list_of(std::string_view neutral) {
  return json_of("[" + std::string(neutral) + "]");
}

TEST(Requests, null_asks_for_nothing_in_every_field) {
  for (const KeyRule& rule : request_rules()) {
    if (rule.key == "prompt" || rule.key == "messages") continue;
    Value body = {{"prompt", "a"}, {std::string(rule.key), nullptr}};
    EXPECT_EQ(refusal(body), "") << rule.key;
  }
  for (const KeyRule& rule : message_rules()) {
    if (rule.key == "role" || rule.key == "content") continue;
    EXPECT_EQ(
        refusal(chat({{"role", "assistant"}, {"content", "b"}, {std::string(rule.key), nullptr}})),
        "")
        << rule.key;
  }
  // Clients write all fields of their types, also those that are newer than this program.
  EXPECT_EQ(refusal({{"prompt", "a"}, {"brand_new", nullptr}}), "");
  EXPECT_EQ(refusal(chat({{"role", "user"}, {"content", "b"}, {"brand_new", nullptr}})), "");
  EXPECT_NE(refusal({{"prompt", "a"}, {"brand_new", false}}), "");
}

TEST(Requests, fields_of_chats_are_refused_beside_a_prompt_unless_they_are_neutral) {
  const std::pair<const char*, Value> asked[] = {
      {"tools", Value::array({{{"type", "function"}}})},
      {"documents", Value::array({{{"text", "a"}}})},
      {"reasoning_effort", "low"},
      {"chat_template", "{{ messages }}"},
      {"chat_template_kwargs", {{"enable_thinking", false}}},
      {"add_generation_prompt", false},
      {"continue_final_message", true}};
  for (const auto& [key, value] : asked) {
    const std::string found = refusal({{"prompt", "a"}, {key, value}});
    EXPECT_EQ(found.find("completion.field line: " + std::string(key) + ": expected nothing"), 0u)
        << key << found;
  }
  EXPECT_EQ(refusal({{"prompt", "a"},
                     {"tools", Value::array()},
                     {"chat_template", ""},
                     {"chat_template_kwargs", Value::object()},
                     {"add_generation_prompt", true},
                     {"continue_final_message", false}}),
            "");
}

TEST(Requests, what_is_not_computed_is_refused_by_name_unless_it_is_neutral) {
  for (const KeyRule& rule : request_rules()) {
    const std::string key(rule.key);
    if (rule.use != KeyUse::kRefused) continue;
    for (const Value& value : list_of(rule.neutral)) {
      EXPECT_EQ(refusal({{"prompt", "a"}, {key, value}}), "") << key << value.text();
    }
    const std::string found = refusal({{"prompt", "a"}, {key, {{"odd", 17}}}});
    EXPECT_TRUE(found.starts_with("completion.field line: " + key + ": ")) << found;
  }
  for (const KeyRule& rule : message_rules()) {
    const std::string key(rule.key);
    if (rule.use != KeyUse::kRefused) continue;
    const std::string found =
        refusal(chat({{"role", "assistant"}, {"content", "b"}, {key, "odd"}}));
    EXPECT_TRUE(found.starts_with("completion.field line: messages[1].")) << found;
    EXPECT_NE(found.find(key), std::string::npos) << found;
  }
}

/// As vLLM has them: prompts get the tokens unless they are not wanted, chats have a template.
TEST(Requests, tokens_around_a_prompt_are_wanted_or_not) {
  EXPECT_TRUE(read({{"prompt", "a"}})->adds_tokens);
  EXPECT_TRUE(read({{"prompt", "a"}, {"add_special_tokens", nullptr}})->adds_tokens);
  EXPECT_FALSE(read({{"prompt", "a"}, {"add_special_tokens", false}})->adds_tokens);
  EXPECT_NE(refusal({{"prompt", "a"}, {"add_special_tokens", "no"}}), "");
  Value body = chat({{"role", "user"}, {"content", "b"}});
  body["add_special_tokens"] = false;
  EXPECT_EQ(refusal(body), "");
  body["add_special_tokens"] = true;
  EXPECT_TRUE(refusal(body).starts_with("completion.field line: add_special_tokens: "));

  TextSetup text{.tokenizer = golden_tokenizer("llama2").value()};
  Request request;
  request.prompt = "a";
  const auto with = text.encode(request);
  request.adds_tokens = false;
  const auto without = text.encode(request);
  ASSERT_EQ(with->size(), without->size() + 1);
  EXPECT_EQ(with->front(), *text.tokenizer.find("<s>"));
  EXPECT_TRUE(std::equal(without->begin(), without->end(), with->begin() + 1));
}

TEST(Requests, calls_of_tools_may_be_several_unless_one_is_wanted) {
  EXPECT_TRUE(read({{"prompt", "a"}, {"parallel_tool_calls", nullptr}})->parallel_tool_calls);
  EXPECT_FALSE(read({{"prompt", "a"}, {"parallel_tool_calls", false}})->parallel_tool_calls);
  EXPECT_NE(refusal({{"prompt", "a"}, {"parallel_tool_calls", 1}}), "");
}

TEST(Requests, what_changes_nothing_may_say_anything) {
  const CompletionRequest plain = *read({{"prompt", "a"}});
  for (const KeyRule& rule : request_rules()) {
    if (rule.use != KeyUse::kIgnored) continue;
    for (const Value& value : {Value("x"), Value(17), Value(true), Value::array({1, "y"})}) {
      const auto request = read({{"prompt", "a"}, {std::string(rule.key), value}});
      ASSERT_TRUE(request.ok()) << rule.key << ": " << request.error().message;
      EXPECT_EQ(sampling_of(*request), sampling_of(plain)) << rule.key;
      EXPECT_EQ(request->max_tokens, plain.max_tokens);
      EXPECT_EQ(request->stops, plain.stops);
    }
  }
}

TEST(Requests, fields_that_are_not_known_are_refused) {
  EXPECT_TRUE(refusal({{"prompt", "a"}, {"temprature", 1}}).starts_with("completion.field"));
  const std::string found = refusal(chat({{"role", "user"}, {"content", "b"}, {"contnet", "c"}}));
  EXPECT_EQ(found, "completion.field line: messages[1]: the field \"contnet\" is not known");
  EXPECT_NE(refusal(chat({{"role", "user"}, {"content", {{{"type", "text"}, {"txt", "c"}}}}})), "");
  // Null asks for nothing, as in what SDKs print of an answer.
  EXPECT_EQ(refusal({{"prompt", "a"}, {"temprature", nullptr}}), "");
  const Value part = {{"type", "text"}, {"text", "c"}, {"annotations", nullptr}};
  EXPECT_EQ(refusal(chat({{"role", "user"}, {"content", {part}}, {"parsed", nullptr}})), "");
}

TEST(Requests, who_says_a_part_of_sampling_leaves_the_rest_neutral) {
  EXPECT_EQ(sampling_of(*read({{"prompt", "a"}})), to_json(SamplingOptions{}));
  for (const auto& [key, value] : std::map<std::string, Value>{
           {"temperature", 0.7}, {"top_p", 0.5}, {"top_k", 3}, {"min_p", 0.2}}) {
    Value expected = to_json(neutral_sampling());
    expected[key] = value;
    EXPECT_EQ(sampling_of(*read({{"prompt", "a"}, {key, value}})), expected);
  }
  // A penalty or a seed says nothing of that.
  const auto other = read({{"prompt", "a"}, {"presence_penalty", 1}, {"seed", 4}});
  EXPECT_EQ(SamplingDefaults().with(other->sampling).top_k, SamplingOptions{}.top_k);
}

TEST(Requests, have_biases_by_tokens) {
  const auto request =
      read({{"prompt", "a"}, {"logit_bias", {{"70", 2.5}, {"9", -100}, {"3", nullptr}}}});
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->sampling.biases, (std::vector<LogitBias>{{9, -100}, {70, 2.5}}));
  Value many = Value::object();
  for (int64_t i = 0; i <= kMaxBiases; ++i) many[std::to_string(i)] = 1;
  EXPECT_TRUE(refusal({{"prompt", "a"}, {"logit_bias", many}}).starts_with("sampling.range"));
}

TEST(Requests, an_empty_stop_asks_for_nothing) {
  for (const Value& stop : {Value(""), Value::array(), Value::array({""})}) {
    EXPECT_EQ(read({{"prompt", "a"}, {"stop", stop}})->stops, std::vector<std::string>{});
  }
  EXPECT_EQ(read({{"prompt", "a"}, {"stop", {"", "b"}}})->stops, std::vector<std::string>{"b"});
}

TEST(Requests, the_reasoning_of_an_answer_is_part_of_the_conversation) {
  const auto request =
      read(chat({{"role", "assistant"}, {"content", "b"}, {"reasoning_content", "r"}}));
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->messages[1].json["reasoning_content"], "r");
  EXPECT_NE(refusal(chat({{"role", "user"}, {"content", "b"}, {"reasoning_content", "r"}})), "");
  // By both names it is one text.
  Value both = {
      {"role", "assistant"}, {"content", "b"}, {"reasoning", "r"}, {"reasoning_content", "r"}};
  EXPECT_EQ(refusal(chat(both)), "");
  both["reasoning_content"] = "s";
  EXPECT_TRUE(refusal(chat(both)).starts_with("completion.field line: messages[1].reasoning: "))
      << refusal(chat(both));
}

TEST(Requests, have_messages_as_templates_see_them) {
  const auto messages = [](const char* text) {
    const auto request = read({{"messages", json_of(text)}});
    return request.ok() ? to_json(request->messages).text() : std::string(request.error().code);
  };
  EXPECT_EQ(messages(R"([{"role": "user", "name": "B", "annotations": [1], "refusal": null,
                          "content": [{"type": "text", "text": "a"},
                                      {"type": "text", "text": "b"}]}])"),
            R"([{"role":"user","name":"B","content":[{"type":"text","text":"a"},)"
            R"({"type":"text","text":"b"}]}])");
  EXPECT_EQ(messages(R"([{"role": "user", "content": [{"type": "text", "text": "a",
                          "cache_control": {"type": "ephemeral"}}]}])"),
            R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(messages(R"([{"role": "user", "content": []}])"), R"([{"role":"user","content":""}])");
  const std::string call = R"({"id":"1","type":"function","function":{"name":"f","arguments":)";
  const auto with_call = [&](const std::string& arguments) {
    return messages((R"([{"role": "assistant", "content": null, "tool_calls": [)" + call +
                     arguments + R"(}}]}, {"role": "tool", "tool_call_id": "1", "content": "7"}])")
                        .c_str());
  };
  const auto expected = [&](const std::string& arguments) {
    return R"([{"role":"assistant","tool_calls":[)" + call + arguments +
           R"(}}]},{"role":"tool","tool_call_id":"1","content":"7"}])";
  };
  // Whatever was sent: the template decides (session/call_arguments.h).
  for (const char* const sent : {R"("{\"a\":[1]}")", R"({"a":[1]})", R"("")", R"("7")", "[1]"}) {
    EXPECT_EQ(with_call(sent), expected(sent));
  }
  EXPECT_EQ(messages(R"([{"role": "assistant", "content": null, "reasoning": "r"}])"),
            R"([{"role":"assistant","reasoning":"r"}])");
  EXPECT_EQ(messages(R"([{"role": "user", "content": null}])"), "json.missing");
  EXPECT_EQ(messages(R"([{"role": "assistant"}])"), "json.missing");
  EXPECT_EQ(messages(R"([{"role": "tool"}])"), "json.missing");
  EXPECT_EQ(messages(R"([{"role": "function", "content": "7"}])"), "completion.role");
  EXPECT_EQ(messages(R"([{"role": "user", "content": "a", "tool_calls": [{}]}])"),
            "completion.field");
  EXPECT_EQ(messages(R"([{"role": "assistant", "tool_calls": [{"id": "1"}]}])"), "json.missing");
  EXPECT_EQ(messages(R"([{"role": "assistant", "tool_calls": ["f"]}])"), "json.type");
  EXPECT_EQ(messages(R"([{"role": "assistant", "tool_calls": [{"id": 1,
                          "function": {"name": "f"}}]}])"),
            "json.type");
  EXPECT_EQ(messages(R"([{"role": "assistant", "tool_calls": [{"type": "custom",
                          "function": {"name": "f"}}]}])"),
            "completion.field");
}

TEST(Requests, have_what_templates_are_told) {
  const auto options = [](const char* text) {
    Value body = json_of(text);
    body["messages"] = {{{"role", "user"}, {"content", "a"}}};
    return *read(body);
  };
  EXPECT_TRUE(options("{}").tools.is_null());
  EXPECT_EQ(options(R"({"tools": [{"type": "function"}], "tool_choice": "auto"})").tools.text(),
            R"([{"type":"function"}])");
  EXPECT_TRUE(
      options(R"({"tools": [{"type": "function"}], "tool_choice": "none"})").tools.is_null());
  EXPECT_EQ(options(R"({"reasoning_effort": "minimal"})").effort, "minimal");
  EXPECT_EQ(options(R"({"documents": [{"text": "t"}],
                        "chat_template_kwargs": {"enable_thinking": false, "x": [1]}})")
                .template_variables.text(),
            R"({"documents":[{"text":"t"}],"enable_thinking":false,"x":[1]})");
  EXPECT_EQ(options(R"({"chat_template": "{{ a }}"})").chat_template, "{{ a }}");
  EXPECT_EQ(options(R"({"chat_template": null})").chat_template, "");
  EXPECT_TRUE(options("{}").add_generation_prompt);
  EXPECT_FALSE(options(R"({"add_generation_prompt": false})").add_generation_prompt);
  const Request goes_on = options(R"({"continue_final_message": true})");
  EXPECT_TRUE(goes_on.continue_final_message && !goes_on.add_generation_prompt);
}

TEST(Requests, keep_no_long_salt) {
  EXPECT_EQ(refusal({{"prompt", "a"}, {"cache_salt", std::string(256, 's')}}), "");
  const std::string found = refusal({{"prompt", "a"}, {"cache_salt", std::string(257, 's')}});
  EXPECT_TRUE(found.starts_with("json.range")) << found;
  EXPECT_NE(found.find("cache_salt: expected at most 256 bytes, found 257"), std::string::npos);
}

TEST(Requests, refuse_what_templates_are_told_wrongly) {
  const auto code = [](const char* text) {
    Value body = json_of(text);
    body["messages"] = {{{"role", "user"}, {"content", "a"}}};
    const auto request = read(body);
    return request.ok() ? "" : std::string(request.error().code);
  };
  EXPECT_EQ(code(R"({"tools": ["f"]})"), "json.type");
  EXPECT_EQ(code(R"({"tools": [{"type": "web_search"}]})"), "completion.field");
  EXPECT_EQ(code(R"({"tools": [{"type": "function"}], "tool_choice": "required"})"),
            "completion.field");
  EXPECT_EQ(code(R"({"reasoning_effort": "much"})"), "json.range");
  EXPECT_EQ(code(R"({"chat_template_kwargs": {"enable_thinking": "false"}})"), "json.type");
  EXPECT_EQ(code(R"({"chat_template_kwargs": {"messages": []}})"), "chat.option");
  EXPECT_EQ(code(R"({"continue_final_message": true, "add_generation_prompt": true})"),
            "completion.field");
  EXPECT_TRUE(refusal({{"prompt", "a"}, {"tools", {{{"type", "function"}}}}})
                  .starts_with("completion.field"));
}

}  // namespace
}  // namespace subbyte
