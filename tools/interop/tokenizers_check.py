"""Makes tokenizers of many kinds, and compares what we make of fuzzed texts with `tokenizers`.

    python tools/interop/tokenizers_check.py CORPUS [--ours build/release/bench/tokenizer_time]
        [--count 10000] [--seed 1] [--kinds NAME ...] [--file TOKENIZER.json ...]
    python tools/interop/tokenizers_check.py CORPUS --goldens tests/data/tokenizers

CORPUS is a text to train on (a .xz file is unpacked). Of each text ids, decoded texts, and those of
our stream are compared; half as many lists of random ids are decoded, too. `--goldens` writes the
tokenizer and some texts of each kind for tokenizer_test. Only characters that Unicode 6 had are in
the texts: where the tables of `tokenizers` are older than ours, docs/tokenizers.md says so.
"""

import argparse
import json
import lzma
import pathlib
import random
import subprocess
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

MARK = "\u2581"
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ANCHORS = r"^ +|\b\w+$|\B'\b|\w+|[^\w\s]+(?=\s|\z)|\s+"
SIZE = 900  # of vocabularies
UNUSED = [0xC0, 0xC1, *range(0xF5, 0x100)]  # bytes that UTF-8 does not have
SPECIAL = ["<s>", "</s>", "<unk>", "<|im_end|>"]
PARTS = ["a", "B", "the", " the", "The ", "ing", "hello world", "e\u0301", "\u00e9", "\u00c9",
         "\u00df", "\ufb01", "\u4e2d\u6587", "\u65e5\u672c", "\ud55c\uad6d", "\u1112\u1161\u11ab",
         "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e44\u0e17\u0e22", "\U0001f469\u200d\U0001f467",
         "\u0410\u0431\u0432", "\u03a9\u2126", "\u212b", "A\u030a", "\u00a0", "\u2003", "\u3000",
         "\u0130", "\u017f", "'s", "'S", "'ll", "'LL", "1", "12", "1234", "\u0663\u0664", "\u2167",
         "\u00bd", "\u00b2", "\u2460", " ", "  ", "    ", "\t", "\n", "\r\n", "\n\n", " \n", ".",
         "...", "!?", "--", "(", ")", "{}", "\\", "\"", "$", "+", "\u20ac", "_", "snake_case",
         "CamelCase", "<s>", "</s>", "<unk>", "<|im_end|>", "<0x0A>", "<0x41>", "<", ">", "\x00",
         "\x7f", "\ufffd", "\ufeff", MARK, MARK + MARK, " " + MARK, "\u0301", "\u0323", "\u3002",
         "\uff01", "\u201c", "\u00ab", "@", "-1.5e3", "x\u0323\u0301"]


def alphabet():
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def train(model, normalizer, pre, decoder, corpus, size, **options):
    made = Tokenizer(model)
    if normalizer:
        made.normalizer = normalizer
    if pre:
        made.pre_tokenizer = pre
    made.decoder = decoder
    made.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                                         **options))
    return made


def byte_level(corpus, normalizer, parts, prefix=False, regex=False, last=None, **model):
    steps = [*parts, pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex),
             *(last or [])]
    made = train(models.BPE(**model), normalizer,
                 pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0],
                 decoders.ByteLevel(), corpus, SIZE, initial_alphabet=alphabet())
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    return made


def characters(corpus, normalizer, pre, decoder, fallback=True, fuse=True, unk="<unk>"):
    """As sentencepiece makes them: characters, and bytes for those without a token."""
    options = {"special_tokens": [unk, "<s>", "</s>"] if unk else []}
    if fallback:
        options["special_tokens"] = options["special_tokens"] + [f"<0x{b:02X}>" for b in range(256)]
    # Training joins within words only, as sentencepiece does.
    cut = pre or pre_tokenizers.Split(MARK, "merged_with_next")
    made = train(models.BPE(unk_token=unk, byte_fallback=fallback, fuse_unk=fuse), normalizer, cut,
                 decoder, corpus, SIZE + 300, **options)
    text = json.loads(made.to_str())
    text["pre_tokenizer"] = json.loads(made.to_str())["pre_tokenizer"] if pre else None
    text["added_tokens"] = [t for t in text["added_tokens"] if not t["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(text))


def templated(made, before, after=()):
    ids = [(name, made.token_to_id(name)) for name in [*before, *after]]
    made.post_processor = processors.TemplateProcessing(
        single=" ".join([*before, "$A", *after]), special_tokens=ids)
    return made


def llama2_decoder(*, strip=True):
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def prepended(*more):
    return normalizers.Sequence([*more, normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])


def metaspace(scheme, split=False):
    return pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=split)


def behaviours(corpus, behaviour):
    return byte_level(corpus, None, [
        pre_tokenizers.Split(Regex(r"\p{N}+|[aeiou]|"), behaviour),
        pre_tokenizers.Punctuation(behaviour),
        pre_tokenizers.Split("th", behaviour, invert=True)], regex=True)


def with_normalized_tokens(made):
    made.add_tokens([AddedToken("The End", normalized=True), AddedToken("\u212bB", normalized=True),
                     AddedToken("<m>", lstrip=True, rstrip=True, normalized=False),
                     AddedToken("word", single_word=True, normalized=False)])
    return made


def roberta(made):
    made.post_processor = processors.RobertaProcessing(
        ("</s>", made.token_to_id("</s>")), ("<s>", made.token_to_id("<s>")))
    return made


N, P = normalizers, pre_tokenizers
KINDS = {
    "qwen35": lambda c: byte_level(c, N.NFC(), [P.Split(Regex(QWEN35), "isolated")]),
    "kimi": lambda c: byte_level(c, None, [P.Split(Regex(KIMI), "isolated")], ignore_merges=True),
    "falcon": lambda c: byte_level(
        c, None, [P.Punctuation("contiguous")], regex=True,
        last=[P.Digits(individual_digits=False), P.Split(Regex("[0-9][0-9][0-9]"), "isolated")]),
    "starcoder": lambda c: byte_level(c, None, [P.Digits(individual_digits=True)], regex=True),
    "roberta": lambda c: roberta(byte_level(c, None, [], prefix=True, regex=True)),
    "anchors": lambda c: byte_level(c, N.Sequence([N.NFKC(), N.Replace(Regex(" {2,}"), " ")]),
                                    [P.Split(Regex(ANCHORS), "isolated")], prefix=True),
    "spaces": lambda c: byte_level(c, N.NFD(), [P.WhitespaceSplit(), P.Whitespace()]),
    "lower": lambda c: with_normalized_tokens(byte_level(
        c, N.Sequence([N.NFKD(), N.StripAccents(), N.Lowercase(), N.Strip()]), [], regex=True)),
    "removed": lambda c: behaviours(c, "removed"),
    "contiguous": lambda c: behaviours(c, "contiguous"),
    "previous": lambda c: behaviours(c, "merged_with_previous"),
    "next": lambda c: behaviours(c, "merged_with_next"),
    "llama2": lambda c: templated(characters(c, prepended(), None, llama2_decoder()), ["<s>"]),
    "mistral": lambda c: templated(
        characters(c, None, metaspace("first"), llama2_decoder()), ["<s>"]),
    "gemma": lambda c: templated(characters(
        c, N.Replace(" ", MARK), P.Split(" ", "merged_with_previous"),
        llama2_decoder(strip=False)), ["<s>"], ["</s>"]),
    "always": lambda c: characters(c, None, metaspace("always", split=True), decoders.Metaspace()),
    "never": lambda c: characters(
        c, N.Strip(right=False), metaspace("never", split=True),
        decoders.Metaspace(prepend_scheme="never"), fallback=False, fuse=False),
    "first": lambda c: with_normalized_tokens(characters(
        c, N.Sequence([N.Strip(), N.NFC()]), metaspace("first", split=True), decoders.Sequence([
            decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first"), decoders.Fuse(),
            decoders.Strip("!", 1, 0)]), fallback=False, fuse=True)),
    "no_unk": lambda c: characters(c, None, P.Sequence([P.Digits(individual_digits=True),
                                                        metaspace("always")]),
                                   decoders.Metaspace(), fallback=False, unk=None),
    # The bytes that no text has, and two that some have.
    "neox": lambda c: without_letters(
        byte_level(c, N.NFC(), [], regex=True), [0x00, 0x7F, *UNUSED]),
    "deepseek": lambda c: with_letters_added(without_letters(
        byte_level(c, None, [P.Digits(individual_digits=True)], regex=True), UNUSED)),
    "some_bytes": lambda c: without_bytes(characters(c, prepended(N.NFKC()), None,
                                                     llama2_decoder(), fuse=False)),
}


def without_bytes(made):
    """Half of the bytes have no token."""
    text = json.loads(made.to_str())
    vocab = text["model"]["vocab"]
    kept = [key for key in vocab if not (key.startswith("<0x") and int(key[3:5], 16) % 16 > 11)]
    text["model"]["vocab"] = {key: i for i, key in enumerate(kept)}
    for token in text["added_tokens"]:
        token["id"] = text["model"]["vocab"][token["content"]]
    return Tokenizer.from_str(json.dumps(text))


def letter(byte):
    """The character of the alphabet that stands for a byte."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in itself]
    return chr(byte if byte in itself else 256 + others.index(byte))


def without_letters(made, lacking):
    """Some bytes have no token, as in the files of GPT-NeoX, MPT, StarCoder and Falcon."""
    text = json.loads(made.to_str())
    gone = {letter(byte) for byte in lacking}
    kept = [key for key in text["model"]["vocab"] if key not in gone]
    text["model"]["vocab"] = {key: i for i, key in enumerate(kept)}
    for i, token in enumerate(text["added_tokens"]):
        token["id"] = text["model"]["vocab"].get(token["content"], len(kept) + i)
    return Tokenizer.from_str(json.dumps(text))


def with_letters_added(made):
    """Those bytes are added tokens, as in the files of DeepSeek-LLM and DeepSeek-Coder."""
    made.add_tokens([AddedToken(letter(byte), normalized=True) for byte in UNUSED])
    return made


def texts(count, seed, corpus):
    yield from ["", " ", "\n", *PARTS]
    chosen = random.Random(seed)
    for _ in range(count):
        if chosen.random() < 0.1:
            line = chosen.choice(corpus)
            at = chosen.randrange(len(line))
            yield line[at:at + chosen.randint(1, 80)]
        else:
            yield "".join(chosen.choice(PARTS) for _ in range(chosen.randint(1, 14)))


def id_lists(made, count, seed):
    chosen = random.Random(seed)
    ids = sorted(made.get_vocab().values())
    for _ in range(count):
        yield [chosen.choice(ids[:300] if chosen.random() < 0.7 else ids)
               for _ in range(chosen.randint(0, 20))]


def renamed_tokens(made):
    """Added tokens that `tokenizers` 0.23 decodes to their normalized form, or to the byte whose
    letter they are, not to their text."""
    letters = {letter(byte) for byte in range(128, 256)}
    return {i for i, token in made.get_added_tokens_decoder().items()
            if token.content in letters or (
                token.normalized and made.normalizer
                and made.normalizer.normalize_str(token.content) != token.content)}


def expected(made, item, renamed):
    if isinstance(item, str):
        ids = made.encode(item).ids
        answer = {"ids": ids}
    else:
        ids, answer = item, {}
    if renamed.intersection(ids):
        return answer
    answer["decoded"] = made.decode(ids, skip_special_tokens=False)
    answer["skipped"] = made.decode(ids, skip_special_tokens=True)
    return answer


def compare(name, made, path, ours, items):
    lines = "".join(json.dumps(item) + "\n" for item in items)
    run = subprocess.run([ours, path, "--lines"], input=lines, capture_output=True, text=True,
                         check=False)
    if run.returncode != 0:
        print(f"{name}: {run.stderr.strip()}")
        return 1
    wrong = panics = 0
    renamed = renamed_tokens(made)
    answers = [json.loads(line) for line in run.stdout.split("\n") if line]
    for item, answer in zip(items, answers, strict=True):
        try:
            want = expected(made, item, renamed)
        except BaseException as error:  # Strip of `tokenizers` panics where a text is too short
            if type(error).__name__ != "PanicException":
                raise
            panics += 1
            continue
        if "decoded" in want:
            want |= {"streamed": want["decoded"], "streamed_skipped": want["skipped"]}
        if all(want[key] == answer.get(key) for key in want):
            continue
        wrong += 1
        for key in want:
            if want[key] != answer.get(key) and wrong <= 3:
                print(f"{name}: {item!r}\n  {key}: expected {want[key]!r}\n"
                      f"  {' ' * len(key)}  found    {answer.get(key)!r}")
    print(f"{name}: {len(items)} texts, {wrong} differ, {panics} panics there", flush=True)
    return wrong


def write_goldens(folder, name, made, corpus):
    (folder / f"{name}.tokenizer.json").write_text(made.to_str(pretty=False) + "\n")
    renamed = renamed_tokens(made)
    cases = []
    for text in texts(40, 3, corpus):
        plain = made.encode(text, add_special_tokens=False).ids
        if renamed.intersection(plain):
            continue
        cases.append({"text": text, "ids": plain, "ids_in_template": made.encode(text).ids,
                      "decoded": made.decode(plain, skip_special_tokens=False),
                      "decoded_skip_special": made.decode(plain, skip_special_tokens=True)})
    (folder / f"{name}.cases.json").write_text(
        "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


def main():
    global SIZE
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("--ours", default="build/release/bench/tokenizer_time")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--file", nargs="*", default=[])
    parser.add_argument("--goldens", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/tokenizers"))
    arguments = parser.parse_args()
    SIZE = 420 if arguments.goldens else SIZE
    data = arguments.corpus.read_bytes()
    if arguments.corpus.suffix == ".xz":
        data = lzma.decompress(data)
    corpus = [line for line in data.decode().split("\n")[:3000] if line]
    wrong = 0
    arguments.folder.mkdir(parents=True, exist_ok=True)
    made = {name: None for name in arguments.kinds} if not arguments.file else {}
    files = {pathlib.Path(file).parent.name + "/" + pathlib.Path(file).name: file
             for file in arguments.file}
    for name in [*made, *files]:
        tokenizer = Tokenizer.from_file(files[name]) if name in files else KINDS[name](corpus)
        if arguments.goldens:
            write_goldens(arguments.goldens, name, tokenizer, corpus)
            continue
        path = files.get(name) or str(arguments.folder / f"{name}.json")
        if name not in files:
            tokenizer.save(path)
        items = [*texts(arguments.count, arguments.seed, corpus),
                 *id_lists(tokenizer, arguments.count // 2, arguments.seed)]
        wrong += compare(name, tokenizer, path, arguments.ours, items)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
