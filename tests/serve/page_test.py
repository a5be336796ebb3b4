#!/usr/bin/env python3
"""The page of `subbyte serve` in Chromium: what people do there, and what a model cannot do to it.

    page_test.py PROGRAM [TEST...]

SUBBYTE_PICTURES: where pictures for docs/serve.md go, of an answer that is written here.
"""
from __future__ import annotations

import base64
import json
import os
import unittest
from pathlib import Path

from browser import Browser
from client import Server, main, wait_until

HOSTILE = """<script>document.title = 'taken'</script> <img src=x onerror="document.title='taken'">

[click](javascript:document.title='taken') ![a](http://evil.example/x.png) <b>bold</b>

| <i>a</i> | b |
|---|---|
| <img src=x onerror=alert(1)> | `<script>` |

```html
<script>document.title = 'taken'</script>
```
"""
TEXT = """Sunlight has all colours. Air scatters **short waves** more than long ones, with the \
*fourth power* of the frequency:

| colour | wavelength | scattered |
|---|---|---|
| blue | 450 nm | 4.4 |
| red | 650 nm | 1 |

1. Blue light comes from everywhere.
2. Red light comes from the sun alone, which shows at sunset.

```python
ratio = (650 / 450) ** 4  # 4.35
```

See [Rayleigh scattering](https://en.wikipedia.org/wiki/Rayleigh_scattering).
"""


class Page(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server("qwen3")
        self.browser = Browser()
        self.browser.resize(1100, 750)
        self.load()

    def tearDown(self) -> None:
        self.browser.__exit__()
        self.server.__exit__()

    def load(self) -> None:
        self.browser.open(self.server.address + "/")
        self.browser.wait("$('model').value")

    def say(self, text: str) -> None:
        self.browser.run("$('text').focus()")
        self.browser.type(text)
        self.browser.press("Enter")

    def wait_for_answer(self, messages: int) -> str:
        self.browser.wait(f"!running && chat.messages.length === {messages}")
        return self.browser.run("chat.messages.at(-1).content")

    def bodies(self) -> list[dict]:
        return [json.loads(one["postData"]) for one in self.browser.requests if "postData" in one]

    def click(self, text: str, within: str = "document") -> None:
        self.browser.run(f"[...{within}.querySelectorAll('button')]"
                         f".find((one) => one.textContent === '{text}').click()")

    def limit_tokens(self, number: int) -> None:
        self.browser.run(f"settings.max_tokens = {number}; write(kSettings, settings)")

    def test_a_conversation(self) -> None:
        page = self.browser
        self.click("Settings")
        page.run("$('settings').querySelector('form').elements.temperature.focus()")
        page.type("0")
        page.run("$('settings').querySelector('form').elements.max_tokens.focus()")
        page.type("12")
        page.run("$('system').focus()")
        page.type("Be brief.")
        self.click("Save")
        page.wait("settings.max_tokens === 12")
        self.say("Why is the sky blue?")
        first = self.wait_for_answer(2)
        self.assertRegex(page.run("$('status').textContent"), r"12 tokens, [\d.]+ tokens/s")
        body = self.bodies()[-1]
        self.assertEqual((body["temperature"], body["max_tokens"]), (0, 12))
        self.assertEqual([one["role"] for one in body["messages"]], ["system", "user"])
        whole = self.server.post("/v1/chat/completions", {**body, "stream": False,
                                                          "stream_options": None}).json
        self.assertEqual(first, whole["choices"][0]["message"]["content"])
        self.say("And red?")
        second = self.wait_for_answer(4)
        self.assertEqual(self.bodies()[-1]["messages"][2], {"role": "assistant", "content": first})
        page.run("document.querySelectorAll('.assistant')[1].dataset.old = 1")
        self.click("Regenerate", "document.querySelectorAll('.assistant')[1]")
        page.wait("!document.querySelector('[data-old]')")
        self.assertEqual(self.wait_for_answer(4), second)
        self.click("Edit")
        page.run("document.activeElement.value = 'Why is the grass green?'")
        self.click("Send", "document.querySelector('.user')")
        self.wait_for_answer(2)
        self.assertEqual(self.bodies()[-1]["messages"][1]["content"], "Why is the grass green?")
        self.load()
        self.assertEqual(page.run("chat.messages.length"), 2)
        self.assertEqual(page.run("document.querySelectorAll('article').length"), 2)
        self.assertEqual(page.run("settings.system"), "Be brief.")
        self.click("New conversation")
        self.assertEqual(page.run("document.querySelectorAll('article').length"), 0)
        self.assertEqual(page.run("$('list').children.length"), 1)
        self.assertEqual(page.complaints, [])
        here = (self.server.address, "data:", "about:")
        self.assertEqual([one["url"] for one in page.requests if not one["url"].startswith(here)],
                         [])

    def test_stop(self) -> None:
        page = self.browser
        for how in ("click", "Escape"):
            self.click("New conversation")
            self.say("Tell me a long story")
            page.wait("chat.messages.at(-1)?.content")
            if how == "click":
                self.click("Stop")
            else:
                page.press("Escape")
            page.wait("!running")
            if "Answered" not in page.run("$('status').textContent"):  # it was soon enough
                self.assertEqual(page.run("$('status').textContent"), "Stopped.")
        wait_until(lambda: self.server.running() == 0)

    def test_another_conversation_ends_an_answer(self) -> None:
        page = self.browser
        self.say("Tell me a long story")
        page.wait("chat.messages.at(-1)?.content")
        self.click("New conversation")
        page.wait("!running")
        wait_until(lambda: self.server.running() == 0)
        self.assertEqual(page.run("chat.messages.length"), 0)
        self.assertEqual(page.run("chats().length"), 1)
        self.assertTrue(page.run("chats()[0].messages[1].content"))
        page.run("$('list').querySelector('li').lastChild.click()")
        self.assertEqual(page.run("chats().length"), 0)

    def test_errors_are_shown(self) -> None:
        page = self.browser
        self.limit_tokens(10**13)
        self.say("Hello")
        page.wait("!running && chat.messages.length === 2")
        self.assertIn("max_tokens", page.run("document.querySelector('.error').textContent"))
        self.limit_tokens(2)
        self.say("Hello")
        self.wait_for_answer(4)
        self.assertEqual(len(self.bodies()[-1]["messages"]), 2)

    def test_a_model_makes_no_markup(self) -> None:
        page = self.browser
        before = len(page.requests)
        for size in (len(HOSTILE), 1, 7):
            text = page.run(f"""(async () => {{
                const root = make('div', {{className: 'body'}});
                $('messages').append(root);
                const markdown = new Markdown(root);
                const text = {json.dumps(HOSTILE)};
                for (let i = 0; i < text.length; i += {size}) {{
                    markdown.add(text.slice(i, i + {size}));
                }}
                await new Promise((done) => setTimeout(done, 50));
                window.drawn ??= root.innerHTML;
                if (window.drawn !== root.innerHTML) return 'it depends on the parts';
                const markup = 'script, img, a, i, b, [onerror], [href], [src]';
                if (root.querySelector(markup)) return 'markup';
                return root.textContent;
            }})()""")
            self.assertIn("<img src=x onerror=\"document.title='taken'\">", text)
            self.assertIn("click (javascript:document.title='taken')", text)
            self.assertIn("a (http://evil.example/x.png)", text)
        self.assertEqual(page.run("document.title"), "subbyte")
        self.assertEqual(len(page.requests), before)
        self.assertEqual(page.complaints, [])

    def test_markdown(self) -> None:
        page = self.browser
        for text, expected in (
                ("# A\n\ntext", "<h3>A</h3><p>text</p>"), ("a\nb\n\nc", "<p>a\nb</p><p>c</p>"),
                ("- a\n- b\n  - c\n", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></ul>"
                                      "</li></ul>"),
                ("3. a\n4. b", '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>'),
                ("**a** _b_ `c*d*` ~~e~~ f_g_h 2*3*4 \\*i\\*",
                 "<p><strong>a</strong> <em>b</em> <code>c*d*</code> <s>e</s> f_g_h 2<em>3</em>4 "
                 "*i*</p>"),
                ("``a`b`` `` c` *d **e** f*",
                 "<p><code>a`b</code> `` c` *d <strong>e</strong> f*</p>"),
                ("## A # b ##", "<h3>A # b</h3>"), ("a|b\n-|c", "<p>a|b\n-|c</p>"),
                ("> a\n> b", "<blockquote><p>a\nb</p></blockquote>"), ("---", "<hr>"),
                ("[a](http://b)", '<p><span class="link">a</span><span class="target"> (http://b)'
                                  "</span></p>"),
                ("|a|b|\n|-|-|\n|1|2|\n",
                 '<div class="table"><table><thead><tr><th>a</th><th>b</th></tr></thead>'
                 "<tbody><tr><td>1</td><td>2</td></tr></tbody></table></div>"),
                ("a & <b>", "<p>a &amp; &lt;b&gt;</p>")):
            found = page.run(f"(() => {{ const root = make('div'); new Markdown(root).add("
                             f"{json.dumps(text)}); return root.innerHTML; }})()")
            found = found.replace("<section>", "").replace("</section>", "")
            self.assertEqual(found, expected, text)
        code = page.run("""(() => { const root = make('div'); const one = new Markdown(root);
            for (const part of 'a\\n~~~c++\\n```\\n # b\\n~~~\\nend') one.add(part);
            return [...root.querySelectorAll('p, figure')].map((node) => node.textContent)
                .join('|'); })()""")
        self.assertEqual(code, "a|c++Copy```\n # b\n|end")

    def test_no_text_takes_long(self) -> None:
        """Texts that a reader with second thoughts would read again and again."""
        for part in ("[](", "![a](b ", "*a **b ", "**a", "__a _b ", "~~a", "`" * 500 + " ", "`a``",
                     "# " + "#" * 15000 + "a", "# " + "# " * 7000 + "a", "~" * 15000 + "`",
                     "`" * 15000 + "a`", "a|b\n" + " " * 15000 + "a", "a|b\n" + "-|" * 7000 + "a",
                     "- " * 7000 + "a", "> " * 7000 + "a", " " * 15000 + "a"):
            text = part * (16000 // len(part))
            took = self.browser.run(f"""(() => {{
                const begin = performance.now();
                new Markdown(make('div')).add({json.dumps(text)});
                return performance.now() - begin;
            }})()""")
            self.assertLess(took, 500, part[:20])

    def test_long_texts_stay_usable(self) -> None:
        """10 MB in parts, as text, as one line and as code; no part takes two seconds."""
        page = self.browser
        for line in ("A **word** and `code` here, many of them.\n\n", "word " * 8, "x = 1  # y\n"):
            longest = page.run(f"""(async () => {{
                const message = {{role: 'assistant', content: ''}};
                const view = drawMessage(message);
                $('messages').replaceChildren(view.node);
                if ({json.dumps(line)}.startsWith('x')) view.add('```\\n', '');
                const part = {json.dumps(line)}.repeat(2000);
                let longest = 0, last = performance.now(), size = 0;
                while (size < 10_000_000) {{
                    view.add(part, '');
                    size += part.length;
                    await new Promise(requestAnimationFrame);
                    longest = Math.max(longest, performance.now() - last);
                    last = performance.now();
                }}
                view.finish();
                return longest;
            }})()""")
            self.assertLess(longest, 2000, line)
            page.run("$('text').focus(); $('text').value = ''")
            page.type("still here")
            self.assertEqual(page.run("$('text').value"), "still here")

    def test_phones(self) -> None:
        page = self.browser
        page.resize(360, 640, True)
        self.limit_tokens(30)
        self.say("Hello " * 20)
        self.wait_for_answer(2)
        self.assertEqual(page.run("document.documentElement.scrollWidth"), 360)
        page.wait("$('side').getBoundingClientRect().right < 1")
        self.click("Menu")
        page.wait("$('side').getBoundingClientRect().left === 0")
        page.press("Escape")
        page.wait("$('side').getBoundingClientRect().right < 1")
        self.assertEqual(page.run("document.activeElement.id"), "text")
        self.click("Menu")
        self.assertTrue(page.run("document.querySelector('main').inert"))
        page.resize(1100, 640)
        page.wait("!document.querySelector('main').inert")

    def test_everything_has_a_name_and_is_reached_by_keys(self) -> None:
        page = self.browser
        self.limit_tokens(3)
        self.say("Hello")
        self.wait_for_answer(2)
        for opened in (False, True):
            if opened:
                self.click("Settings")
            nodes = page.call("Accessibility.getFullAXTree")["nodes"]
            controls = [node for node in nodes if not node["ignored"] and node["role"]["value"] in
                        ("button", "textbox", "combobox", "spinbutton", "dialog", "log")]
            self.assertGreater(len(controls), 8)
            self.assertEqual([node for node in controls if not node["name"]["value"]], [])
        page.press("Escape")
        page.run("document.activeElement.blur()")
        reached = []
        for _ in range(20):
            page.press("Tab")
            reached.append(page.run("((one) => one.textContent || one.id)(document.activeElement)"))
        for name in ("New conversation", "Settings", "Edit", "Regenerate", "text", "Send"):
            self.assertIn(name, reached)
        page.press("n", modifiers=1, code="KeyN")
        self.assertEqual(page.run("chat.messages.length"), 0)

    def test_colours_can_be_told_apart(self) -> None:
        page = self.browser
        for theme in ("light", "dark"):
            page.prefer(theme)
            for name in ("body", "#status", "#send", "#theme", "#list"):
                ratio = page.run(f"""(() => {{
                    const node = document.querySelector('{name}');
                    const light = (colour) => {{
                        const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((x) => x / 255)
                            .map((x) => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
                        return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2];
                    }};
                    let back = node;
                    while (/, 0\\)$/.test(getComputedStyle(back).backgroundColor)) {{
                        back = back.parentElement;
                    }}
                    const two = [light(getComputedStyle(node).color),
                                 light(getComputedStyle(back).backgroundColor)].sort();
                    return (two[1] + .05) / (two[0] + .05);
                }})()""")
                self.assertGreater(ratio, 4.5, (theme, name))

    def test_the_policy(self) -> None:
        answer = self.server.get("/")
        self.assertLess(len(answer.text.encode()), 120_000)
        policy = answer.headers["Content-Security-Policy"]
        self.assertTrue(policy.startswith("default-src 'none';"))
        self.assertIn("connect-src 'self'", policy)
        self.assertNotIn("unsafe", policy)
        self.browser.run("document.body.append(Object.assign(document.createElement('script'), "
                         "{textContent: 'document.title = \"taken\"'}))")
        self.assertEqual(self.browser.run("document.title"), "subbyte")
        failed = self.browser.run("fetch('http://evil.example/').then(() => 'sent', () => 'no')")
        self.assertEqual(failed, "no")

    def test_a_key(self) -> None:
        self.server.__exit__()
        self.server = Server("qwen3", "--api-key", "secret")
        page = self.browser
        page.open(self.server.address + "/")
        page.wait("$('status').textContent.includes('key')")
        self.click("Settings")
        page.run("$('key').focus()")
        page.type("secret")
        self.click("Save")
        page.wait("$('model').value")

    @unittest.skipUnless("SUBBYTE_PICTURES" in os.environ, "nobody wants pictures")
    def test_pictures(self) -> None:
        page = self.browser
        parts = [{"choices": [{"delta": {"content": TEXT[i:i + 9]}}]}
                 for i in range(0, len(TEXT), 9)]
        parts.append({"choices": [], "usage": {"completion_tokens": 168}})
        lines = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
        text = base64.b64encode(lines.encode()).decode()
        page.run(f"""window.fetch = async () => new Response(
            Uint8Array.from(atob('{text}'), (letter) => letter.charCodeAt(0)))""")
        page.run("performance.now = ((now) => () => now += 40)(0)")
        for name, width, height, theme in (("light", 1000, 680, "light"),
                                           ("dark", 390, 680, "dark")):
            page.resize(width, height, width < 500)
            page.prefer(theme)
            if name == "light":
                self.say("Why is the sky blue?")
                page.wait("!running && chat.messages.length === 2")
            page.run("new Promise((done) => setTimeout(done, 300))")
            page.save(Path(os.environ["SUBBYTE_PICTURES"]) / f"serve_{name}.png")


if __name__ == "__main__":
    main()
