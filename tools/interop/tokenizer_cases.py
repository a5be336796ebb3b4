"""Makes a small tokenizer in the form of Llama 3's, and what `tokenizers` makes of texts with it.

    build/interop/tools/bin/python tools/interop/tokenizer_cases.py tests/data/tokenizers \
        [--count N] [--seed N]

NAME.tokenizer.json has the pre-tokenizer, the template that adds the token of begin and the
`ignore_merges` of Llama 3, some hundred merges trained on the documents of this repository, and
words that no merges lead to. NAME.cases.json has for each text the ids with and without special
tokens of the template, and the text back.
"""

import argparse
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
           "<|finetune_right_pad_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
           "<|eot_id|>", "<|python_tag|>"]
# Whole words that ignore_merges takes as they are: nothing joins their parts.
WHOLE = ["\u0120wholly", "zebra", "\u0120123", "qqq"]
# Words, marks, numbers, spaces and tokens, and letters that fold or break in odd ways.
PARTS = ["a", "B", "the", " the", "ing", "wholly", " wholly", "zebra", " zebra", "qqq",
         "\u00e9", "e\u0301", "\u00df", "\ufb01", "\u4e2d\u6587", "\u65e5\u672c",
         "\ud55c\uad6d", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e44\u0e17\u0e22",
         "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u00a0",
         "\u2003", "\u200b", "\u3000", "\u0130", "\u017f", "\u02bcn", "'s", "'S", "'ll", "'LL",
         "'\u017f", "\u2019s", "1", "12", "123", "1234", "\u0663\u0664\u0665", "\u2167",
         "\u00bd", "\u00b2", " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ",
         "\u0085", "\u2028", ".", "...", "!?", "--", "(", ")", "{}", "\\", "\"", "$", "\u20ac",
         "_", "snake_case", "CamelCase", "<|eot_id|>", "<|begin_of_text|>",
         "<|start_header_id|>user<|end_header_id|>", "<|not_a_token|>", "\x00", "\x7f",
         "\ufffd", "\ufeff"]


def make(corpus):
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=700, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    text = json.loads(made.to_str())
    vocab = text["model"]["vocab"]
    for word in WHOLE:
        vocab.setdefault(word, len(vocab))
    made = tokenizers.Tokenizer.from_str(json.dumps(text))
    made.add_special_tokens([tokenizers.AddedToken(name, special=True, normalized=False)
                             for name in SPECIAL])
    begin = SPECIAL[0]
    made.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1",
            special_tokens=[(begin, made.token_to_id(begin))])])
    return made


def texts(count, seed):
    yield from ["", " ", "\n", *PARTS]
    chosen = random.Random(seed)
    for _ in range(count):
        yield "".join(chosen.choice(PARTS) for _ in range(chosen.randint(1, 12)))


def case(made, text):
    ids = made.encode(text, add_special_tokens=False).ids
    return {"text": text, "ids": ids, "ids_in_template": made.encode(text).ids,
            "decoded": made.decode(ids, skip_special_tokens=False),
            "decoded_skip_special": made.decode(ids, skip_special_tokens=True)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    docs = pathlib.Path(__file__).resolve().parents[2] / "docs"
    made = make(file.read_text() for file in sorted(docs.glob("*.md")))
    kept = options.folder / "llama3.tokenizer.json"
    if kept.exists():  # the documents change; the tokenizer of the tests does not
        made = tokenizers.Tokenizer.from_file(str(kept))
    else:
        made.save(str(kept))
    cases = [case(made, text) for text in dict.fromkeys(texts(options.count, options.seed))]
    (options.folder / "llama3.cases.json").write_text(
        json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(len(cases), "cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
