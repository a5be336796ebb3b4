"""Small templates for each thing that the interpreter of src/jinja/ knows; make_jinja_goldens.py
writes down what the renderer of transformers makes of them."""
from __future__ import annotations

from typing import Any

VARIABLES: dict[str, Any] = {
    "n": 7, "x": 2.5, "t": True, "f": False, "none": None, "s": "Hello, World", "e": "",
    "u": "\u00dcber stra\u00dfe \u4f60\u597d", "w": "  a  b \n", "l": [3, 1, 2], "z": [],
    "m": {"b": 1, "a": [1, "two", None, True, 2.0], "B": {"c": "d"}},
    "d": [{"r": "user", "c": "Hi", "k": 2}, {"r": "bot", "c": "Yo", "k": 1},
          {"r": "user", "c": "Bye"}],
    "q": "it's \"q\" \\ \n\t\u0007\u00a0\u200b\U0001f600",
}

EXPRESSIONS = """
1 + 2 * 3 ** 2 // 4 % 5 - -1|2 ** 3 ** 2|7 // 2, -7 // 2, 7 // -2, -7 % 3, 7 % -3|7 / 2, 4 / 2
7.5 // 2, -7.5 % 2, 7.5 % -2|1e16, 1e15, 1.0, 0.1, 1e-5, 0.0001, 123456789012345678.0, 1e22
1_000, 0x1F, 0b101, 0o17, 1_0.5e1|true, false, none, True, False, None|[1, 2.0, 'a', none, true]
(1,), (1, 2), ()|{'a': 1, 'b': [1, {'c': none}], 2: 3.5, none: true}|'a' ~ 1 ~ 2.0 ~ none ~ [1]
'a' * 3, [1] * 2, 2 * 'ab', (1,) * 2|'a' + 'b', [1] + [2], (1,) + (2,)|1 == 1.0, true == 1, '1' == 1
1 < 2 < 3, 1 < 3 < 2, 'a' < 'b', [1, 2] < [1, 3]|not true, not 0, not ''|1 and 2, 0 and 2, 0 or 'x'
'a' in 'abc', 1 in [1], 'k' in {'k': 1}, 1 not in [1]|'yes' if n > 5 else 'no', 'x' if false
s[0], s[-1], s[1:4], s[::-1], s[::2], s[-3:], s[5:1:-2]|l[::-1], l[1:], l[:-1], l[-2:], l[5:]
m.b, m['a'], m.a[1], m.B.c, m.zz, m['zz'], m.a[9]|d[0].c, d[-1]['c'], d.0.c|'a' 'b' "c"
'\\n\\t\\\\\\'\\"\\x41\\u00e9\\101\\q'|q, [q], u, [u]|[1e400, -1e400]|n is defined, nope is defined
nope, nope is undefined, [nope], nope ~ 'x'|n is number, t is number, s is string, m is mapping
l is sequence, s is sequence, m is sequence, n is sequence|l is iterable, s is iterable, n is iterable
n is odd, n is even, 9 is divisibleby 3, 9 is divisibleby(2)|none is none, n is not none, t is boolean
t is true, f is false, n is true, 1 is integer, 1.0 is float, t is integer|'a' is lower, 'A' is upper
n is eq 7, n is ne 7, n is gt 3, n is lessthan 3, n is in [7]|n is sameas 7, m is sameas m
range(3), range(1, 4), range(5, 0, -2)|range(3)|list, range(5, 0, -2)|list|dict(a=1, b=2), dict({'x': 1}, y=2)
namespace(a=1).a|m.items(), m.keys(), m.values()|m|items|list|m|dictsort|m|dictsort(true)
m|dictsort(by='value')|m|length, s|length, u|length, l|count|s|upper, s|lower, u|upper, u|lower
s|title, 'foo-bar (baz) x_y'|title, 'hello WORLD'|capitalize|w|trim, 'xxaxx'|trim('x')|l|sort, l|sort(true)
['b', 'A', 'c']|sort, ['b', 'A', 'c']|sort(case_sensitive=true)|d|sort(attribute='c')|map(attribute='c')|list
l|first, l|last, z|first, z|last, s|first, s|last|l|join, l|join(', '), d|join('|', attribute='c')
l|reverse|list, s|reverse|l|sum, l|min, l|max, d|map(attribute='c')|list|d|sum(attribute='zz')
d|map(attribute='k', default=0)|list, d|map(attribute='k', default=0)|sum|['a', 'B']|map('upper')|list
d|selectattr('r', 'equalto', 'user')|map(attribute='c')|join(',')|d|rejectattr('r', 'eq', 'user')|list
d|selectattr('k')|list|length, d|selectattr('k', 'defined')|list|length|[1, 2, 3, 4]|select('odd')|list
[1, 2, 3, 4]|reject('odd')|list, [0, 1, '']|select|list|d|groupby('r')|d|map(attribute='r')|unique|list
[1, 2, 3, 4, 5]|batch(2)|list, [1, 2, 3]|batch(2, 'x')|list|[1, 2, 3, 4, 5]|slice(2)|list
s|replace('l', 'L'), s|replace('l', 'L', 1), 'aaa'|replace('', '-')|nope|default('x'), e|default('x', true), e|d('x')
'42'|int, '4.7'|int, 'x'|int, 'x'|int(5), 4.9|int, '0x1f'|int(0, 16), none|int|'1.5'|float, 'x'|float, 3|float
-5|abs, (-5)|abs, 2.5|round, 3.5|round, 2.567|round(2), 2.1|round(0, 'ceil'), 2.9|round(method='floor'), 7|round
'%s is %d and %.2f'|format('a', 3, 1.5)|'%5d|%-5d|%05d|%x|%+d' % (42, 42, 42, 255, 7)|'%(a)s-%(b)r' % {'a': 1, 'b': 'x'}
'%s' % 'one', '%s%%' % 5, '%s' % [1], '%r' % 'a'|'{} {}'.format(1, 'a'), '{0}{1}{0}'.format('a', 'b')
'{a} {b!r:>5} {c:05.1f} {d:,}'.format(a=1, b='x', c=2.25, d=1234567)|'{:<5}|{:^5}|{:>5}|{:*^7}'.format('a', 'b', 'c', 'd')
'{{}} {x[k]}'.format(x={'k': 'v'})|m|tojson, q|tojson, u|tojson, [1.0, none, true, 'a<b>&']|tojson
m|tojson(indent=2), [[], {}, [1]]|tojson(indent=4)|m|tojson(separators=(',', ':')), m|tojson(sort_keys=true)
u|tojson(ensure_ascii=true), q|tojson(ensure_ascii=true)|(1, 2)|tojson, {1: 2, none: 3, true: 4, 1.5: 5}|tojson
'a\\nb\\n\\nc'|indent, 'a\\nb'|indent(2, true), 'a\\n\\nb'|indent(2, blank=true), 'a\\nb'|indent('> ')
'a b c d e f'|truncate(5, leeway=0), 'abcdefgh'|truncate(5, true, leeway=0), 'ab'|truncate(5)|'a b  c'|wordcount
'<a & "b">'|e, '<a>'|safe, ('<a>'|safe) + '<b>', '<a>'|e|e, '<a>'|forceescape|'a b&c/\u00e9'|urlencode
'<p>a <b>b</b></p>'|striptags|'abc'|center(9), 'abc'|center(8)|'abc'|list, m|list|'a'|string, 1|string, none|string
s.split(','), 'a b  c '.split(), 'a,b,c'.split(',', 1), 'a,b,c'.rsplit(',', 1), ' a b c '.split(None, 1)
' a b c '.rsplit(None, 1)|'a\\nb\\r\\nc'.splitlines(), 'a\\nb\\n'.splitlines(true)|w.strip(), w.lstrip(), w.rstrip()
'xxaxx'.strip('x'), 'abcabc'.lstrip('ab'), '--a-'.rstrip('-')|s.upper(), s.lower(), s.title(), s.swapcase()
'abc DEF'.capitalize()|s.startswith('He'), s.endswith(('x', 'ld')), s.startswith('e', 1)|s.find('l'), s.rfind('l')
s.index('W'), s.count('l'), s.find('zz'), u.find('\u4f60')|s.replace('l', ''), s.replace('l', 'L', 2)|'-'.join(['a', 'b'])
'a'.zfill(3), '-4'.zfill(4), 'a'.ljust(3, '.'), 'a'.rjust(3), 'ab'.center(5, '*')|'a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'x'.partition('-')
'abc'.removeprefix('a'), 'abc'.removesuffix('c'), 'abc'.removeprefix('x')|'12'.isdigit(), 'a1'.isalnum(), 'ab'.isalpha(), ' '.isspace(), 'A'.isupper(), 'a'.islower(), 'Ab Cd'.istitle()
'a\\tb'.expandtabs(4), 'abc'.isidentifier(), '1'.isdecimal(), '\u00bd'.isnumeric()|m.get('b'), m.get('zz'), m.get('zz', 5)
l.index(1), l.count(3), (1, 2).index(2)|m['get'], m.copy() == m|not n is defined, n is not defined|(n)|string ~ 'x'
-n|abs, -(n)|string|n.__class__, s.__len__|m.__class__ is defined|none.x, n.x, l.x|n ~ n + n|[1, 2] == [1, 2], {'a': 1} == {'a': 1.0}, (1,) == [1]
'a' is in ['a'], 'a' is in 'abc'|d|map('length')|list|cycler('a', 'b').next()|'%c' is string|nope|length, nope|list, nope|upper, nope|join
[3, 1]|sort|first, 'ba'|sort|join|dict(m, z=1)|length|'abc'[1], 'abc'['1':]|x|string, x|int, 1e3|int|{'a': {'b': 1}}|attr('a')
[[1, 2], [3]]|sum(start=[])|['x', none, 1]|join('-')|'A' < 'a', 'Z' ~ 'z'|('a', 'b')|join|{'x': 1}.x, {'items': 1}.items, {'items': 1}['items']
[1, 2, 3][-1:], 'h\u00e9llo'[1:3], 'h\u00e9llo'[::-1]|1 if none is none, 5 is none or 3|n is not string and t|('x' if f) is defined
"""

TEMPLATES = [
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "  {% if t %}  x  {% endif %}  \n y", "a {%- if t -%} b {%- endif -%} c",
    "{{ 1 }}\n\n{{- 2 -}}\n 3", "a\n  {%+ if t %}b{% endif +%}\nc", "{# c #}\na {#- d -#} b\n  {# x #}\nz",
    "{% raw %}{{ x }} {% y %}{% endraw %}\nz", "a {%- raw -%}  {{ }}  {%- endraw -%} b", "x\r\ny\r{{ 1 }}\n", "x\n\n",
    "\t{% set a = 1 %}\n{{ a }}", "{{ '}}' }}{{ {'a': {}} }}", "{% for i in l %}{{ i }},{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in l %}[{{ loop.previtem }}|{{ loop.nextitem }}]{{ loop.previtem is defined }}{% endfor %}",
    "{% for i in l if i > 1 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}",
    "{% for i in z %}x{% else %}none{% endfor %}", "{% for i in l if i > 9 %}x{% else %}none{% endfor %}",
    "{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in m %}{{ k }}{% endfor %}",
    "{% for c in 'h\u00e9' %}{{ c }}.{% endfor %}", "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}", "{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% set a = 1 %}{% for i in l %}{% set a = a + i %}{{ a }} {% endfor %}{{ a }}",
    "{% set ns = namespace(a=0, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.zz is defined }}",
    "{% set a, b = 1, 2 %}{{ b }}{{ a }}{% set c = 1, 2 %}{{ c }}", "{% set x %}a{{ n }}b{% endset %}[{{ x }}]",
    "{% set x | upper | replace('A', 'b') %}aXa{% endset %}{{ x }}", "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% if n > 9 %}a{% elif n > 5 %}b{% else %}c{% endif %}", "{% if nope %}a{% endif %}{% if nope.x is defined %}{% endif %}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=3) }} {{ f(b=5, a=4) }} {{ f() }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, k=3) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}", "{% macro f(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) f(3) %}{{ y }}{{ n }}{% endcall %}",
    "{% macro f(x) %}{{ x }}{% endmacro %}{% call f(3) %}a{% endcall %}", "{% macro f() %}{{ g }}{% endmacro %}{% set g = 5 %}{{ f() }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}{{ f.name }}", "{% macro f() %}  a  {% endmacro %}[{{ f()|trim }}]",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% for i in l %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% generation %}x{{ n }}{% endgeneration %}y", "{%- generation -%} x {%- endgeneration -%} y",
    "{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{% set _ = c.reset() %}{{ c.next() }}",
    "{{ raise_exception('no') }}", "{% if f %}{{ raise_exception('no') }}{% endif %}ok", "{{ nope.x }}", "{{ nope() }}", "{{ nope + 1 }}", "{{ n() }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}",
    "{{ [1] + (2,) }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ l.append(4) }}", "{{ m.update({'x': 1}) }}", "{{ m.pop('b') }}", "{% set _ = l.sort() %}", "{{ l.append }}", "{{ {}.x.y }}", "{{ none|length }}", "{{ 5|length }}",
    "{{ none[0] }}{{ none[1:] }}", "{% for i in none %}{% endfor %}", "{% for i in 5 %}{% endfor %}", "{{ 'a' in 5 }}", "{{ 1 in 'a' }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ {[]: 1} }}", "{{ m|tojson|length }}", "{{ nope|tojson }}",
    "{{ range|tojson }}", "{{ x|nofilter }}", "{% if false %}{{ x|nofilter }}{% endif %}ok", "{% if false %}{% for i in l %}{{ i|nofilter }}{% endfor %}{% endif %}", "{{ 1 if true else x|nofilter }}", "{{ x is notest }}", "{% if x is notest %}{% endif %}",
    "{{ s.nomethod() }}", "{{ s.nomethod }}|", "{{ 'abc'.split('') }}", "{{ 'a'.join([1]) }}", "{{ [2, 'a']|sort }}", "{{ 'x'.index('y') }}", "{{ '%d' % 'a' }}", "{{ '%s %s' % 'a' }}", "{{ '{}'.format() }}", "{{ '{x}'.format(y=1) }}",
    "{{ ''.__class__.__mro__ }}", "{{ n.__class__() }}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set ns = 5 %}{% set ns.x = 1 %}", "{{ namespace(_a=1) }}", "{% set a, b = 1 %}", "{% set a, b = [1, 2, 3] %}", "{{ range(1000000) }}", "{{ dict(5) }}",
    "{% break %}", "{% endif %}", "{% if t %}", "{% for i l %}{% endfor %}", "{{ }}", "{{ 1", "{% if %}{% endif %}", "{{ 'a }}", "{{ (1 }}", "{{ 1 ) }}", "{{ a. }}", "{% nope %}", "{{ 1 2 }}", "{{ * }}", "{% set 1 = 2 %}", "{% macro %}{% endmacro %}", "{# x", "{% raw %}", "{% raw %}x", "{{ {'a' 1} }}", "{{ f(a=1, 2) }}", "{{ $ }}", "{% set true = 1 %}",
    "{{ loop }}{{ loop is defined }}", "{% for i in l %}{% if loop.first %}{% set z = 1 %}{% endif %}{{ z is defined }} {% endfor %}", "{{ caller is defined }}", "{% set l = l + [4] %}{{ l }}", "{% set m = dict(m, **{'z': 1}) %}{{ m.z }}", "{{ dict(*[m]).b }}",
    "{% for g in d|groupby('r') %}{{ g.grouper }}{{ g.list|length }} {% endfor %}", "{% for k, g in d|groupby('r') %}{{ k }}{{ g|map(attribute='c')|join }} {% endfor %}", "{% set r = d|selectattr('r') %}{{ r|list|length }}{{ r|list|length }}", "{% set r = l|reverse %}{% for i in r %}{{ i }}{% endfor %}{% for i in r %}{{ i }}{% endfor %}",
    "{% for i in l|map('string') %}{{ i }}{{ loop.last }}{% endfor %}", "{{ none|selectattr('x')|list }}{{ none|map('upper')|list }}{{ 0|select|list }}{{ e|reject('odd')|list }}", "{% print 1, 2 %}", "{{ strftime_now('%Y-%m-%d %d %b %Y, %B %A %H:%M:%S %j') }}", "{% set x = {'a': [1, 2]} %}{{ x.a[1] }}{{ x['a'][0] }}", "{{ \"a\\\nb\" }}", "{{ 'a\nb' }}", "{{ 1 }}{{ 2 -}}   \n  {{ 3 }}", "{%- set a = 1 %}\n\n{{ a }}", "{{ d[0]|tojson }}{{ d|map(attribute='c')|list|tojson }}",
    "{% if not (n is defined and n) %}a{% else %}b{% endif %}", "{% include 'x' %}", "{{ s | upper | lower | title }}", "{{ (s ~ ' ' ~ n) | upper }}", "{{ not t or t }}{{ not (t or t) }}", "{{ -1 ** 2 }}{{ (-1) ** 2 }}{{ 2 ** -1 }}", "{{ l[true] }}{{ m[none] }}", "{{ 1.5.is_integer() }}{{ 2.0.is_integer() }}",
]
