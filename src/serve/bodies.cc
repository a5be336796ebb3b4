#include "serve/bodies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/quote.h"
#include "session/chat_prompt.h"

namespace subbyte::serve {
namespace {

using json::Object;
using json::Value;

constexpr std::string_view kWhere = "request";
constexpr uint64_t kMaxCopiedBytes = uint64_t{64} << 20;

Result<Value> parse(const std::string& body) {
  SUBBYTE_TRY(Value value, json::parse(body, kWhere, {}, json::kTextMemoryFactor));
  SUBBYTE_CHECK(Object::of(value, kWhere));
  return value;
}

/// Refuses fields that nothing reads, as a name that is mistyped would do nothing.
Status check_names(const Object& object, std::span<const std::string_view> names) {
  for (const auto& [name, value] : object.members()) {
    if (value.is_null() || std::ranges::find(names, name) != names.end()) continue;
    return Error{"completion.field",
                 fmt::format("{}: the field {} is not known", object.where(), quote(name))};
  }
  return {};
}

/// The name that it is asked for by, which must be one of the model.
Result<std::string> read_model(const BodyOptions& options, const Object& body) {
  SUBBYTE_TRY(const auto name, body.string("model"));
  if (!name) return options.models.front();
  if (std::ranges::find(options.models, *name) != options.models.end()) return *name;
  return Error{"server.model", fmt::format("request: model: there is no {} here, but {}",
                                           quote(*name), quote(options.models.front()))};
}

/// What is read here, and what is for a file of requests alone.
Status read_stream(Value& body, CallBody& call) {
  SUBBYTE_TRY(const Object object, Object::of(body, kWhere));
  SUBBYTE_TRY(const auto stream, object.boolean("stream"));
  SUBBYTE_TRY(const auto priority, object.integer("priority", -1'000'000, 1'000'000));
  SUBBYTE_TRY(const auto options, object.object("stream_options"));
  call.is_stream = stream.value_or(false);
  call.priority = priority.value_or(0);
  if (options) {
    constexpr std::array<std::string_view, 3> kFields = {"include_usage", "continuous_usage_stats",
                                                         "include_obfuscation"};
    if (!call.is_stream) {
      return object.error("completion.field", "stream_options", "nothing without \"stream\": true");
    }
    SUBBYTE_TRY(const auto usage, options->boolean("include_usage"));
    SUBBYTE_TRY(const auto always, options->boolean("continuous_usage_stats"));
    SUBBYTE_CHECK(options->boolean("include_obfuscation"));
    SUBBYTE_CHECK(check_names(*options, kFields));
    call.has_usage = usage.value_or(false);
    call.always_has_usage = call.has_usage && always.value_or(false);
  }
  body.erase("stream");
  body.erase("stream_options");
  return {};
}

/// What changes no answer has the type that it has elsewhere. A file of requests may say anything
/// there, as nobody would learn of it in time.
Status check_ignored(const Object& body) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto check_kind = [&](const char* key, const char* expected, const auto& is_right) {
    const Value* const value = body.find(key);
    const bool is_fine = value == nullptr || value->is_null() || is_right(*value);
    return is_fine ? Status() : Status(body.error("json.type", key, expected));
  };
  for (const char* const key : {"user", "safety_identifier", "request_id", "service_tier",
                                "prompt_cache_key", "prompt_cache_retention"}) {
    SUBBYTE_CHECK(body.string(key));
  }
  for (const char* const key : {"metadata", "prompt_cache_options"}) {
    SUBBYTE_CHECK(body.object(key));
  }
  for (const char* const key :
       {"store", "skip_reading_prefix_cache", "spaces_between_special_tokens", "skip_clone"}) {
    SUBBYTE_CHECK(body.boolean(key));
  }
  for (const char* const key : {"output_kind", "stream_interval", "output_text_buffer_length"}) {
    SUBBYTE_CHECK(body.integer(key, 0, kMost));
  }
  SUBBYTE_CHECK(check_kind("early_stopping", "true, false or \"never\"", [](const Value& value) {
    return value.is_boolean() || value == "never";
  }));
  SUBBYTE_CHECK(check_kind("moderation", "an object or a text", [](const Value& value) {
    return value.is_object() || value.is_string();
  }));
  for (const char* const key : {"length_penalty", "mirostat_tau", "mirostat_eta"}) {
    SUBBYTE_CHECK(body.number(key, -1e15, 1e15));
  }
  return {};
}

/// Tokens that a request names are of the vocabulary. Beyond what the session checks, as an answer
/// that has begun can name no field.
std::optional<Problem> check_tokens(const Session& session, const CompletionRequest& request,
                                    std::span<const TokenId> prompt) {
  const Model& model = *session.ready().model;
  if (const Status known = model.check_tokens(prompt); !known.ok()) {
    return problem_of(known.error(), "prompt");
  }
  for (const LogitBias& bias : request.sampling.biases) {
    const Status known = model.check_tokens({&bias.token, 1});
    if (!known.ok()) return problem_of(known.error(), "logit_bias");
  }
  const Status known = model.check_tokens(request.stop_token_ids);
  if (!known.ok()) return problem_of(known.error(), "stop_token_ids");
  return std::nullopt;
}

std::string_view prompt_field(const Request& request) {
  return request.is_chat() ? "messages" : "prompt";
}

/// Makes tokens of a prompt.
std::optional<Problem> encode(const Session& session, Prompt& prompt) {
  const TextSetup& text = session.text();
  const std::string_view field = prompt_field(prompt.request);
  Result<std::vector<TokenId>> tokens = text.encode(prompt.request);
  if (!tokens.ok()) return problem_of(tokens.error(), field);
  if (tokens->empty()) {
    return problem_of({"generate.empty_prompt", "the prompt has no tokens"}, field);
  }
  if (auto problem = check_tokens(session, prompt.request, *tokens)) return problem;
  if (std::ssize(*tokens) >= session.context()) {
    return problem_of({"model.context_full",
                       fmt::format("the prompt has {} tokens and the context {}, which leaves no "
                                   "room for an answer",
                                   tokens->size(), session.context())},
                      field);
  }
  // Who has a template of his own learns here what is wrong with it.
  auto prepared = text.prepare(prompt.request, *std::move(tokens));
  if (!prepared.ok()) return problem_of(prepared.error(), field);
  prompt.prepared = *std::move(prepared);
  if (!prompt.request.echo) return std::nullopt;
  prompt.echo.tokens = prompt.prepared.prompt;
  prompt.echo.text = prompt.request.prompt;
  if (!prompt.echo.text.empty()) return std::nullopt;
  Result<std::string> shown = text.tokenizer.decode(prompt.prepared.prompt, /*skip_special=*/false);
  if (!shown.ok()) return problem_of(shown.error(), field);
  prompt.echo.text = *std::move(shown);
  return std::nullopt;
}

bool is_list_of_prompts(const Value& prompt) {
  return prompt.is_array() && !prompt.empty() && (prompt[0].is_string() || prompt[0].is_array());
}

/// The requests of a body: one, or one for each prompt of a list.
Status read_prompts(const BodyOptions& options, Value& body, CallBody& call) {
  Value list = Value::array();
  const Value* const prompt = body.find("prompt");
  const bool is_list = prompt != nullptr && is_list_of_prompts(*prompt);
  if (is_list) {
    if (prompt->size() > kMaxPrompts) {
      return Error{"json.range", fmt::format("request: prompt: expected at most {}, found {}",
                                             kMaxPrompts, prompt->size())};
    }
    list = std::move(body["prompt"]);
    body["prompt"] = {};
    // Each prompt has its own copy of the other fields.
    const uint64_t others = json::to_text(body).size();
    if (others * list.size() > kMaxCopiedBytes) {
      return Error{"json.range",
                   fmt::format("request: prompt: expected at most {} prompts beside {} bytes of "
                               "other fields, found {}",
                               kMaxCopiedBytes / others, others, list.size())};
    }
  }
  Request defaults = options.defaults;
  if (!call.is_chat && defaults.max_tokens < 0) defaults.max_tokens = kUsualTextTokens;
  for (std::size_t i = 0; i < (is_list ? list.size() : 1); ++i) {
    if (is_list) body["prompt"] = std::move(list[i]);
    SUBBYTE_TRY(const Object object, Object::of(body, kWhere));
    SUBBYTE_TRY(CompletionRequest request, read_completion(object, defaults));
    call.prompts.push_back({.request = std::move(request), .prepared = {}, .echo = {}});
  }
  if (call.num_choices() <= kMaxChoices) return {};
  return Error{"json.range", fmt::format("request: n: expected at most {} choices of all prompts, "
                                         "found {}",
                                         kMaxChoices, call.num_choices())};
}

/// A chat has messages, a text a prompt, and neither what the other has.
Status check_prompt_fields(const Object& body, bool is_chat) {
  const std::string_view wanted = is_chat ? "messages" : "prompt";
  const std::string_view other = is_chat ? "prompt" : "messages";
  if (!body.has(wanted)) return body.error("json.missing", wanted, "a prompt to go on with");
  if (body.has(other)) {
    return body.error("completion.prompt", other, "nothing beside " + quote_name(wanted));
  }
  return {};
}

Result<CallBody> read_fields(const BodyOptions& options, const std::string& text, bool is_chat) {
  CallBody call;
  call.is_chat = is_chat;
  SUBBYTE_TRY(Value body, parse(text));
  {
    SUBBYTE_TRY(const Object object, Object::of(body, kWhere));
    SUBBYTE_TRY(call.model, read_model(options, object));
    SUBBYTE_CHECK(check_prompt_fields(object, is_chat));
    SUBBYTE_CHECK(check_ignored(object));
  }
  SUBBYTE_CHECK(read_stream(body, call));
  SUBBYTE_CHECK(read_prompts(options, body, call));
  return call;
}

/// The text that the template of a chat makes.
Result<std::string> prompt_text(const TextSetup& text, const Request& request) {
  SUBBYTE_TRY(const auto own, text.template_of(request));
  std::string prompt;
  if (own != nullptr) {
    SUBBYTE_TRY(const TemplateInput input, template_input(*own, request));
    SUBBYTE_TRY(const jinja::OriginText rendered, own->render(input));
    return rendered.bytes();
  }
  SUBBYTE_TRY(const auto segments, built_in_prompt(text, request));
  for (const PromptSegment& segment : segments) prompt += segment.text;
  return prompt;
}

/// A body with messages, as the request that a chat of it is. Fields that say how it is answered do
/// nothing, and a wrong value of theirs is refused as it is there.
Result<CompletionRequest> read_messages(const BodyOptions& options, Value& body) {
  {
    SUBBYTE_TRY(const Object object, Object::of(body, kWhere));
    SUBBYTE_CHECK(read_model(options, object));
    SUBBYTE_CHECK(check_prompt_fields(object, /*is_chat=*/true));
    SUBBYTE_CHECK(check_ignored(object));
  }
  CallBody unused;
  SUBBYTE_CHECK(read_stream(body, unused));
  SUBBYTE_TRY(const Object object, Object::of(body, kWhere));
  return read_completion(object, options.defaults);
}

/// Says a token by its text as far as it is one.
std::string shown(const Tokenizer& tokenizer, TokenId id) {
  return tokenizer.decode({&id, 1}, /*skip_special=*/false).value();
}

/// The fields of a text to tokenize: those of vLLM ("prompt") and of llama-server ("content"),
/// which puts nothing around a text unless it is asked to.
struct TextToEncode {
  std::string text;
  bool adds_tokens = true;
  SpecialTokens special = SpecialTokens::kRecognize;
  bool has_pieces = false;  // objects instead of ids
  bool has_texts = false;   // a list beside the ids
};

Result<TextToEncode> read_text(const Object& body) {
  constexpr std::array<std::string_view, 8> kFields = {
      "model",       "prompt",        "content",     "add_special_tokens",
      "add_special", "parse_special", "with_pieces", "return_token_strs"};
  SUBBYTE_CHECK(check_names(body, kFields));
  TextToEncode result;
  const bool is_content = body.has("content");
  if (is_content && body.has("prompt")) {
    return body.error("completion.field", "content", "nothing beside \"prompt\"");
  }
  SUBBYTE_TRY(result.text, body.required_string(is_content ? "content" : "prompt"));
  SUBBYTE_TRY(const auto adds, body.boolean("add_special_tokens"));
  SUBBYTE_TRY(const auto adds_too, body.boolean("add_special"));
  if (adds && adds_too && *adds != *adds_too) {
    return body.error("completion.field", "add_special", "the same as \"add_special_tokens\"");
  }
  SUBBYTE_TRY(const auto parses, body.boolean("parse_special"));
  SUBBYTE_TRY(const auto pieces, body.boolean("with_pieces"));
  SUBBYTE_TRY(const auto texts, body.boolean("return_token_strs"));
  result.adds_tokens = adds.value_or(adds_too.value_or(!is_content));
  if (!parses.value_or(true)) result.special = SpecialTokens::kAsText;
  result.has_pieces = pieces.value_or(false);
  result.has_texts = texts.value_or(false);
  return result;
}

Result<std::string> tokenize_or_error(const Session& session, const BodyOptions& options,
                                      const std::string& text) {
  SUBBYTE_TRY(Value body, parse(text));
  const Tokenizer& tokenizer = session.tokenizer();
  std::vector<TokenId> ids;
  TextToEncode how;
  const Value* const messages = body.find("messages");
  if (messages != nullptr && !messages->is_null()) {
    SUBBYTE_TRY(const CompletionRequest request, read_messages(options, body));
    SUBBYTE_TRY(ids, session.encode(request));
  } else {
    SUBBYTE_TRY(const Object object, Object::of(body, kWhere));
    SUBBYTE_CHECK(read_model(options, object));
    SUBBYTE_TRY(how, read_text(object));
    SUBBYTE_TRY(ids, how.adds_tokens ? tokenizer.encode_prompt(how.text, how.special)
                                     : tokenizer.encode(how.text, how.special));
  }
  Value tokens = Value::array();
  Value texts = Value::array();
  for (const TokenId id : ids) {
    if (how.has_pieces) {
      tokens.push_back({{"id", id}, {"piece", shown(tokenizer, id)}});
    } else {
      tokens.push_back(id);
    }
    if (how.has_texts) texts.push_back(shown(tokenizer, id));
  }
  return json::to_text({{"count", ids.size()},
                        {"max_model_len", session.context()},
                        {"tokens", std::move(tokens)},
                        {"token_strs", how.has_texts ? std::move(texts) : Value()}});
}

Result<std::string> detokenize_or_error(const Session& session, const BodyOptions& options,
                                        const std::string& text) {
  SUBBYTE_TRY(const Value body, parse(text));
  SUBBYTE_TRY(const Object object, Object::of(body, kWhere));
  SUBBYTE_CHECK(read_model(options, object));
  constexpr std::array<std::string_view, 2> kFields = {"model", "tokens"};
  SUBBYTE_CHECK(check_names(object, kFields));
  const Value* const list = object.find("tokens");
  const auto is_token = [&](const Value& token) {
    return json::is_integer(token, 0, session.model().vocab_size - 1);
  };
  if (list == nullptr || !list->is_array() || !std::ranges::all_of(*list, is_token)) {
    return object.error("json.type", "tokens", "a list of token ids of the vocabulary");
  }
  const std::vector<TokenId> ids = list->get<std::vector<TokenId>>();
  SUBBYTE_TRY(const std::string decoded, session.tokenizer().decode(ids, /*skip_special=*/false));
  return json::to_text({{"prompt", decoded}, {"content", decoded}});
}

template <typename T>
Read<T> as_read(Result<T> result, std::string_view param = {}) {
  if (result.ok()) return *std::move(result);
  return problem_of(result.error(), param);
}

}  // namespace

int64_t CallBody::num_tokens() const {
  int64_t count = 0;
  for (const Prompt& prompt : prompts) count += std::ssize(prompt.prepared.prompt);
  return count;
}

int64_t CallBody::num_choices() const {
  int64_t count = 0;
  for (const Prompt& prompt : prompts) count += prompt.request.num_samples;
  return count;
}

Read<CallBody> read_call(const Session& session, const BodyOptions& options,
                         const std::string& body, bool is_chat) {
  Result<CallBody> call = read_fields(options, body, is_chat);
  if (!call.ok()) return problem_of(call.error());
  for (Prompt& prompt : call->prompts) {
    if (auto problem = encode(session, prompt)) return *std::move(problem);
  }
  return *std::move(call);
}

Read<std::string> tokenize(const Session& session, const BodyOptions& options,
                           const std::string& body) {
  return as_read(tokenize_or_error(session, options, body));
}

Read<std::string> detokenize(const Session& session, const BodyOptions& options,
                             const std::string& body) {
  return as_read(detokenize_or_error(session, options, body));
}

Read<std::string> apply_template(const Session& session, const BodyOptions& options,
                                 const std::string& body) {
  const auto answer = [&]() -> Result<std::string> {
    SUBBYTE_TRY(Value value, parse(body));
    SUBBYTE_TRY(const CompletionRequest request, read_messages(options, value));
    SUBBYTE_TRY(const std::string text, prompt_text(session.text(), request));
    return json::to_text({{"prompt", text}});
  };
  return as_read(answer(), "messages");
}

Read<std::string> count_input(const Session& session, const BodyOptions& options,
                              const std::string& body) {
  const auto answer = [&]() -> Result<std::string> {
    SUBBYTE_TRY(Value value, parse(body));
    SUBBYTE_TRY(const CompletionRequest request, read_messages(options, value));
    SUBBYTE_TRY(const std::vector<TokenId> ids, session.encode(request));
    return json::to_text({{"object", "response.input_tokens"}, {"input_tokens", ids.size()}});
  };
  return as_read(answer(), "messages");
}

}  // namespace subbyte::serve
