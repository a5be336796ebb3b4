#include "jinja/template.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "support/paths.h"

namespace subbyte::jinja {
namespace {

constexpr std::string_view kName = "chat.jinja";

/// 2025-08-05 13:30, a Tuesday.
std::tm noon() {
  std::tm time{};
  time.tm_year = 125;
  time.tm_mon = 7;
  time.tm_mday = 5;
  time.tm_hour = 13;
  time.tm_min = 30;
  timegm(&time);
  return time;
}

Result<OriginText> render(std::string_view source, const std::vector<Variable>& variables = {},
                          const Limits& limits = {}) {
  SUBBYTE_TRY(const Template chat, Template::compile(source, kName));
  constexpr std::string_view kRoles[] = {"user", "assistant"};
  return chat.render(variables, {.now = noon(), .roles = kRoles, .limits = limits});
}

std::string text_of(const Result<OriginText>& text) {
  return text.ok() ? text->bytes() : to_string(text.error());
}

/// Texts of the input in brackets.
std::string marked(const OriginText& text) {
  std::string result;
  std::size_t begin = 0;
  for (const OriginText::Run& run : text.runs()) {
    const std::string part = text.bytes().substr(begin, run.end - begin);
    result += run.origin == Origin::kInput ? "[" + part + "]" : part;
    begin = run.end;
  }
  return result;
}

std::string marked(std::string_view source, const json::Value& input) {
  const auto text = render(source, {{"x", input, Origin::kInput}});
  return text.ok() ? marked(*text) : to_string(text.error());
}

// tests/data/jinja/goldens.json is what the renderer of transformers makes of each template
// (tools/make_jinja_goldens.py); null is what it refuses.
TEST(Goldens, are_what_the_reference_renders) {
  const auto root = json::parse_file(std::string(kTestData) + "/jinja/goldens.json", 1 << 20);
  ASSERT_TRUE(root.ok()) << root.error().message;
  std::vector<Variable> variables;
  for (const auto& [name, value] : (*root)["variables"].items()) {
    variables.push_back({name, value, Origin::kInput});
  }
  int count = 0;
  for (const json::Value& golden : (*root)["cases"]) {
    const auto source = golden["template"].get<std::string>();
    const auto found = render(source, variables);
    ++count;
    if (golden["text"].is_null()) {
      ASSERT_FALSE(found.ok()) << source << " gives " << found->bytes();
      EXPECT_TRUE(found.error().message.starts_with("chat.jinja:1: ")) << found.error().message;
      EXPECT_EQ(found.error().message.find('\n'), std::string::npos) << found.error().message;
    } else {
      EXPECT_EQ(text_of(found), golden["text"].get<std::string>()) << source;
    }
  }
  EXPECT_GT(count, 250);
}

TEST(Template, names_the_line_of_an_error) {
  EXPECT_EQ(text_of(render("a\n{% if x %}\n{{ y.z }}{% endif %}", {{"x", true}})),
            "chat.jinja:3: \"y\" is undefined [jinja.undefined]");
  EXPECT_EQ(text_of(render("\n\n{% for %}")),
            "chat.jinja:3: expected a name, found the end of the tag [jinja.syntax]");
  EXPECT_EQ(text_of(render("{{ raise_exception('a\nb') }}")),
            "chat.jinja:1: a\\u000ab [jinja.raised]");
  EXPECT_EQ(text_of(render("{% macro f() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ f() }}")),
            "chat.jinja:2: there is no + of int and str [jinja.type]");
  EXPECT_EQ(render("\xFF").error().code, "jinja.syntax");
  EXPECT_LT(render("{{ raise_exception('x' * 99999) }}").error().message.size(), 500U);
}

TEST(Template, refuses_by_name_what_it_does_not_know) {
  for (const char* const source :
       {"{% for i in [1] recursive %}{% endfor %}", "{% block x %}{% endblock %}",
        "{% include 'x' %}", "{% import 'x' as y %}", "{{ [1]|random }}", "{{ lipsum() }}",
        "{{ namespace }}", "{{ 'a'.translate({}) }}"}) {
    EXPECT_EQ(render(source).error().code, "jinja.unsupported") << source;
  }
}

TEST(Template, knows_the_variables_that_it_reads) {
  const auto chat =
      Template::compile("{% set a = b %}{{ c.d }}{% if e is defined %}{% endif %}", kName);
  for (const char* const name : {"b", "c", "e"}) EXPECT_TRUE(chat->reads(name)) << name;
  for (const char* const name : {"a", "d", "defined", "f"}) EXPECT_FALSE(chat->reads(name)) << name;
}

/// A number of a request is printed as Python prints it, however long it is.
TEST(Numbers, of_more_than_64_bits_keep_their_digits) {
  const auto of = [](std::string_view source, const char* text) {
    const auto value = json::parse(text, "x");
    return text_of(render(source, {{"x", *value, Origin::kInput}}));
  };
  constexpr std::string_view kNumbers =
      "[9223372036854775807, -9223372036854775808, 9223372036854775808, 18446744073709551615, "
      "18446744073709551616, -9223372036854775809, 100000000000000000000, 1e+20, 1.5, 1e+30]";
  EXPECT_EQ(of("{{ x | tojson }}", std::string(kNumbers).c_str()), kNumbers);
  EXPECT_EQ(of("{{ x }}", std::string(kNumbers).c_str()), kNumbers);
  constexpr const char* kU64 = "18446744073709551615";
  EXPECT_EQ(of("{{ x }} {{ x|string }} {{ x|int }} {{ '%d' % x }} {{ '{}'.format(x) }}", kU64),
            "18446744073709551615 18446744073709551615 18446744073709551615 18446744073709551615 "
            "18446744073709551615");
  EXPECT_EQ(of("{{ x is number }} {{ x is integer }} {{ x is string }} {{ x|float }}", kU64),
            "True True False 1.8446744073709552e+19");
  EXPECT_EQ(of("{{ x > 1 }} {{ x == x }} {{ x < 18446744073709551616 }} {{ 1e30 > x }} "
               "{{ {x: 'a'}[18446744073709551615] }} {{ [2, x, 1]|sort }}",
               kU64),
            "True True True True a [1, 2, 18446744073709551615]");
  EXPECT_EQ(of("{{ 18446744073709551616.0 == 18446744073709551616 }} {{ 2.5 < x }}", kU64),
            "True True");
  for (const char* const source : {"\n{{ x + 1 }}", "\n{{ x * 'a' }}", "\n{{ 'a'.ljust(x) }}",
                                   "\n{{ 'abc'[x:] }}", "\n{{ x is odd }}", "\n{{ x|abs }}"}) {
    EXPECT_EQ(of(source, kU64),
              "chat.jinja:2: a number of more than 64 bits is computed with, which templates "
              "cannot do here [jinja.value]")
        << source;
  }
}

TEST(Numbers, of_different_types_are_compared_as_they_are) {
  EXPECT_EQ(text_of(render("{{ 9007199254740993 == 9007199254740992.0 }} {{ 1 == 1.0 }} "
                           "{{ {1: 'a'}[1.0] }} {{ {1: 'a'}[true] }} {{ 2 > 1.5 }} "
                           "{{ [3, 1.5, 2]|sort }} {{ [1, 1.0, true, '1']|unique|list }}")),
            "False True a a True [1.5, 2, 3] [1, '1']");
}

TEST(Texts, change_letters_that_become_several) {
  EXPECT_EQ(text_of(render(
                "{{ '\u0130'|lower|length }} {{ '\uFB01n'|capitalize }} {{ 'stra\u00DFe'|upper }} "
                "{{ '\u0149 \u01F0'.upper()|length }} {{ '\uFB01n \uFB02'|title }} {{ 'ab "
                "Cd'.swapcase() }}")),
            "2 Fin STRASSE 5 Fin Fl AB cD");
}

/// As Python has it: the last letter of a word, over marks and signs within words.
TEST(Texts, a_capital_sigma_ends_words_in_a_letter_of_its_own) {
  EXPECT_EQ(text_of(render("{{ '\u0391\u03A3'|lower }} {{ '\u0391\u03A3'.lower() }} "
                           "{{ '\u0391\u03A3.\u0391 \u0391.\u03A3 1\u03A3 \u03A3\u03A3'.lower() }} "
                           "{{ '\u0391\u03A3'.title() }} {{ '\u0391\u03A3'|capitalize }} "
                           "{{ '\u0391\u03A3'.swapcase() }} {{ '\u0391\u03A3'.casefold() }} "
                           "{{ '\u0391\u03A3\u0301'.lower() }} "
                           "{{ '\u0391\u0392\u03A3 \u0391\u03A3'|title }}")),
            "\u03B1\u03C2 \u03B1\u03C2 \u03B1\u03C3.\u03B1 \u03B1.\u03C2 1\u03C3 \u03C3\u03C2 "
            "\u0391\u03C2 \u0391\u03C2 \u03B1\u03C2 \u03B1\u03C3 \u03B1\u03C2\u0301 "
            "\u0391\u03B2\u03C2 \u0391\u03C3");
}

TEST(Texts, are_found_from_both_ends) {
  // Longer than what is compared at each place, and almost everywhere.
  constexpr std::string_view kSets =
      "{% set a = 'ab' * 100 %}{% set t = a ~ 'x' ~ a ~ 'abx' ~ a %}";
  EXPECT_EQ(text_of(render(std::string(kSets) +
                           "{{ t.find(a ~ 'x') }} {{ t.rfind(a ~ 'x') }} {{ t.count(a) }} "
                           "{{ (a ~ 'y') in t }} {{ t.split(a ~ 'x')|map('length')|list }} "
                           "{{ t.rsplit(a, 1)|map('length')|list }} {{ t.index('x' ~ a) }} "
                           "{{ t.replace(a, '-') }} {{ t.rpartition('bx')|map('length')|list }}")),
            "0 203 3 False [0, 2, 200] [404, 0] 200 -x-abx- [402, 2, 200]");
}

TEST(Namespaces, are_printed) {
  EXPECT_EQ(text_of(render("{% set n = namespace(a=1) %}{% set n.b = 'c' %}{{ n }}")),
            "<Namespace {'a': 1, 'b': 'c'}>");
}

TEST(Origins, go_through_whatever_is_done_with_a_text) {
  EXPECT_EQ(marked("a{{ x }}b", "I"), "a[I]b");
  EXPECT_EQ(marked("{{ 'a' + x + 'b' }}{{ 'c' ~ x }}", "I"), "a[I]bc[I]");
  EXPECT_EQ(marked("{{ x[1:3] }}{{ x|trim }}{{ x.split('b')|join('-') }}", "abcd"),
            "[bcabcda]-[cd]");
  EXPECT_EQ(marked("{{ x|upper }}{{ ('a' ~ x)|capitalize }}", "i"), "[I]A[i]");
  EXPECT_EQ(marked("{{ x.replace('b', '<') }}{{ 'abc'.replace('b', x) }}", "abc"),
            "[a]<[c]a[abc]c");
  EXPECT_EQ(marked("{{ '<%s>' % x }}{{ '<{}>'.format(x) }}{{ '%s'|format(x) }}", "I"),
            "<[I]><[I]>[I]");
  EXPECT_EQ(marked("{% set y %}<{{ x }}>{% endset %}{{ y }}{{ (y ~ y)[1:2] }}", "I"), "<[I]>[I]");
  EXPECT_EQ(marked("{% macro f(y) %}<{{ y }}>{% endmacro %}{{ f(x) }}", "I"), "<[I]>");
  EXPECT_EQ(marked("{{ x|indent(2, true) }}|{{ x|reverse }}|{{ x * 2 }}", "a\nb"),
            "  [a]\n  [b]|[b\na]|[a\nba\nb]");
  EXPECT_EQ(marked("{% for c in x %}{{ c }}.{% endfor %}{{ x|first }}{{ x|last }}", "ab"),
            "[a].[b].[ab]");
  EXPECT_EQ(marked("{% set n = namespace(y='') %}{% set n.y = n.y + x %}{{ n.y }}!", "I"), "[I]!");
  EXPECT_EQ(marked("{{ 'a-b'.split('-')|join(x) }}", "I"), "a[I]b");
  EXPECT_EQ(marked("{{ x.ljust(3, '.') }}{{ x|e }}", "<"), "[<]..[&lt;]");
}

TEST(Origins, are_of_the_input_in_all_of_what_prints_it) {
  EXPECT_EQ(marked("a{{ x|tojson }}b", json::Value{{"k", "v"}}), "a[{\"k\": \"v\"}]b");
  EXPECT_EQ(marked("a{{ x }}b", json::Value{"v", 1}), "a[['v', 1]]b");
  EXPECT_EQ(marked("{{ [1, 'a'] }}{{ {'a': 1}|tojson }}", nullptr), "[1, 'a']{\"a\": 1}");
  EXPECT_EQ(marked("{% for k, v in x.items() %}{{ k }}={{ v }}{% endfor %}", {{"k", "v"}}),
            "[k]=[v]");
}

TEST(Origins, of_known_roles_are_the_templates) {
  const json::Value messages = {{{"role", "user"}, {"content", "user"}},
                                {{"role", "<|x|>"}, {"content", "b"}}};
  EXPECT_EQ(marked("{% for m in x %}<{{ m.role }}>{{ m.content }}{% endfor %}", messages),
            "<user>[user]<[<|x|>]>[b]");
}

// Templates of an enemy: each ends within its limits, with one line or with a text.
constexpr std::string_view kHostile[] = {
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{{ 'a' * 9999999999 }}",
    "{{ [1] * 9999999999 }}",
    "{{ 'abc' * 9223372036854775807 }}",
    "{{ 'abc'.ljust(-9223372036854775807 - 1) }}",
    "{{ 'abc'.zfill(-9223372036854775807 - 1) }}",
    "{{ 'abc'.zfill(9223372036854775807) }}",
    "{{ 'abc'.replace('b', 'c', -9223372036854775807 - 1) }}",
    "{{ 'abc'|truncate(9223372036854775807, true, '', 9223372036854775807) }}",
    "{{ 'abc'|indent(9223372036854775807) }}{{ 'a'|center(9223372036854775807) }}",
    "{{ '\t'.expandtabs(9223372036854775807) }}",
    "{{ [1]|tojson(indent=9223372036854775807) }}",
    "{{ 1.5|round(-9223372036854775807 - 1) }}",
    "{{ 1.5|round(-9223372036854775807 - 1, 'ceil') }}",
    "{{ 'abc'[-9223372036854775807 - 1:9223372036854775807] }}",
    "{{ [1, 2].index(1, -9223372036854775807 - 1, 9223372036854775807) }}",
    "{{ 'abc'.find('b', -9223372036854775807 - 1, 9223372036854775807) }}",
    "{{ [1]|batch(9223372036854775807, 0)|list }}",
    "{{ [1, 2]|slice(9223372036854775807)|list }}",
    "{{ range(-9223372036854775807 - 1, 9223372036854775807) }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ 9223372036854775807 + 1 }}",
    "{{ -9223372036854775807 - 2 }}",
    "{{ 99999999999999999999 }}",
    "{{ (-9223372036854775807 - 1) // -1 }}",
    "{{ (-9223372036854775807 - 1)|abs }}",
    "{{ -(-9223372036854775807 - 1) }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '{:>999999999}'.format(1) }}",
    "{{ 'a'.ljust(99999999999) }}",
    "{{ 'a'.center(999999999999) }}",
    "{{ 'a'|indent(99999999999) }}",
    "{{ [1]|tojson(indent=99999999999) }}",
    "{{ '\t'.expandtabs(99999999999) }}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor "
    "%}",
    "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{{ n.x }}",
    "{% set n = namespace(x=[1]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{{ n.x|tojson }}",
    "{% set n = namespace(x=[1]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{% set m = namespace(x=[1]) %}{% for i in range(90) %}{% set m.x = [m.x, m.x] %}{% endfor %}"
    "{{ n.x == m.x }}",
    "{% set n = namespace() %}{% set n.n = n %}{{ [n] }}",
    "{% set n = namespace() %}{% set n.f = n %}{{ n.f.f.f.f.g }}",
    "{{ '\\x' }}",
    "{{ '\\uD800' }}",
    "{{ '\\U00110000' }}",
    "{{ '\\N{BULLET}' }}",
    "{{ ''.join(range(3)) }}",
    "{{ ['a'] | join(5) }}",
    "{{ range(-9223372036854775807, 1) }}",
    "{{ range(0, 9223372036854775807, 9223372036854775807)|list }}",
    "{{ range(1, 2, 0) }}",
    "{{ 'abc'[::0] }}",
    "{{ 'abc'[::-9223372036854775807] }}",
    "{{ 'abc'[9223372036854775807:-9223372036854775807:9223372036854775807] }}",
    "{{ [1, 2][-9223372036854775807] }}",
    "{{ 'a'.split('') }}",
    "{{ ''.replace('', 'x') }}",
    "{{ 'a'.replace('', 'b', 9223372036854775807) }}",
    "{{ 1e999 }}",
    "{{ 1e999|int }}",
    "{{ 1e30|int }}",
    "{{ '9' * 400 }}{{ ('9' * 400)|int }}",
    "{{ 1e308 * 10 // 1 }}",
    "{{ 0.0 // 0 }}",
    "{{ 1 % 0.0 }}",
    "{{ 0 ** -1 }}",
    "{{ (-8) ** 0.5 }}",
    "{{ 1|round(9223372036854775807) }}",
    "{{ 1.5|round(-400) }}",
    "{{ 1|round(400, 'ceil') }}",
    "{{ strftime_now('%Y' * 99999) }}",
    "{{ strftime_now('') }}",
    "{{ strftime_now(1) }}",
    "{{ [1, 2]|batch(0)|list }}",
    "{{ [1]|batch(99999999999, 0)|list }}",
    "{{ [1, 2]|slice(99999999999)|list }}",
    "{{ [1, 2]|slice(-1)|list }}",
    "{{ {}|tojson(separators=1) }}",
    "{{ []|tojson(indent=-1) }}",
    "{{ [1]|map|list }}",
    "{{ [1]|map('map')|list }}",
    "{{ [1]|select('nope')|list }}",
    "{{ [1]|selectattr|list }}",
    "{{ [1]|map(attribute='')|list }}",
    "{{ [1]|map(attribute='...')|list }}",
    "{{ cycler() }}",
    "{{ joiner(1)() }}{{ joiner }}",
    "{% for i in [1] %}{{ loop() }}{% endfor %}",
    "{% set n = namespace() %}{% for i in [1, 2] %}{% set n.l = loop %}{% endfor %}"
    "{{ n.l.index }}{{ n.l.nextitem }}{{ n.l.previtem }}",
    "{% set n = namespace() %}{% for i in [1] %}{% set n.c = loop.cycle %}{% endfor %}"
    "{{ n.c('a') }}",
    "{% set n = namespace() %}{% for i in [1] %}{% macro f() %}{{ i }}{% endmacro %}"
    "{% set n.f = f %}{% endfor %}{{ n.f() }}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}{% call f() %}x{% endcall %}"
    "{% endcall %}",
    "{% macro f() %}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}",
    "{{ caller() }}",
    "{{ {}.update({'a': 1}) }}",
    "{{ [].__class__.__base__ }}",
    "{{ ''|attr('__class__') }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ '{0[__class__]}'.format('') }}",
    "{{ '%(a)s' % 5 }}",
    "{{ '%(a' % {} }}",
    "{{ '%' % 5 }}",
    "{{ '{' .format() }}",
    "{{ '{0' .format(1) }}",
    "{{ '{:{}}'.format(1, 2) }}",
    "{{ '{!x}'.format(1) }}"};

constexpr int kMany = 5000;

std::string many(std::string_view part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

std::vector<std::string> hostile_templates() {
  std::vector<std::string> sources(std::begin(kHostile), std::end(kHostile));
  for (const std::string& source :
       {std::string() + "{{ " + many("[", kMany) + many("]", kMany) + " }}",
        std::string() + "{{ " + many("(", kMany) + "1" + many(")", kMany) + " }}",
        std::string() + "{{ " + many("-", kMany) + "1 }}",
        std::string() + "{{ " + many("not ", kMany) + "1 }}",
        std::string() + "{{ 1" + many(" + 1", kMany) + " }}",
        std::string() + "{{ x" + many(".a", kMany) + " }}",
        std::string() + "{{ 'a'" + many("|upper", kMany) + " }}",
        std::string() + "{{ x" + many("[0]", kMany) + " }}",
        std::string() + "{{ f" + many("()", kMany) + " }}",
        std::string() + "{{ 1" + many(" if 1 else 1", kMany) + " }}",
        std::string() + "{{ 1" + many(" if 1", kMany) + " }}",
        std::string() + "{{ 1" + many(" or 1", kMany) + " }}",
        std::string() + "{{ 1" + many(" ** 1", kMany) + " }}",
        std::string() + "{{ 1" + many(" is odd", kMany) + " }}",
        std::string() + many("{% if 1 %}", kMany) + many("{% endif %}", kMany),
        std::string() + many("{% for i in [1] %}", kMany) + many("{% endfor %}", kMany),
        std::string() + many("{% set x %}", kMany) + many("{% endset %}", kMany),
        std::string() + many("{% macro f() %}", kMany) + many("{% endmacro %}", kMany),
        std::string() + "{% set " + many("(", kMany) + "a",
        std::string() + "{% for " + many("(", kMany),
        std::string() + many("{{", kMany),
        std::string() + many("{%", kMany),
        std::string() + many("{#", kMany),
        std::string() + many("{% raw %}", kMany),
        std::string() + "{{ '" + many("\\", kMany - 1)}) {
    sources.push_back(source);
  }
  return sources;
}

TEST(Hostile, templates_end_within_their_limits) {
  constexpr Limits kSmall = {
      .steps = 200'000, .bytes = 8 << 20, .output_bytes = 1 << 20, .depth = 400};
  const std::vector<std::string> sources = hostile_templates();
  EXPECT_GE(sources.size(), 100U);
  for (const std::string& source : sources) {
    const auto text = render(source, {{"x", {{"a", 1}}, Origin::kInput}}, kSmall);
    const std::string shown = source.substr(0, 100);
    if (text.ok()) {
      EXPECT_LE(text->size(), std::size_t{1} << 20) << shown;
    } else {
      EXPECT_EQ(text.error().message.find('\n'), std::string::npos) << shown;
      EXPECT_TRUE(text.error().code.starts_with("jinja.")) << shown;
      EXPECT_LT(text.error().message.size(), 600U) << shown;
    }
  }
}

double processor_seconds() {
  std::timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Each took seconds to for ever for steps that were charged for a thousandth of the work, or
// memory without an end.
TEST(Hostile, steps_and_bytes_are_those_of_the_work) {
  constexpr Limits kLimits = {.steps = 1'000'000};
  constexpr double kMostSeconds = 2;  // a quarter of a second and less by itself
  const std::string loop = "{% for i in range(20000) %}";
  const std::string texts = "{% set a = 'a' * 4000000 %}";
  const std::vector<std::string> sources = {
      std::string("{{ 'a'.ljust(4611686018427387905, '\U0001D54F') }}"),
      std::string("{{ 'a'.center(4611686018427387905, '\U0001D54F') }}"),
      std::string("{{ 'a'.rjust(4611686018427387905, '\U0001D54F') }}"),
      "{% set ns = namespace(t=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}"
      "{% endfor %}{{ {ns.t: 1}|length }}{{ {ns.t: 1}.get(ns.t) }}{{ [ns.t]|unique|list|length }}",
      "{% set ns = namespace(t=(1,), u=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, "
      "ns.t) %}{% set ns.u = (ns.u, ns.u) %}{% endfor %}{{ {ns.t: 1}[ns.u] }}",
      texts + loop + "{% set b = a[3999999:] %}{% endfor %}",
      texts + "{% set b = 'a' * 2000000 ~ 'b' %}{{ b in a }}{{ a.rfind('b' ~ b) }}",
      texts + "{{ a.count('a' * 2000000 ~ 'b') }}{{ a.replace('a' * 30 ~ 'b', '') }}",
      texts + "{% set b = 'b' * 2000000 %}{{ b.strip(a ~ 'b')|length }}",
      texts + "{% set b = 'a' * 4000000 %}{{ ([a] * 20000).count(b) }}",
      texts + "{% set b = 'a' * 4000000 %}" + loop + "{% if a < b %}{% endif %}{% endfor %}",
      texts + "{% set d = {a: 1, a ~ 'b': 2} %}" + loop + "{{ a in d }}{% endfor %}",
      texts + loop + "{% set b = a|length %}{% endfor %}",
      texts + loop + "{% set b = a|wordcount %}{% endfor %}",
      texts + loop + "{% set b = a is upper %}{% endfor %}",
      texts + loop + "{% set b = a|truncate(3999000, true) %}{% endfor %}",
      "{% macro f() %}{{ kwargs|length }}{% endmacro %}{% set d = {'a' * 4000000: 1} %}" + loop +
          "{{ f(**d) }}{% endfor %}",
      "{% set r = range(100000) %}{% for i in r %}{% for k in r "
      "%}{% set x = '%f' % 1e300 %}{% endfor %}{% endfor %}",
      "{% set r = range(20000) %}{% for i in r %}{% macro f() %}{% endmacro %}{% endfor %}"};
  for (const std::string& source : sources) {
    SCOPED_TRACE(source.substr(0, 160));
    Usage usage;
    const auto chat = Template::compile(source, kName);
    const double before = processor_seconds();
    const auto text =
        chat->render({}, {.now = noon(), .roles = {}, .limits = kLimits, .usage = &usage});
    EXPECT_LT(processor_seconds() - before, kMostSeconds);
    EXPECT_LE(usage.steps, kLimits.steps);
    EXPECT_LE(usage.bytes, kLimits.bytes);
    EXPECT_TRUE(text.ok() || text.error().code == "jinja.limit") << text_of(text);
  }
}

/// What is free again is not charged a second time.
TEST(Hostile, memory_is_that_which_lives) {
  constexpr Limits kLimits = {.bytes = 4 << 20};
  Usage usage;
  const auto chat = Template::compile(
      "{% for i in range(1000) %}{% set a = 'a' * 1000000 %}{% endfor %}done", kName);
  const auto text = chat->render({}, {.now = {}, .roles = {}, .limits = kLimits, .usage = &usage});
  EXPECT_EQ(text_of(text), "done");
  EXPECT_GE(usage.bytes, 1'000'000);
}

/// A comment of so many bytes beside the text "x".
std::string source_of(std::size_t bytes) {
  return "{#" + std::string(bytes - 5, '-') + "#}x";
}

TEST(Hostile, sources_have_a_size) {
  EXPECT_EQ(text_of(render(source_of(Template::kMaxSourceBytes))), "x");
  EXPECT_EQ(text_of(render(source_of(Template::kMaxSourceBytes + 1))),
            "chat.jinja: the template has 262145 bytes, more than 262144 [jinja.limit]");
}

/// Where each byte comes from is part of an output, and takes its room.
TEST(Hostile, outputs_count_with_their_origins) {
  constexpr Limits kLimits = {.output_bytes = 100'000};
  const auto size_of = [&](std::string_view source) {
    return render(source, {{"x", "b", Origin::kInput}}, kLimits);
  };
  EXPECT_EQ(size_of("{{ 'ab' * 40000 }}")->size(), 80'000U);
  EXPECT_EQ(size_of("{{ ('a' ~ x) * 2000 }}")->size(), 4000U);
  EXPECT_EQ(size_of("{{ ('a' ~ x) * 40000 }}").error().code, "jinja.limit");
}

TEST(Hostile, limits_are_refused_by_their_code) {
  for (const char* const source :
       {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 'a' * 9999999999 }}",
        "{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}"}) {
    EXPECT_EQ(render(source).error().code, "jinja.limit") << source;
  }
}

}  // namespace
}  // namespace subbyte::jinja
