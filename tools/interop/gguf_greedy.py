"""Greedy tokens of llama.cpp and of subbyte for the same GGUF files.

    pip install xllamacpp gguf
    python tools/interop/gguf_greedy.py build/ci/app/subbyte tests/data/gguf/*/model.gguf

llama.cpp goes on with each prompt for 64 tokens; after each of them the token that it chose must be
subbyte's, where the best two logits of subbyte are farther apart than both may be off. llama.cpp
rounds what matrices read to F16, or to 8 bits for blocks: by e of themselves, so that sums are off
by e / sqrt(3) in the mean, and the logits of a model of L layers by

    r = sqrt((4 L + 1) / 3) e       (tests/support/golden_bound.h)

of their root mean square. The difference of two of them is off by sqrt(2) r, the largest of N such
ones by sqrt(2 ln N) times that; the bound is twice that. Positions below it are counted, and may be
3 % of all in files without blocks. llama.cpp's attention would add up in F16: here it has keys and
values in F32.

Delta nets and Mamba 2 divide what their states give by its size, which is near to 0 where a query
is orthogonal to all keys: there an error is as many times larger, and r does not follow from the
products. llama.cpp alone measures it: of such a file it reads a twin, whose matrices are the same
numbers in F32, so that it rounds nothing to F16, and at each position the file itself. What differs
there is what rounding by 2^-11 does; sums in F32 of 256 products are off by 2^-24 sqrt(256) of
themselves in the mean, which is 2^-9 times as much, and the bound is the larger one of r and of
what was measured, times that.
"""

import argparse
import json
import math
import pathlib
import sys
import tempfile

import gguf
import numpy
import xllamacpp
from safetensors.numpy import load_file

import llama_server
from gguf_llama_cpp import NOT_OPENED, PROMPTS, as_llama_cpp_computes, run

# Those with states that are divided by their size.
WITH_STATES = ("qwen35", "qwen35moe", "qwen3next", "granitehybrid", "nemotron_h", "nemotron_h_moe")
# Of EXAONE 4 with windows llama.cpp knows 64 layers alone (gguf_exaone4.py); a DeepSeek without
# ranks of queries it opens with 26, 27 or 48.
COMPUTED_OTHERWISE = ("exaone4", "deepseek2-softmax")
TOKENS = 64
ALL = 4096  # more than any vocabulary here has
LEFT_OUT = 0.03
E_OF_F16 = 2.0 ** -11
E_OF_F32 = 2.0 ** -20  # of a sum of 256 products
E_OF_BLOCKS = 4 / 254  # the largest of a block is some 4 times its root mean square


def twin_of(source, path):
    """The same file with all matrices in F32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        of_each = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], of_each)
    for tensor in reader.tensors:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, numpy.ascontiguousarray(numbers, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class LlamaCpp:
    """A server of llama.cpp without another one's roundings: its attention is in F32."""

    def __init__(self, path):
        parameters = llama_server.parameters_of(path, 512)
        parameters.flash_attn_type = \
            xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        self.server = xllamacpp.Server(parameters)

    def after(self, ids, count, probabilities):
        """The tokens after these, each with the log probabilities of so many tokens."""
        answer = self.server.handle_completions({
            "prompt": ids, "n_predict": count, "n_probs": probabilities, "temperature": 0.0,
            "ignore_eos": True, "cache_prompt": False})
        return answer["choices"][0]["logprobs"]["content"]


def rounding_of(rounded, prompt, content):
    """By how much logits of `rounded` differ from those that `content` has."""
    ids = list(prompt)
    measured = []
    for token in content:
        exact = {one["id"]: one["logprob"] for one in token["top_logprobs"]}
        other = {one["id"]: one["logprob"]
                 for one in rounded.after(ids, 1, ALL)[0]["top_logprobs"]}
        both = [i for i in exact if i in other and min(exact[i], other[i]) > -100]
        difference = numpy.array([exact[i] - other[i] for i in both])
        measured.append(math.sqrt(((difference - difference.mean()) ** 2).mean()))
        ids.append(token["id"])
    return numpy.array(measured)


def logits(program, model, ids, folder):
    out = folder / "logits.safetensors"
    done = run(program, "logits", model, "--ids", ",".join(map(str, ids)), "--out", out, "--force",
               "--device", "cpu")
    assert done.returncode == 0, done.stderr
    return next(iter(load_file(out).values())).reshape(len(ids), -1).astype("float64")


def check(program, source, folder):
    """Positions, those that differ, those left out; whether the file has blocks."""
    model = as_llama_cpp_computes(program, source, source.parent.name, folder)
    has_blocks = source.parent.name.startswith("types-")
    layers = json.loads(run(program, "inspect", source, "--json").stdout)["model"]["layers"]
    end = gguf.GGUFReader(source).fields["tokenizer.ggml.eos_token_id"].contents()
    has_states = source.parent.name in WITH_STATES
    e = E_OF_BLOCKS if has_blocks else E_OF_F32 if has_states else E_OF_F16
    r = math.sqrt((4 * layers + 1) / 3) * e
    factor = 2 * math.sqrt(2 * math.log(len(PROMPTS) * TOKENS)) * math.sqrt(2)
    left_out = wrong = count = 0
    theirs = LlamaCpp(twin_of(source, folder / "twin.gguf") if has_states else source)
    rounded = LlamaCpp(source) if has_states else None
    for prompt in PROMPTS:
        content = theirs.after(prompt, TOKENS, ALL if has_states else 1)
        chosen = [token["id"] for token in content]
        rows = logits(program, model, prompt + chosen[:-1], folder)[len(prompt) - 1:]
        rows[:, end] = rows.min()  # llama.cpp leaves it out, as it would end the text
        bound = factor * r * math.sqrt((rows ** 2).mean())
        if has_states:
            measured = rounding_of(rounded, prompt, content)
            bound = numpy.maximum(bound, factor * measured * E_OF_F32 / E_OF_F16)
        best = numpy.sort(rows, 1)[:, -2:]
        sure = best[:, 1] - best[:, 0] > bound
        wrong += int((sure & (rows.argmax(1) != numpy.array(chosen))).sum())
        left_out += int((~sure).sum())
        count += len(chosen)
    print("WRONG" if wrong else "ok", source.parent.name, f"{count} positions, {wrong} differ, "
          f"{left_out} left out ({100 * left_out / count:.1f} %)", flush=True)
    return count, wrong, left_out, has_blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("sources", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    found = []
    for source in options.sources:
        if source.parent.name in (*NOT_OPENED, *COMPUTED_OTHERWISE):
            print("left out", source.parent.name, flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            found.append(check(options.program, source, pathlib.Path(folder)))
    floats = [one for one in found if not one[3]]
    count, left_out = sum(one[0] for one in floats), sum(one[2] for one in floats)
    print(f"without blocks {count} positions, {left_out} left out")
    return 1 if any(one[1] for one in found) or left_out > LEFT_OUT * count else 0


if __name__ == "__main__":
    sys.exit(main())
