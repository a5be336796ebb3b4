// Tokenizers, sessions and reports of the C interface against the layers below.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "json/strict_json.h"
#include "session/session.h"
#include "support/c_handles.h"
#include "support/opened_files.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "transform/report_json.h"
#include "verify/report_json.h"

namespace subbyte::testing {
namespace {

using CTokenizer =
    std::unique_ptr<subbyte_tokenizer, CDeleter<subbyte_tokenizer, subbyte_tokenizer_destroy>>;
using CSession =
    std::unique_ptr<subbyte_session, CDeleter<subbyte_session, subbyte_session_destroy>>;

std::string demo_model() {
  return (std::filesystem::path(SUBBYTE_TEST_DATA) / "../../demo/model").string();
}

CTokenizer open_tokenizer() {
  subbyte_tokenizer* made = nullptr;
  EXPECT_EQ(subbyte_tokenizer_open(demo_model().c_str(), &made), SUBBYTE_OK)
      << subbyte_last_error();
  return CTokenizer(made);
}

TEST(CSession, opens_small_files_of_a_model_once) {
  const TempDir folder;
  std::filesystem::copy(demo_model(), folder / "m");
  OpenedFiles opened(folder / "m");
  subbyte_session* made = nullptr;
  ASSERT_EQ(subbyte_session_open((folder / "m").c_str(), nullptr, &made), SUBBYTE_OK)
      << subbyte_last_error();
  const CSession session(made);
  auto counts = opened.take();
  for (const char* const name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(counts[name], 1) << name;
  }
}

TEST(CTokenizer, encodes_and_decodes_as_cxx) {
  const CTokenizer tokenizer = open_tokenizer();
  const auto reference = load_tokenizer(std::filesystem::path(demo_model()));
  ASSERT_TRUE(reference.ok());
  const std::string text = "Mr. Sherlock Holmes, \xE2\x82\xAC 5 <|im_end|>";
  for (const int32_t flags : {0, 1, 2, 3}) {
    int32_t* tokens = nullptr;
    int64_t count = 0;
    ASSERT_EQ(subbyte_tokenizer_encode(tokenizer.get(), text.c_str(), -1, flags, &tokens, &count),
              SUBBYTE_OK);
    const std::vector<int32_t> found(tokens, tokens + count);
    const SpecialTokens special =
        (flags & SUBBYTE_SPECIAL) != 0 ? SpecialTokens::kRecognize : SpecialTokens::kAsText;
    EXPECT_EQ(found, *((flags & SUBBYTE_PROMPT) != 0 ? reference->encode_prompt(text, special)
                                                     : reference->encode(text, special)));
    char* back = nullptr;
    int64_t length = 0;
    ASSERT_EQ(subbyte_tokenizer_decode(tokenizer.get(), tokens, count, 0, &back, &length),
              SUBBYTE_OK);
    EXPECT_EQ(std::string(back, length), *reference->decode(found, false));
    const char* piece = nullptr;
    ASSERT_EQ(subbyte_tokenizer_piece(tokenizer.get(), tokens[0], &piece, &length), SUBBYTE_OK);
    EXPECT_EQ(std::string_view(piece, length), reference->token_bytes(tokens[0]));
    subbyte_free(tokens);
    subbyte_free(back);
  }
  int32_t size = 0, token = -1;
  ASSERT_EQ(subbyte_tokenizer_size(tokenizer.get(), &size), SUBBYTE_OK);
  EXPECT_EQ(size, reference->size());
  ASSERT_EQ(subbyte_tokenizer_find(tokenizer.get(), "<|im_end|>", &token), SUBBYTE_OK);
  EXPECT_EQ(token, *reference->find("<|im_end|>"));
  EXPECT_EQ(code_of(subbyte_tokenizer_find(tokenizer.get(), "no such token", &token)),
            "c.argument");
}

TEST(CTokenizer, refuses_what_is_none) {
  const CTokenizer tokenizer = open_tokenizer();
  subbyte_tokenizer* made = nullptr;
  int32_t* tokens = nullptr;
  int64_t count = 0;
  char* text = nullptr;
  const char* bytes = nullptr;
  int32_t number = 0;
  const int32_t ids[] = {-1};
  const auto* t = tokenizer.get();
  EXPECT_EQ(code_of(subbyte_tokenizer_open("/nowhere", &made)), "model.not_found");
  EXPECT_EQ(code_of(subbyte_tokenizer_encode(t, "a", -2, 0, &tokens, &count)), "c.argument");
  EXPECT_EQ(code_of(subbyte_tokenizer_encode(t, "a", 1, 8, &tokens, &count)), "c.argument");
  EXPECT_EQ(code_of(subbyte_tokenizer_decode(t, ids, 1, 0, &text, nullptr)), "tokenizer.bad_id");
  EXPECT_EQ(code_of(subbyte_tokenizer_decode(t, ids, -1, 0, &text, nullptr)), "c.argument");
  EXPECT_EQ(code_of(subbyte_tokenizer_piece(t, -1, &bytes, &count)), "c.argument");
  expect_nulls_refused("open", &subbyte_tokenizer_open, {}, {"x", &made});
  expect_nulls_refused("encode", &subbyte_tokenizer_encode, {}, {t, "a", -1, 0, &tokens, &count});
  expect_nulls_refused("decode", &subbyte_tokenizer_decode, {5}, {t, ids, 1, 0, &text, nullptr});
  expect_nulls_refused("piece", &subbyte_tokenizer_piece, {}, {t, 0, &bytes, &count});
  expect_nulls_refused("find", &subbyte_tokenizer_find, {}, {t, "a", &number});
  expect_nulls_refused("size", &subbyte_tokenizer_size, {}, {t, &number});
  expect_nulls_refused("render", &subbyte_tokenizer_render, {}, {t, "{}", &text});
}

TEST(CTokenizer, renders_the_template_beside_it) {
  const TempDir folder;
  std::filesystem::copy(demo_model(), folder.path(), std::filesystem::copy_options::recursive);
  folder.write("chat_template.jinja",
               "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
               "{% if add_generation_prompt %}[go]{% endif %}{{ tone }}");
  subbyte_tokenizer* made = nullptr;
  ASSERT_EQ(subbyte_tokenizer_open(folder.path().c_str(), &made), SUBBYTE_OK)
      << subbyte_last_error();
  const CTokenizer tokenizer(made);
  char* text = nullptr;
  ASSERT_EQ(subbyte_tokenizer_render(made,
                                     R"({"messages": [{"role": "user", "content": "Why?"}],
                    "chat_template_kwargs": {"tone": "calm"}})",
                                     &text),
            SUBBYTE_OK)
      << subbyte_last_error();
  EXPECT_STREQ(text, "[user] Why?\n[go]calm");
  subbyte_free(text);
  EXPECT_EQ(code_of(subbyte_tokenizer_render(made, R"({"mesages": []})", &text)), "c.option");
  EXPECT_EQ(code_of(subbyte_tokenizer_render(made, "{", &text)), "json.syntax");
  EXPECT_EQ(code_of(subbyte_tokenizer_render(made, R"({"messages": []})", &text)),
            "template.messages");
}

CSession open_session(int64_t context = 128) {
  auto options = c_struct<subbyte_session_options>();
  options.device = "cpu";
  options.context = context;
  options.max_sequences = 3;
  options.num_threads = 2;
  options.batch_invariant = 1;
  subbyte_session* made = nullptr;
  EXPECT_EQ(subbyte_session_open(demo_model().c_str(), &options, &made), SUBBYTE_OK)
      << subbyte_last_error();
  return CSession(made);
}

constexpr const char* kRequest =
    R"({"prompt": "It was a dark night", "max_tokens": 12, "temperature": 0})";

/// What the session of C++ says to kRequest.
std::string expected_text() {
  SessionOptions options;
  options.device.device = "cpu";
  options.device.num_threads = 2;
  options.device.batch_invariant = true;
  options.context = 128;
  auto session = Session::open(demo_model(), options);
  EXPECT_TRUE(session.ok());
  Request request;
  request.prompt = "It was a dark night";
  request.max_tokens = 12;
  request.sampling.temperature = 0;
  EXPECT_TRUE(session->add(request).ok());
  std::string text;
  while (!session->idle()) {
    const auto deltas = session->step();
    for (const Delta& delta : *deltas) text += delta.text();
  }
  return text;
}

json::Value parsed(const std::string& text) {
  auto value = json::parse(text, "event");
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *value : json::Value();
}

TEST(CSession, gives_the_texts_of_cxx_by_callback_poll_and_at_once) {
  const std::string expected = expected_text();
  ASSERT_FALSE(expected.empty());
  const CSession session = open_session();
  subbyte_session* const s = session.get();
  uint64_t ids[2] = {};
  for (uint64_t& id : ids) ASSERT_EQ(subbyte_session_add(s, kRequest, &id), SUBBYTE_OK);
  EXPECT_NE(ids[0], ids[1]);
  std::map<uint64_t, std::string> texts;
  int ends = 0;
  struct Sink {
    std::map<uint64_t, std::string>& texts;
    int& ends;
  } sink = {texts, ends};
  const auto take = [](void* user, const char* json) {
    auto& to = *static_cast<Sink*>(user);
    const json::Value event = parsed(json);
    to.texts[event["id"].get<uint64_t>()] += event["content"].get<std::string>();
    if (event["end"].is_null()) return;
    ++to.ends;
    EXPECT_EQ(event["end"]["finish_reason"], "length");
    EXPECT_EQ(event["end"]["completion_tokens"], 12);
  };
  int32_t idle = 0;
  while (idle == 0) {
    ASSERT_EQ(subbyte_session_step(s, take, &sink), SUBBYTE_OK) << subbyte_last_error();
    ASSERT_EQ(subbyte_session_idle(s, &idle), SUBBYTE_OK);
  }
  EXPECT_EQ(ends, 2);
  for (const uint64_t id : ids) EXPECT_EQ(texts[id], expected);

  ASSERT_EQ(subbyte_session_add(s, kRequest, &ids[0]), SUBBYTE_OK);
  std::string polled;
  for (idle = 0; idle == 0;) {
    char* json = nullptr;
    ASSERT_EQ(subbyte_session_poll(s, &json), SUBBYTE_OK);
    for (const json::Value& event : parsed(json)) polled += event["content"].get<std::string>();
    subbyte_free(json);
    ASSERT_EQ(subbyte_session_idle(s, &idle), SUBBYTE_OK);
  }
  EXPECT_EQ(polled, expected);

  char* response = nullptr;
  ASSERT_EQ(subbyte_session_complete(s, kRequest, &response), SUBBYTE_OK) << subbyte_last_error();
  const json::Value body = parsed(response);
  subbyte_free(response);
  EXPECT_EQ(body["choices"][0]["text"], expected);
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
  EXPECT_EQ(body["object"], "text_completion");
}

TEST(CSession, cancels_and_answers_beside_others) {
  const CSession session = open_session();
  subbyte_session* const s = session.get();
  uint64_t id = 0;
  ASSERT_EQ(
      subbyte_session_add(s, R"({"prompt": "Once", "max_tokens": 100, "ignore_eos": true})", &id),
      SUBBYTE_OK)
      << subbyte_last_error();
  char* response = nullptr;
  ASSERT_EQ(subbyte_session_complete(s, kRequest, &response), SUBBYTE_OK);
  subbyte_free(response);
  ASSERT_EQ(subbyte_session_cancel(s, id), SUBBYTE_OK);
  char* json = nullptr;
  ASSERT_EQ(subbyte_session_poll(s, &json), SUBBYTE_OK);
  const json::Value events = parsed(json);
  subbyte_free(json);
  ASSERT_FALSE(events.empty());
  const json::Value& last = events[events.size() - 1];
  EXPECT_EQ(last["id"], id);
  EXPECT_EQ(last["end"]["finish_reason"], "abort");
  int32_t idle = 0;
  ASSERT_EQ(subbyte_session_idle(s, &idle), SUBBYTE_OK);
  EXPECT_EQ(idle, 1);
  EXPECT_EQ(subbyte_session_cancel(s, id), SUBBYTE_OK) << "it has ended";
}

/// What an event function got that used its session.
struct FromWithin {
  subbyte_session* session;
  std::vector<std::string> codes;
};

TEST(CSession, refuses_calls_of_its_own_event_function) {
  const CSession session = open_session();
  uint64_t id = 0;
  ASSERT_EQ(subbyte_session_add(session.get(), kRequest, &id), SUBBYTE_OK);
  FromWithin within = {session.get(), {}};
  const subbyte_event_function event = [](void* user, const char*) {
    auto& from = *static_cast<FromWithin*>(user);
    int32_t idle = 0;
    uint64_t other = 0;
    char* text = nullptr;
    from.codes.push_back(code_of(subbyte_session_idle(from.session, &idle)));
    from.codes.push_back(code_of(subbyte_session_add(from.session, kRequest, &other)));
    from.codes.push_back(code_of(subbyte_session_poll(from.session, &text)));
    from.codes.push_back(code_of(subbyte_session_cancel(from.session, 1)));
    from.codes.push_back(code_of(subbyte_session_complete(from.session, kRequest, &text)));
    from.codes.push_back(code_of(subbyte_session_describe(from.session, &text)));
  };
  int32_t idle = 0;
  while (within.codes.empty()) {
    ASSERT_EQ(subbyte_session_step(session.get(), event, &within), SUBBYTE_OK);
  }
  EXPECT_EQ(within.codes, std::vector<std::string>(within.codes.size(), "session.busy"));
  EXPECT_EQ(subbyte_session_idle(session.get(), &idle), SUBBYTE_OK) << "the step is over";
  EXPECT_EQ(idle, 0) << "nothing was cancelled";
}

TEST(CSession, may_be_destroyed_by_its_event_function) {
  CSession session = open_session();
  uint64_t id = 0;
  ASSERT_EQ(subbyte_session_add(session.get(), kRequest, &id), SUBBYTE_OK);
  subbyte_session* const handle = session.get();
  int result = SUBBYTE_OK;
  while (session != nullptr && result == SUBBYTE_OK) {
    result = subbyte_session_step(
        handle, [](void* user, const char*) { static_cast<CSession*>(user)->reset(); }, &session);
  }
  EXPECT_EQ(result, SUBBYTE_OK);
}

TEST(CSession, of_two_models_run_in_one_process) {
  const CSession first = open_session(), second = open_session(64);
  std::string answers[2];
  std::thread threads[2];
  for (int i = 0; i < 2; ++i) {
    threads[i] = std::thread([&, i] {
      char* response = nullptr;
      EXPECT_EQ(subbyte_session_complete((i == 0 ? first : second).get(), kRequest, &response),
                SUBBYTE_OK);
      answers[i] = parsed(response)["choices"][0]["text"].get<std::string>();
      subbyte_free(response);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_FALSE(answers[0].empty());
}

TEST(CSession, refuses_requests_and_options_that_are_none) {
  const CSession session = open_session();
  subbyte_session* const s = session.get();
  uint64_t id = 0;
  char* text = nullptr;
  int32_t idle = 0;
  EXPECT_EQ(code_of(subbyte_session_add(s, "{", &id)), "json.syntax");
  EXPECT_EQ(code_of(subbyte_session_add(s, "{}", &id)), "completion.prompt");
  EXPECT_EQ(code_of(subbyte_session_add(s, R"({"prompt": "a", "tempo": 1})", &id)),
            "completion.field");
  EXPECT_EQ(code_of(subbyte_session_add(s, R"({"prompt": "a", "echo": true})", &id)),
            "completion.field");
  ASSERT_EQ(subbyte_session_describe(s, &text), SUBBYTE_OK);
  EXPECT_EQ(parsed(text)["context"], 128);
  subbyte_free(text);
  subbyte_session* made = nullptr;
  const auto code = [&](auto change) {
    auto options = c_struct<subbyte_session_options>();
    options.device = "cpu";
    change(options);
    return code_of(subbyte_session_open(demo_model().c_str(), &options, &made));
  };
  EXPECT_EQ(code([](auto& o) { o.device = "npu"; }), "device.unknown");
  EXPECT_EQ(code([](auto& o) { o.cache_type = "e5m2"; }), "c.argument");
  EXPECT_EQ(code([](auto& o) { o.context = -1; }), "c.argument");
  EXPECT_EQ(code([](auto& o) { o.context = 1 << 30; }), "usage.context");
  EXPECT_EQ(code([](auto& o) { o.reserved = 1; }), "c.argument");
  EXPECT_EQ(code([](auto& o) { o.struct_size = 0; }), "c.struct_size");
  EXPECT_EQ(code_of(subbyte_session_open("/nowhere", nullptr, &made)), "model.not_found");
  const subbyte_event_function nothing = [](void*, const char*) {};
  expect_nulls_refused("open", &subbyte_session_open, {1}, {"x", nullptr, &made});
  expect_nulls_refused("describe", &subbyte_session_describe, {}, {s, &text});
  expect_nulls_refused("add", &subbyte_session_add, {}, {s, kRequest, &id});
  expect_nulls_refused("step", &subbyte_session_step, {2}, {s, nothing, nullptr});
  expect_nulls_refused("poll", &subbyte_session_poll, {}, {s, &text});
  expect_nulls_refused("cancel", &subbyte_session_cancel, {}, {s, 1});
  expect_nulls_refused("idle", &subbyte_session_idle, {}, {s, &idle});
  expect_nulls_refused("complete", &subbyte_session_complete, {}, {s, kRequest, &text});
}

TEST(CTools, give_the_reports_of_the_commands) {
  const CContext context = c_context();
  const TempDir folder;
  const std::string model = demo_model(), copy = (folder.path() / "bf16").string(),
                    small = (folder.path() / "small").string();
  char* text = nullptr;
  const auto take = [&](int result) {
    EXPECT_EQ(result, SUBBYTE_OK) << subbyte_last_error();
    const CText owner(result == SUBBYTE_OK ? text : nullptr);
    return result == SUBBYTE_OK ? parsed(text) : json::Value();
  };
  const json::Value inspected = take(subbyte_inspect(context.get(), model.c_str(), &text));
  EXPECT_EQ(inspected["architecture"], "qwen3");
  EXPECT_EQ(inspected["problems"].size(), 0u);
  uint64_t calls = 0;
  const subbyte_progress_function count = [](void* user, uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    ++*static_cast<uint64_t*>(user);
  };
  const json::Value verified = take(
      subbyte_verify(context.get(), model.c_str(), R"({"checksums": true})", count, &calls, &text));
  EXPECT_EQ(verified["errors"], 0);
  EXPECT_EQ(verified["sha256"].size(), verified["num_tensors"]);
  EXPECT_GT(calls, 0u);
  const json::Value converted =
      take(subbyte_convert(context.get(), model.c_str(), copy.c_str(),
                           R"({"to": "bf16", "allow_lossy": true})", nullptr, nullptr, &text));
  EXPECT_EQ(converted["format"], "bf16");
  EXPECT_GT(converted["modules"].get<int64_t>(), 0);
  const json::Value quantized = take(subbyte_quantize(
      context.get(), copy.c_str(), small.c_str(),
      R"({"format": "mxfp4", "ignore": ["model.layers.0"]})", nullptr, nullptr, &text));
  EXPECT_EQ(quantized["format"], "mxfp4_pack_quantized");
  const json::Value same = take(subbyte_diff(context.get(), model.c_str(), model.c_str(), &text));
  EXPECT_EQ(same["verdict"], "same_bytes");
  const json::Value other = take(subbyte_diff(context.get(), copy.c_str(), small.c_str(), &text));
  EXPECT_EQ(other["verdict"], "different");
}

/// A context that a progress function uses, and what it got.
struct Progressing {
  CContext context;
  std::string code;
  std::string of_other;
};

TEST(CTools, refuse_a_context_to_their_own_progress_function) {
  Progressing within = {c_context(), "", ""};
  const subbyte_progress_function progress = [](void* user, uint64_t, uint64_t) {
    auto& from = *static_cast<Progressing*>(user);
    char* text = nullptr;
    from.code = code_of(subbyte_inspect(from.context.get(), demo_model().c_str(), &text));
    const CContext other = c_context();
    from.of_other = code_of(subbyte_inspect(other.get(), demo_model().c_str(), &text));
    subbyte_free(text);
  };
  char* text = nullptr;
  ASSERT_EQ(
      subbyte_verify(within.context.get(), demo_model().c_str(), nullptr, progress, &within, &text),
      SUBBYTE_OK)
      << subbyte_last_error();
  EXPECT_EQ(within.code, "context.busy");
  EXPECT_EQ(within.of_other, "ok");
  subbyte_free(text);
  ASSERT_EQ(subbyte_inspect(within.context.get(), demo_model().c_str(), &text), SUBBYTE_OK);
  subbyte_free(text);
}

TEST(CTools, go_on_when_their_progress_function_destroys_the_context) {
  CContext context = c_context();
  char* text = nullptr;
  ASSERT_EQ(subbyte_verify(
                context.get(), demo_model().c_str(), nullptr,
                [](void* user, uint64_t, uint64_t) { static_cast<CContext*>(user)->reset(); },
                &context, &text),
            SUBBYTE_OK)
      << subbyte_last_error();
  EXPECT_EQ(context, nullptr);
  subbyte_free(text);
}

TEST(CTools, refuse_by_name) {
  const CContext context = c_context();
  const TempDir folder;
  const std::string model = demo_model(), to = (folder.path() / "to").string();
  char* text = nullptr;
  subbyte_context* const c = context.get();
  const char* m = model.c_str();
  const auto convert = [&](const char* options) {
    return code_of(subbyte_convert(c, m, to.c_str(), options, nullptr, nullptr, &text));
  };
  EXPECT_EQ(convert(nullptr), "json.missing");
  EXPECT_EQ(convert(R"({"too": "awq"})"), "c.option");
  EXPECT_EQ(convert(R"({"to": 4})"), "json.type");
  EXPECT_EQ(convert(R"({"to": "best"})"), "convert.format");
  EXPECT_FALSE(std::filesystem::exists(to));
  EXPECT_EQ(code_of(subbyte_quantize(c, m, to.c_str(), R"({"format": "awq", "ignore": [1]})",
                                     nullptr, nullptr, &text)),
            "json.type");
  EXPECT_EQ(code_of(subbyte_inspect(c, "/nowhere", &text)), "model.not_found");
  expect_nulls_refused("inspect", &subbyte_inspect, {}, {c, m, &text});
  expect_nulls_refused("verify", &subbyte_verify, {2, 3, 4},
                       {c, m, nullptr, nullptr, nullptr, &text});
  expect_nulls_refused("diff", &subbyte_diff, {}, {c, m, m, &text});
  expect_nulls_refused("convert", &subbyte_convert, {3, 4, 5},
                       {c, m, to.c_str(), R"({"to": "bf16"})", nullptr, nullptr, &text});
  expect_nulls_refused("quantize", &subbyte_quantize, {3, 4, 5},
                       {c, m, to.c_str(), R"({"format": "awq"})", nullptr, nullptr, &text});
}

}  // namespace
}  // namespace subbyte::testing
