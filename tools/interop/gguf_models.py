"""The tiny models of gguf_files.py, one of each architecture."""

import torch

import gemma4
import mixtures
import tiny
import tiny_layer_norms
import tiny_mamba

SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16)
# Where a head is what the width has for each; kernels of GPUs want 16 at least.
TWO_HEADS = dict(num_attention_heads=2, num_key_value_heads=1)
PROMPTS = [[1, 2, 3, 4, 5], [90, 7, 63, 7, 91, 12, 31, 5, 80], list(range(11, 93, 5))]
GREEDY = 24


def in_halves(model):
    """Its matrices rounded to f16."""
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.ndim > 1 and not name.endswith("bias"):
                tensor.copy_(tensor.half().float())
    return model


def llama():
    return tiny.family("Llama", 5, **SMALL, tie_word_embeddings=True, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64})


def llama_biases():
    return tiny.family("Llama", 6, **{**SMALL, "num_hidden_layers": 1}, attention_bias=True,
                       mlp_bias=True, tie_word_embeddings=False, rope_parameters={
                           "rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0})


def qwen2():
    return tiny.family("Qwen2", 2, **{**SMALL, **TWO_HEADS}, tie_word_embeddings=False)


def qwen3():
    return tiny.family("Qwen3", 3, **SMALL, tie_word_embeddings=True)


def qwen3moe():
    return tiny.family("Qwen3Moe", 4, **{**SMALL, "num_hidden_layers": 1}, num_experts=4,
                       num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
                       tie_word_embeddings=False)


# Of the root mean square of logits: what a difference of two is off by in the mean at 45 dB, which
# GPUs are held to with f16 (tests/gpu/model_on_gpu.h).
SOUND_GAP = 2 ** 0.5 * 10 ** (-45 / 20)


def is_sure(model):
    """Says whether the chosen tokens are farther from the next ones than that, and the experts."""
    gaps = []

    def add(logits, chosen):
        best = logits.topk(chosen + 1).values
        gaps.append(float(((best[..., -2] - best[..., -1]) / logits.pow(2).mean().sqrt()).min()))

    def add_router(router, given, _):
        logits = torch.nn.functional.linear(given[0], router.weight, router.bias)
        add(logits.flatten(0, -2), model.config.num_experts_per_tok)

    hooks = [layer.mlp.router.register_forward_hook(add_router) for layer in model.model.layers]
    for ids in PROMPTS:
        row = torch.tensor([ids])
        for _ in range(GREEDY):
            with torch.no_grad():
                logits = model(row).logits[0, -1]
            add(logits, 1)
            if min(gaps) < SOUND_GAP:
                return False
            row = torch.cat([row, logits.argmax()[None, None]], 1)
    for hook in hooks:
        hook.remove()
    return True


def gpt_oss():
    """The first whose tokens and experts are sure: other experts make other tokens."""
    for seed in range(2, 5000):
        model = in_halves(gpt_oss_of(seed).float())
        if is_sure(model):
            return model
    raise AssertionError("no model whose tokens are sure")


def gpt_oss_of(seed):
    small = {**SMALL, **TWO_HEADS, "intermediate_size": 16}
    model = tiny.family("GptOss", seed, **small, num_local_experts=3, num_experts_per_tok=2,
                        sliding_window=4, tie_word_embeddings=False,
                        rope_parameters={
                            "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0,
                            "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                            "original_max_position_embeddings": 64})
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "experts" in name and not name.endswith("bias"):
                tensor.normal_(0, 0.15)
            elif "bias" in name or "sinks" in name:
                tensor.normal_(0, 0.1)
    return model


def gemma2():
    return tiny.family("Gemma2", 8, **SMALL, sliding_window=8, query_pre_attn_scalar=16,
                       attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                       tie_word_embeddings=True)


def gemma3():
    return tiny.family("Gemma3", 13, config_of="Gemma3Text", **SMALL,
                       sliding_window=8, query_pre_attn_scalar=16, tie_word_embeddings=True,
                       layer_types=["sliding_attention", "full_attention"],
                       rope_parameters={
                           "full_attention": {"rope_type": "linear", "rope_theta": 1000.0,
                                              "factor": 4.0},
                           "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})


def olmo2():
    small = {key: value for key, value in SMALL.items() if key != "head_dim"}
    return tiny.family("Olmo2", 14, **{**small, **TWO_HEADS}, tie_word_embeddings=False)


def olmo3():
    small = {key: value for key, value in SMALL.items() if key != "head_dim"}
    return tiny.family("Olmo3", 15, **{**small, **TWO_HEADS}, tie_word_embeddings=False,
                       sliding_window=8, layer_types=["sliding_attention", "full_attention"],
                       rope_parameters={
                           "full_attention": {"rope_type": "yarn", "rope_theta": 1000.0,
                                              "factor": 4.0,
                                              "original_max_position_embeddings": 64},
                           "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}})


def phi3():
    factors = [1 + i / 8 for i in range(6)]
    small = {key: value for key, value in SMALL.items() if key != "head_dim"}
    small.update(hidden_size=64, num_hidden_layers=1, intermediate_size=16)
    return tiny.family("Phi3", 7, **small,
                       sliding_window=None, original_max_position_embeddings=64,
                       max_position_embeddings=512, tie_word_embeddings=False, rope_parameters={
                           "rope_type": "longrope", "rope_theta": 10000.0,
                           "partial_rotary_factor": 0.75, "original_max_position_embeddings": 64,
                           "short_factor": factors, "long_factor": [4 * f for f in factors]})


def granite():
    small = {key: value for key, value in SMALL.items() if key != "head_dim"}
    return tiny.family("Granite", 9, **{**small, **TWO_HEADS}, embedding_multiplier=6.0,
                       residual_multiplier=0.5, attention_multiplier=0.125, logits_scaling=4.0,
                       attention_bias=True,
                       mlp_bias=True, tie_word_embeddings=True)


DELTA_NET = dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                 linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
                 num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])
EXPERTS = dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=16,
               shared_expert_intermediate_size=16)


def qwen35():
    # With 32 a query and a key are so near to orthogonal that the order of sums shows.
    return tiny.qwen3_5(**DELTA_NET, intermediate_size=40, tie_word_embeddings=True)


def qwen35moe():
    return tiny.qwen3_5_moe(**DELTA_NET, **EXPERTS, tie_word_embeddings=True)


def qwen3next():
    return tiny.qwen3_next(**DELTA_NET, **EXPERTS, mlp_only_layers=[], tie_word_embeddings=True)


def of_types():
    small = dict(hidden_size=256, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                 num_key_value_heads=1, head_dim=16)
    return tiny.family("Qwen3", 12, **small, tie_word_embeddings=True)


def lfm2():
    return tiny.family("Lfm2", 10, **TWO_HEADS, hidden_size=32, intermediate_size=48,
                       conv_L_cache=4, layer_types=["conv", "full_attention"], conv_bias=False,
                       block_auto_adjust_ff_dim=False)


# One layer, but where two differ.
ONE = {**SMALL, **TWO_HEADS, "num_hidden_layers": 1}


def glm4():
    return tiny.family("Glm4", 22, **ONE, attention_bias=True, tie_word_embeddings=False)


def smollm3():
    small = {key: value for key, value in ONE.items() if key != "head_dim"}
    return tiny.family("SmolLM3", 23, **{**small, "num_hidden_layers": 4, "intermediate_size": 16},
                       tie_word_embeddings=True)


def seed_oss():
    return tiny.family("SeedOss", 24, **ONE, attention_bias=True, attention_out_bias=True,
                       tie_word_embeddings=False)


def ernie4_5():
    return tiny.family("Ernie4_5", 25, **ONE, use_bias=False, tie_word_embeddings=True)


def hunyuan():
    return tiny.family("HunYuanDenseV1", 27, **ONE, tie_word_embeddings=True, rope_parameters={
        "rope_type": "dynamic", "rope_theta": 100.0, "factor": 1.0, "alpha": 50.0})


ROUNDINGS = 8  # of each prompt
BF16_DECIBELS = 30  # of logits whose norms are rounded as to bf16; to f16 they are 18 more


def changed_norm(_module, _given, result):
    return result * (1 + (torch.rand_like(result) - 0.5) * 2 ** -7)


def is_steady(model):
    """Says whether roundings change no token, and logits little."""
    for ids in PROMPTS:
        row = torch.tensor([ids])
        for _ in range(GREEDY):
            with torch.no_grad():
                logits = model(row).logits[0, -1]
            best = logits.topk(2).values
            if best[0] - best[1] < SOUND_GAP * logits.pow(2).mean().sqrt():
                return False
            row = torch.cat([row, logits.argmax()[None, None]], 1)
    norms = [module for name, module in model.named_modules() if "norm" in name.rpartition(".")[2]]
    hooks = [norm.register_forward_hook(changed_norm) for norm in norms]
    with torch.no_grad():
        rounded = [model(torch.tensor([ids])).logits for ids in PROMPTS * ROUNDINGS]
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        exact = [model(torch.tensor([ids])).logits for ids in PROMPTS] * ROUNDINGS
    return all(20 * torch.log10(one.norm() / (other - one).norm()) > BF16_DECIBELS
               for one, other in zip(exact, rounded, strict=True))


def steady(make):
    """The first that is steady of those with the same numbers in other places."""
    def made():
        model = in_halves(make().float())
        for seed in range(1000):
            if is_steady(model):
                return model
            torch.manual_seed(seed)
            with torch.no_grad():
                for tensor in model.parameters():
                    if tensor.ndim > 1:
                        tensor.copy_(tensor.flatten()[torch.randperm(tensor.numel())]
                                     .reshape(tensor.shape))
        raise AssertionError("no model whose tokens are sure")
    return made


def mixture(make, **more):
    return steady(lambda: make(**{"num_hidden_layers": 2, **more}))


NEMOTRON = dict(n_group=1, topk_group=1)


def nemotron_h():
    return tiny_mamba.nemotron_h(**NEMOTRON, num_hidden_layers=3, layers_block_type=[
        "linear_attention", "mlp", "full_attention"])


def nemotron_h_moe():
    return tiny_mamba.nemotron_h(**NEMOTRON, num_hidden_layers=3, layers_block_type=[
        "linear_attention", "moe", "full_attention"])


def granitehybrid():
    return tiny_mamba.granitemoehybrid(num_local_experts=3, shared_intermediate_size=16,
                                       mamba_d_state=8)


YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0,
        "original_max_position_embeddings": 64}


def deepseek_v2():
    return tiny.deepseek_v2(num_hidden_layers=2)


def deepseek_v3():
    return tiny.deepseek_v3(num_hidden_layers=2, attention_bias=False, rope_parameters={
        **YARN, "mscale": 1.0, "mscale_all_dim": 1.0})


def mistral4():
    return tiny.mistral4(num_hidden_layers=2, rope_parameters={
        **YARN, "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.5})


def ministral3():
    return tiny.family("Ministral3", 20, **ONE, tie_word_embeddings=False, rope_parameters={
        **YARN, "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.5})


def nemotron():
    return tiny_layer_norms.nemotron(num_hidden_layers=2, tie_word_embeddings=False)


def cohere2():
    """As files of it are: of four layers the last is full."""
    return tiny_layer_norms.cohere2(
        num_hidden_layers=4, intermediate_size=16,
        layer_types=["sliding_attention"] * 3 + ["full_attention"])


def ernie4_5_moe():
    return mixtures.ernie4_5_moe(num_hidden_layers=2, moe_layer_end_index=-1, moe_norm_min=1e-12)


def hunyuan_moe():
    return mixtures.hunyuan_v1_moe(num_hidden_layers=2, num_experts=3, rope_parameters={
        "rope_type": "dynamic", "rope_theta": 100.0, "factor": 1.0, "alpha": 50.0})


def llama4():
    """What files do not say is what llama.cpp has: chunks of 8192, of four layers one that does not
    turn. Frequencies are those of Scout."""
    return mixtures.llama4(num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0], moe_layers=[1, 3],
                           num_local_experts=2, num_experts_per_tok=1, intermediate_size_mlp=16,
                           num_attention_heads=1,
                           interleave_moe_layer_step=2, attention_chunk_size=8192,
                           floor_scale=8192, attn_scale=0.1, rope_parameters={
                               "rope_type": "llama3", "rope_theta": 500000.0, "factor": 16.0,
                               "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                               "original_max_position_embeddings": 8192})


def of_two_types():
    """Gate and up of experts, and of the one beside them, are of two types."""
    return mixtures.qwen2_moe(hidden_size=256, num_hidden_layers=1, mlp_only_layers=[],
                              num_experts=2, num_experts_per_tok=1, moe_intermediate_size=32,
                              shared_expert_intermediate_size=32, tie_word_embeddings=True,
                              head_dim=16)


FILES = {
    "nemotron": ("nemotron", "gpt-2", steady(nemotron)),
    "cohere2": ("cohere2", "command-r", steady(cohere2)),
    "ernie4_5-moe": ("ernie4_5-moe", "gpt-2", steady(ernie4_5_moe)),
    "hunyuan-moe": ("hunyuan-moe", "hunyuan", steady(hunyuan_moe)),
    "llama4": ("llama4", "llama4", steady(llama4)),
    "gemma4": ("gemma4", "gpt-2", steady(gemma4.experts)),
    "gemma4-inputs": ("gemma4", "gpt-2", steady(gemma4.inputs)),
    "deepseek2": ("deepseek2", "deepseek-v3", steady(deepseek_v3)),
    "deepseek2-softmax": ("deepseek2", "deepseek-llm", steady(deepseek_v2)),
    "mistral3": ("mistral3", "tekken", steady(ministral3)),
    "mistral4": ("mistral4", "tekken", steady(mistral4)),
    "exaone4": ("exaone4", "exaone4", steady(tiny.exaone4)),
    "qwen2moe": ("qwen2moe", "qwen2", mixture(
        mixtures.qwen2_moe, mlp_only_layers=[], num_experts=3, tie_word_embeddings=False)),
    "mixtral": ("llama", "llama-bpe", mixture(mixtures.mixtral, sliding_window=None)),
    "glm4moe": ("glm4moe", "glm4", mixture(mixtures.glm4_moe, n_group=1, topk_group=1)),
    "minimax-m2": ("minimax-m2", "gpt-2", mixture(
        mixtures.minimax_m2, tie_word_embeddings=False)),
    "lfm2moe": ("lfm2moe", "lfm2", mixture(
        mixtures.lfm2_moe, layer_types=["conv", "full_attention"], routed_scaling_factor=1.0)),
    "granitemoe": ("granitemoe", "refact", mixture(mixtures.granitemoe)),
    "granitehybrid": ("granitehybrid", "dbrx", steady(granitehybrid)),
    "nemotron_h": ("nemotron_h", "tekken", steady(nemotron_h)),
    "nemotron_h_moe": ("nemotron_h_moe", "tekken", steady(nemotron_h_moe)),
    "glm4": ("glm4", "glm4", glm4),
    "smollm3": ("smollm3", "smaug-bpe", smollm3),
    "seed_oss": ("seed_oss", "seed-coder", seed_oss),
    "ernie4_5": ("ernie4_5", "gpt-2", ernie4_5),
    "hunyuan-dense": ("hunyuan-dense", "hunyuan-dense", hunyuan),
    "llama": ("llama", "llama-bpe", llama),
    "llama-biases": ("llama", "smollm", llama_biases),
    "qwen2": ("qwen2", "qwen2", qwen2),
    "qwen3": ("qwen3", "qwen2", qwen3),
    "qwen3vl": ("qwen3vl", "qwen2", qwen3),
    "qwen3moe": ("qwen3moe", "qwen2", qwen3moe),
    "gpt-oss": ("gpt-oss", "gpt-4o", gpt_oss),
    "gemma2": ("gemma2", "gpt-2", gemma2),
    "gemma3": ("gemma3", "gpt-2", gemma3),
    "olmo2": ("olmo2", "dbrx", olmo2),
    "olmo3": ("olmo2", "dbrx", olmo3),
    "phi3": ("phi3", "gpt-4o", phi3),
    "granite": ("granite", "refact", granite),
    "qwen35": ("qwen35", "qwen35", qwen35),
    "qwen35moe": ("qwen35moe", "qwen35", qwen35moe),
    "qwen3next": ("qwen3next", "qwen2", qwen3next),
    "lfm2": ("lfm2", "lfm2", lfm2),
    "types-k": ("qwen3", "qwen2", of_types),
    "types-iq": ("qwen3", "qwen2", of_types),
    "types-two": ("qwen2moe", "qwen2", of_two_types),
}
