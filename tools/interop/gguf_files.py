"""Writes tiny GGUF files with gguf-py, and the logits of transformers beside them.

    build/interop/tools/bin/python tools/interop/gguf_files.py tests/data/gguf [--only TEXT]

Each folder has model.gguf, with metadata, tensors and a tokenizer as llama.cpp's converter writes
them, and reference.safetensors: ids, logits and greedy continuations of three prompts, computed by
transformers in f32 on the weights of the file.
"""

import argparse
import os
import pathlib
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import gguf
import numpy
import torch
from safetensors.torch import save_file

import gguf_families
import tiny
from gguf_models import FILES, GREEDY, PROMPTS, in_halves

tiny.VOCAB = 96
# How each architecture stores what the others have as it is.
PAIRED = ("llama", "granite", "smollm3", "granitemoe", "granitehybrid", "mistral3")
TILED = ("qwen35", "qwen35moe")
DELTA_NETS = (*TILED, "qwen3next")
# Those whose metadata and tensors gguf_families.py knows.
FAMILIES = ("qwen2moe", "glm4moe", "minimax-m2", "lfm2moe", "granitemoe", "granitehybrid",
            "nemotron_h", "nemotron_h_moe", "gemma4", "deepseek2", "exaone4", "mistral3",
            "ernie4_5-moe", "hunyuan-moe", "llama4", "mistral4")
LATENT = ("deepseek2", "mistral4")
# Those whose heads, and what else all have, it says, too.
OWN_HEADS = ("nemotron_h", "nemotron_h_moe", "granitehybrid", "gemma4")
ONE_MORE = ("gemma2", "gemma3", "nemotron", *DELTA_NETS)


def tokens():
    """Letters that spell bytes, a few merges, and tokens of control."""
    letters = [chr(c) for c in range(33, 127) if chr(c) not in "{|}~`^_@#$%&*"][:80]
    made = letters + ["th", "the", "in", "an", "\u0120", "\u0120the", "\u010a", "\u0120a"]
    types = [gguf.TokenType.NORMAL] * len(made)
    for text in ("<|begin|>", "<|im_end|>", "<think>"):
        made.append(text)
        types.append(gguf.TokenType.USER_DEFINED if text == "<think>" else gguf.TokenType.CONTROL)
    while len(made) < tiny.VOCAB:
        made.append(f"[PAD{len(made)}]")
        types.append(gguf.TokenType.UNUSED)
    return made, types, ["t h", "th e", "i n", "a n", "\u0120 the", "\u0120 a"]


def add_tokenizer(writer, pre):
    made, types, merges = tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(made)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(made.index("<|begin|>"))
    writer.add_eos_token_id(made.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")


def add_metadata(writer, arch, config):
    heads = config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    if arch != "qwen35moe" and arch not in OWN_HEADS:
        writer.add_feed_forward_length(getattr(config, "intermediate_size_mlp",
                                               config.intermediate_size))
    writer.add_head_count(heads)
    if arch in ("lfm2", "lfm2moe"):
        writer.add_head_count_kv([config.num_key_value_heads if kind != "conv" else 0
                                  for kind in config.layer_types])
        writer.add_layer_norm_rms_eps(config.norm_eps)
        writer.add_shortconv_l_cache(config.conv_L_cache)
    elif arch not in OWN_HEADS:
        if arch not in LATENT:
            writer.add_head_count_kv(config.num_key_value_heads)
        if arch in ("nemotron", "cohere2"):
            writer.add_layer_norm_eps(getattr(config, "norm_eps", None) or config.layer_norm_eps)
        else:
            writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if arch == "gemma4":
        gguf_families.add_metadata(writer, arch, config)
        return
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    if size * heads != config.hidden_size and arch not in ("gemma4", *LATENT):
        writer.add_key_length(size)
        writer.add_value_length(size)
    if arch in FAMILIES or config.model_type == "mixtral":
        gguf_families.add_metadata(writer, arch, config)
    if arch.startswith("nemotron_h"):
        return
    if arch == "cohere2":
        writer.add_logit_scale(config.logit_scale)
        writer.add_sliding_window(config.sliding_window)
    rope = rope_of(config)
    writer.add_rope_freq_base(rope["rope_theta"] * rope.get("alpha", 1) ** (size / (size - 2)))
    part = rope.get("partial_rotary_factor", 1.0)
    if arch not in LATENT:
        writer.add_rope_dimension_count(int(part * size))
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if "original_max_position_embeddings" in rope and rope["rope_type"] in ("yarn", "longrope"):
        writer.add_rope_scaling_orig_ctx_len(int(rope["original_max_position_embeddings"]))
    if arch in TILED or arch == "qwen3vl":
        # Pairs take turns; llama.cpp leaves one still that no section has.
        pairs = int(part * size) // 2
        writer.add_rope_dimension_sections([*((pairs + 2 - i) // 3 for i in range(3)), 0])
    if arch in DELTA_NETS:
        values = config.linear_num_value_heads
        writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        writer.add_ssm_state_size(config.linear_key_head_dim)
        writer.add_ssm_group_count(config.linear_num_key_heads)
        writer.add_ssm_time_step_rank(values)
        writer.add_ssm_inner_size(config.linear_value_head_dim * values)
        writer.add_full_attention_interval(2)
        if arch != "qwen35":
            writer.add_expert_count(config.num_experts)
            writer.add_expert_used_count(config.num_experts_per_tok)
            writer.add_expert_feed_forward_length(config.moe_intermediate_size)
            writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if arch == "phi3":
        writer.add_sliding_window(config.sliding_window or 0)
        writer.add_rope_scaling_attn_factors(float(attention_factor(config)))
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
        writer.add_sliding_window(config.sliding_window)
    if arch in ("gemma3", "olmo2") and getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
        slides = [kind == "sliding_attention" for kind in config.layer_types]
        writer.add_sliding_window_pattern(slides if arch == "olmo2" else slides.index(False) + 1)
    if arch == "gemma3":
        writer.add_rope_freq_base_swa(
            config.rope_parameters["sliding_attention"]["rope_theta"])
    if arch in ("granite", "granitemoe"):
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if arch == "qwen3moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if arch == "gpt-oss":
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.intermediate_size)
        writer.add_sliding_window(config.sliding_window)


def rope_of(config):
    """That of all layers, or of those that do not slide."""
    return config.rope_parameters.get("full_attention", config.rope_parameters)


def attention_factor(config):
    rope = config.rope_parameters
    ratio = config.max_position_embeddings / rope["original_max_position_embeddings"]
    return (1 + numpy.log(ratio) / numpy.log(rope["original_max_position_embeddings"])) ** 0.5


def rope_tensors(config):
    """Divisors of frequencies, where the architecture has them as tensors."""
    rope = rope_of(config)
    if rope["rope_type"] == "longrope":
        return {"rope_factors_long.weight": torch.tensor(rope["long_factor"]),
                "rope_factors_short.weight": torch.tensor(rope["short_factor"])}
    if rope["rope_type"] == "proportional":
        full = next(iter(config.to_dict()["per_layer_config"].values()))
        pairs = full["head_dim"] // 2
        still = torch.arange(pairs) >= int(pairs * rope["partial_rotary_factor"])
        return {"rope_freqs.weight": torch.where(still, 1e30, 1.0)}
    if rope["rope_type"] != "llama3":
        return {}
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    inv_freq = rope["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    turns = rope["original_max_position_embeddings"] * inv_freq / (2 * torch.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    share = ((turns - low) / (high - low)).clamp(0, 1) if high > low else (turns > low).double()
    return {"rope_freqs.weight": (1 / ((1 - share) / rope["factor"] + share)).float()}


def in_pairs(tensor, heads):
    rows = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return rows.swapaxes(1, 2).reshape(tensor.shape)


def joined_experts(state):
    """gate and up apart, [experts][outputs][inputs]."""
    result = {}
    for name, tensor in state.items():
        if not name.removesuffix("_bias").endswith((".experts.gate_up_proj",
                                                    ".experts.down_proj")):
            result[name] = tensor
            continue
        place = name.rpartition(".")[0]
        is_bias = name.endswith("_bias")
        ending = "bias" if is_bias else "weight"
        if "down_proj" in name:
            result[f"{place}.down_proj.{ending}"] = tensor
        else:
            first, second = tensor.chunk(2, -1 if is_bias else 1)
            result[f"{place}.gate_proj.{ending}"] = first
            result[f"{place}.up_proj.{ending}"] = second
    return result


def of_gpt_oss(state):
    """Rows of gate and up in turns, inputs first."""
    result = {}
    for name, tensor in state.items():
        place, _, last = name.rpartition(".")
        if last.startswith("gate_up_proj"):
            ending = "bias" if last.endswith("bias") else "weight"
            rows = tensor if ending == "bias" else tensor.transpose(1, 2)
            result[f"{place}.gate_proj.{ending}"] = rows[:, ::2]
            result[f"{place}.up_proj.{ending}"] = rows[:, 1::2]
        elif last == "down_proj":
            result[f"{place}.down_proj.weight"] = tensor.transpose(1, 2)
        elif last == "down_proj_bias":
            result[f"{place}.down_proj.bias"] = tensor
        else:
            result[name + (".weight" if last == "sinks" else "")] = tensor
    return result


def in_tiles(tensor, config, size):
    """The heads of values, which lie by key head, first those that are first of each."""
    keys = config.linear_num_key_heads
    each = config.linear_num_value_heads // keys
    rows = tensor.reshape(keys, each, size, *tensor.shape[1:])
    return rows.swapaxes(0, 1).reshape(tensor.shape)


def of_delta_nets(state, arch, config):
    """The names that have a place in GGUF, and heads in its order."""
    result = {}
    keys = config.linear_key_head_dim * config.linear_num_key_heads
    size = config.linear_value_head_dim
    for name, tensor in state.items():
        place, _, last = name.rpartition(".")
        if last == "A_log":
            tensor = -tensor.exp()
        if last == "dt_bias":
            name = f"{place}.dt_proj.bias"
        if "conv1d" in name:
            tensor = tensor.squeeze(1)
        if arch in TILED and "linear_attn" in name:
            if "in_proj_qkv" in name or "conv1d" in name:
                values = in_tiles(tensor[2 * keys:], config, size)
                tensor = torch.cat([tensor[:2 * keys], values])
            elif "in_proj_z" in name:
                tensor = in_tiles(tensor, config, size)
            elif "out_proj" in name:
                tensor = in_tiles(tensor.T, config, size).T
            elif last in ("A_log", "dt_bias") or "in_proj_" in name:
                tensor = in_tiles(tensor, config, 1)
        if "in_proj_qkvz" in name:
            heads = tensor.reshape(config.linear_num_key_heads, -1, tensor.shape[1])
            each = config.linear_num_value_heads // config.linear_num_key_heads * size
            parts = heads.split([config.linear_key_head_dim] * 2 + [each] * 2, 1)
            q, k, v, z = (part.flatten(0, 1) for part in parts)
            result[name.replace("qkvz", "qkv")] = torch.cat([q, k, v])
            result[name.replace("qkvz", "z")] = z
        else:
            result[name] = tensor
    return result


def random_blocks(kind, shape, random, size_of_weights):
    """Blocks of codes at random, and scales that make weights of about that size."""
    size, num_bytes = gguf.constants.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (shape[0] * shape[1] // size, num_bytes), numpy.uint8)
    places = SCALES.get(kind.name, (0,))
    # Minima that put the middle of all codes at zero: sums that cancel would have large errors.
    middle = {"Q4_1": -7.5, "Q5_1": -15.5}.get(kind.name, 1)

    def set_scales(factors):
        for place, factor in zip(places, (1, middle)):
            stored = (factor * factors).astype(numpy.float16)
            blocks[:, place:place + 2] = stored[:, None].view(numpy.uint8)
    set_scales(numpy.ones(len(blocks)))
    deviation = gguf.quants.dequantize(blocks, kind).std()
    set_scales(random.uniform(0.5, 1.5, len(blocks)) * size_of_weights / deviation)
    return blocks.reshape(shape[0], -1)


def parts_of(model):
    """Matrices, and of joined experts the stacks of which files are made, by their names there."""
    for name, tensor in model.named_parameters():
        place, _, last = name.rpartition(".")
        if place.endswith(".experts") and last == "gate_up_proj":
            half = tensor.shape[1] // 2
            yield f"{place}.gate_proj.weight", tensor.data[:, :half]
            yield f"{place}.up_proj.weight", tensor.data[:, half:]
        elif place.endswith(".experts"):
            yield f"{name}.weight", tensor
        else:
            yield name, tensor


def put_blocks(model, names, kinds):
    """Gives matrices weights of types that gguf-py does not round to: blocks by their names."""
    random = numpy.random.default_rng(6)
    made = {}
    for name, tensor in parts_of(model):
        found = names.get_name(name, try_suffixes=(".weight", ".bias")) or ""
        found = found.removesuffix(".weight").removeprefix("blk.0.")
        if found not in kinds:
            continue
        kind = gguf.GGMLQuantizationType[kinds[found]]
        rows = tensor.flatten(0, -2)
        # What a layer adds is smaller than the stream, as the bound of the tests has it.
        blocks = random_blocks(kind, rows.shape, random, 0.4 if found == "token_embd" else 0.07)
        numbers = torch.from_numpy(gguf.quants.dequantize(blocks, kind))
        made[name] = blocks.reshape(*tensor.shape[:-1], -1), kind
        with torch.no_grad():
            tensor.copy_(numbers.reshape(tensor.shape))
    return made


def add_tensors(writer, arch, model, kinds):
    config = model.config
    number = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    for name, tensor in ({} if "nemotron_h" in arch else rope_tensors(config)).items():
        writer.add_tensor(name, tensor.float().numpy())
    made = put_blocks(model, names, kinds)
    state = dict(model.state_dict())
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    if arch == "gpt-oss":
        state = of_gpt_oss(state)
    elif arch == "llama4":
        state = joined_experts(gguf_families.with_inputs_last(state))
    elif arch != "gemma4":
        state = joined_experts(state)
    if arch in DELTA_NETS:
        state = of_delta_nets(state, arch, config)
    state = gguf_families.with_changes(state, config) if arch in FAMILIES else state
    for name, tensor in state.items():
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        found = name if name.startswith("blk.") else found
        assert found, name
        if name in made:
            blocks, type_of_blocks = made[name]
            writer.add_tensor(found, blocks, raw_dtype=type_of_blocks)
            continue
        if arch in PAIRED and "q_proj" in name:
            tensor = in_pairs(tensor, config.num_attention_heads)
        if arch in PAIRED and "k_proj" in name:
            tensor = in_pairs(tensor, config.num_key_value_heads)
        if arch in ONE_MORE and name.endswith("norm.weight") and "linear_attn" not in name:
            tensor = tensor + 1
        if ".conv.conv." in name:
            tensor = tensor.squeeze(1)
        if "shared_expert_gate" in name:
            tensor = tensor[0]
        is_matrix = tensor.ndim > 1 and "bias" not in name and "conv1d" not in name and \
            ".conv.conv." not in name and not name.endswith((".A_log", ".D", "r.norm.weight",
                                                             "a.norm.weight"))
        kind = numpy.float16 if is_matrix else numpy.float32
        writer.add_tensor(found, numpy.ascontiguousarray(tensor.float().numpy().astype(kind)))


# Places of scales in blocks, where they are not the first two bytes.
SCALES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
          "Q4_1": (0, 2), "Q5_1": (0, 2)}
# Types of the matrices of one layer, of which no rounding is asked.
KINDS = {
    "types-k": {"token_embd": "Q4_K", "attn_q": "Q6_K", "attn_k": "Q5_K", "attn_v": "Q3_K",
                "attn_output": "Q5_0", "ffn_gate": "Q2_K", "ffn_up": "IQ4_XS",
                "ffn_down": "IQ4_NL"},
    "types-iq": {"token_embd": "Q3_K", "attn_q": "IQ3_XXS", "attn_k": "IQ2_S", "attn_v": "IQ3_S",
                 "attn_output": "Q5_1", "ffn_gate": "IQ2_XS", "ffn_up": "IQ2_XXS",
                 "ffn_down": "Q4_1"},
    "types-two": {"token_embd": "Q2_K", "attn_q": "Q2_K", "attn_k": "Q2_K", "attn_v": "Q2_K",
                  "attn_output": "Q4_0", "ffn_gate_exps": "Q3_K", "ffn_up_exps": "Q2_K",
                  "ffn_down_exps": "IQ4_NL", "ffn_gate_shexp": "Q2_K", "ffn_up_shexp": "IQ2_XS",
                  "ffn_down_shexp": "Q4_0"},
}


def reference(model):
    result = {}
    for i, ids in enumerate(PROMPTS):
        row = torch.tensor([ids])
        result[f"prompt{i}.ids"] = row[0].int()
        with torch.no_grad():
            result[f"prompt{i}.logits"] = model(row).logits[0].contiguous()
            for _ in range(GREEDY):
                best = model(row).logits[0, -1].argmax()
                row = torch.cat([row, best[None, None]], 1)
        result[f"prompt{i}.greedy"] = row[0, len(ids):].int()
    return result


def write(folder, arch, pre, make):
    model = in_halves(make().float())
    folder.mkdir(parents=True)
    writer = gguf.GGUFWriter(folder / "model.gguf", arch)
    writer.add_type("model")
    writer.add_name(folder.name)
    add_metadata(writer, arch, model.config)
    add_tokenizer(writer, pre)
    add_tensors(writer, arch, model, KINDS.get(folder.name, {}))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(reference(model), folder / "reference.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("goldens", type=pathlib.Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for name, (arch, pre, make) in FILES.items():
        if options.only not in name:
            continue
        folder = options.goldens / name
        shutil.rmtree(folder, ignore_errors=True)
        write(folder, arch, pre, make)
        print("made", name, [file.stat().st_size for file in sorted(folder.iterdir())])
    return 0


if __name__ == "__main__":
    sys.exit(main())
