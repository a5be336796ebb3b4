"""Tiny models with random weights, and what tools want beside one: a tokenizer, texts of tokens."""

import tokenizers
import torch
import transformers

TOKENS = [3, 17, 42, 5, 99, 100, 7, 23, 64, 1, 88, 31]
VOCAB = 288  # 256 bytes, a token for padding, and what fills up to a multiple of 32


def qwen3(hidden=128, intermediate=256, layers=2, skewed=False, vocab=VOCAB, tied=False, **more):
    """`skewed`: every third row begins with positive weights, whose zero points are 0."""
    torch.manual_seed(1)
    config = transformers.Qwen3Config(
        hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
        num_attention_heads=hidden // 32, num_key_value_heads=hidden // 64, head_dim=32,
        vocab_size=vocab, max_position_embeddings=128, tie_word_embeddings=tied,
        eos_token_id=None, bos_token_id=None, pad_token_id=None, **more)
    model = transformers.Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            # As large as those of trained models are beside their inputs: logits of about 1.
            if tensor.ndim == 2 and "embed" not in name:
                tensor.normal_(0, tensor.shape[1] ** -0.5)
                if skewed:
                    tensor[::3, :32].abs_()
    return model.eval()


def skewed():
    return qwen3(skewed=True)


def small(**more):
    """For a golden: some 100 kB in f16."""
    return qwen3(hidden=64, intermediate=128, layers=1, skewed=True, **more)


def qwen3_moe(hidden=64, inner=64, layers=3, experts=4, **more):
    """The layer in the middle is dense."""
    torch.manual_seed(4)
    config = transformers.Qwen3MoeConfig(
        hidden_size=hidden, intermediate_size=2 * hidden, moe_intermediate_size=inner,
        num_hidden_layers=layers, num_attention_heads=hidden // 32, num_key_value_heads=1,
        head_dim=32, vocab_size=VOCAB, max_position_embeddings=128, tie_word_embeddings=False,
        num_experts=experts, num_experts_per_tok=2, mlp_only_layers=[1], eos_token_id=None,
        bos_token_id=None, pad_token_id=None, **more)
    model = transformers.Qwen3MoeForCausalLM(config)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.ndim >= 2 and "embed" not in name:
                tensor.normal_(0, tensor.shape[-1] ** -0.5)
    return model.eval()


def llama(hidden=64, layers=2, **more):
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 16, head_dim=32, vocab_size=VOCAB,
        max_position_embeddings=512, eos_token_id=None, bos_token_id=None, pad_token_id=None,
        **more)
    return with_weights(transformers.LlamaForCausalLM(config))


def llama3(**more):
    """Grouped heads and a tied head; of its angles some are left alone, some are divided."""
    return llama(num_key_value_heads=2, tie_word_embeddings=True, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}, **more)


def llama2(**more):
    """Each head with keys of its own, biases everywhere, positions divided by 2."""
    return llama(num_key_value_heads=4, tie_word_embeddings=False, attention_bias=True,
                 mlp_bias=True, rope_parameters={
                     "rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}, **more)


def qwen2(**more):
    """Grouped heads and a head of its own; queries, keys and values have biases."""
    torch.manual_seed(2)
    config = transformers.Qwen2Config(
        hidden_size=96, intermediate_size=160, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, vocab_size=VOCAB, max_position_embeddings=256, bos_token_id=None,
        eos_token_id=None, pad_token_id=None, **more)
    return with_weights(transformers.Qwen2ForCausalLM(config))


def mistral(**more):
    """All layers slide; heads are wider than the hidden size says."""
    return family("Mistral", 6, num_key_value_heads=2, head_dim=32, sliding_window=8, **more)


def phi3(**more):
    """Joined projections; a part of a head turns, by factors for short and for long contexts."""
    factors = [1 + i / 8 for i in range(12)]
    return family("Phi3", 7, num_key_value_heads=2, hidden_size=128, sliding_window=None,
                  original_max_position_embeddings=64, max_position_embeddings=512,
                  rope_parameters={
                      "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                      "original_max_position_embeddings": 64,
                      "short_factor": factors, "long_factor": [4 * f for f in factors]}, **more)


def gemma2(**more):
    """Caps that show, norms before and after blocks with factors 1 + w, a layer that slides."""
    return family("Gemma2", 8, num_key_value_heads=2, head_dim=32, sliding_window=8,
                  query_pre_attn_scalar=20, attn_logit_softcapping=2.0,
                  final_logit_softcapping=3.0, tie_word_embeddings=True, **more)


def granite(**more):
    """Factors of everything, none of which is 1."""
    return family("Granite", 9, num_key_value_heads=2, embedding_multiplier=6.0,
                  residual_multiplier=0.5, attention_multiplier=0.125, logits_scaling=4.0,
                  attention_bias=True, mlp_bias=True, tie_word_embeddings=True, **more)


def lfm2(**more):
    """An attention between two short convolutions, with biases; an inner size by all rules."""
    model = family("Lfm2", 10, num_key_value_heads=2, num_hidden_layers=3, conv_L_cache=4,
                   layer_types=["conv", "full_attention", "conv"], conv_bias=True,
                   intermediate_size=130, block_ffn_dim_multiplier=1.25, block_multiple_of=32,
                   max_position_embeddings=512, **more)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("conv.conv.weight"):
                tensor.normal_(0, 0.5)
    return model


def olmo2(**more):
    """Norms after blocks alone, and of all heads of queries and of keys together; heads of them in
    groups, all layers full."""
    return family("Olmo2", 10, num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=500000.0,
                  **more)


QWEN_VISION = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=2,
                   out_hidden_size=32)
SMALL = dict(hidden_size=32, intermediate_size=48, num_key_value_heads=2)
TWO_HEADS = dict(num_attention_heads=2, num_key_value_heads=1)  # of 16, where no key says it


def qwen2_vl(**more):
    vision = dict(depth=1, embed_dim=16, hidden_size=32, mlp_ratio=1, num_heads=2, patch_size=2)
    return family("Qwen2VL", 17, vision, **{**SMALL, **TWO_HEADS}, rope_parameters={
        "rope_type": "default", "rope_theta": 1000.0, "mrope_section": [4, 2, 2]}, **more)


def qwen2_5_vl(**more):
    """Sections of positions, which are all the same in a text."""
    return family("Qwen2_5_VL", 11, dict(QWEN_VISION, fullatt_block_indexes=[0]),
                  **{**SMALL, **TWO_HEADS}, tie_word_embeddings=True, rope_parameters={
                      "rope_type": "default", "rope_theta": 1000.0, "mrope_section": [4, 2, 2]},
                  **more)


def qwen3_vl(**more):
    return family("Qwen3VL", 12, dict(QWEN_VISION, num_position_embeddings=4,
                                      deepstack_visual_indexes=[0]),
                  head_dim=16, **SMALL, rope_parameters={
                      "rope_type": "default", "rope_theta": 1000.0, "mrope_interleaved": True,
                      "mrope_section": [4, 2, 2]}, **more)


def qwen3_vl_moe(**more):
    """Four experts, weights of which always add up to 1."""
    return family("Qwen3VLMoe", 13, dict(QWEN_VISION, num_position_embeddings=4,
                                         deepstack_visual_indexes=[0]),
                  head_dim=16, **SMALL, num_experts=4, num_experts_per_tok=2,
                  moe_intermediate_size=16, mlp_only_layers=[0], tie_word_embeddings=False, **more)


def mistral3(**more):
    """Mistral beside a part that sees."""
    return family("Mistral3", 14, dict(model_type="pixtral", hidden_size=16, intermediate_size=16,
                                       num_hidden_layers=1, num_attention_heads=2, head_dim=8,
                                       image_size=28),
                  model_type="mistral", head_dim=16, **SMALL, sliding_window=None,
                  tie_word_embeddings=False, **more)


def gemma3(**more):
    """Beside a part that sees: a layer that slides, with a rope of its own, and one that is full;
    norms with factors 1 + w, of heads, too. The root of the width is exact, as it is rounded to
    the type of the embedding."""
    vision = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                  image_size=8, patch_size=4)
    return family("Gemma3", 15, vision, head_dim=16, **{**SMALL, "hidden_size": 64},
                  sliding_window=8,
                  layer_types=["sliding_attention", "full_attention"], query_pre_attn_scalar=20,
                  tie_word_embeddings=True, rope_parameters={
                      "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                      "full_attention": {"rope_type": "linear", "rope_theta": 1000.0,
                                         "factor": 4.0}}, **more)


def olmo3(**more):
    """The last of four layers is full, and its rope is scaled."""
    return family("Olmo3", 16, **{**SMALL, **TWO_HEADS}, num_hidden_layers=4, sliding_window=8,
                  rms_norm_eps=1e-6, rope_parameters={
                      "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
                      "full_attention": {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0,
                                         "original_max_position_embeddings": 64}}, **more)


LATENT = dict(hidden_size=32, intermediate_size=16, num_attention_heads=2, num_key_value_heads=2,
              kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=8,
              n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)


def deepseek_v2(**more):
    """Queries without a rank; groups of experts by their best one; softmax, weights as they are."""
    return family("DeepseekV2", 18, **{**LATENT, "q_lora_rank": None, "first_k_dense_replace": 1,
                                       "n_shared_experts": 2, "topk_method": "group_limited_greedy",
                                       "n_group": 2, "topk_group": 1, "routed_scaling_factor": 3.0,
                                       "num_experts_per_tok": 2, "rope_parameters": {
                                           "rope_type": "yarn", "rope_theta": 1000.0,
                                           "factor": 4.0, "original_max_position_embeddings": 64,
                                           "mscale": 0.7, "mscale_all_dim": 0.7}, **more})


def deepseek_v3(**more):
    """Groups by their two best experts, biases that choose; mscale_all_dim without mscale, so that
    the angles have a factor, too."""
    return with_choice(family("DeepseekV3", 219, **{
        **LATENT, "q_lora_rank": 16, "first_k_dense_replace": 1, "n_routed_experts": 6,
        "n_group": 3, "topk_group": 2, "routed_scaling_factor": 2.5, "attention_bias": True,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0,
                            "original_max_position_embeddings": 64, "mscale": 1.0,
                            "mscale_all_dim": 0.5}, **more}))


def kimi(**more):
    """Queries without a rank and one group, as Moonlight and Kimi have."""
    return with_choice(family("DeepseekV3", 24, **{
        **LATENT, "q_lora_rank": None, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
        "routed_scaling_factor": 2.0, **more}))


def glm4_moe_lite(**more):
    """Keys longer than values; one group; sigmoids with biases that choose."""
    return with_choice(family("Glm4MoeLite", 120, **{**LATENT, "q_lora_rank": 16, "v_head_dim": 24,
                                                    **more}))


INDEXER = dict(index_n_heads=6, index_head_dim=32, index_topk=6)


def deepseek_v32(**more):
    """An indexer whose positions are fewer than those of a text, as halves turn; of its heads more
    than turns."""
    return with_indexer(with_choice(family("DeepseekV32", 22, **{
        **LATENT, **INDEXER, "q_lora_rank": 16, "first_k_dense_replace": 2, "n_group": 2,
        "topk_group": 1, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0,
            "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 1.0},
        **more})))


def glm_moe_dsa(**more):
    """The same as neighbours turn; the last layer takes the positions of the one before."""
    return with_indexer(with_choice(family("GlmMoeDsa", 23, **{
        **LATENT, **INDEXER, "q_lora_rank": 16, "first_k_dense_replace": 1,
        "n_routed_experts": 3, "indexer_types": ["full", "shared"], **more})))


def with_indexer(model):
    """Biases of its norm that show."""
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("k_norm.bias"):
                tensor.normal_(0, 0.3)
    return model


def mistral4(**more):
    """Queries become larger each 8 positions; softmax, groups by their two best experts."""
    return family("Mistral4", 21, **{
        **LATENT, "q_lora_rank": 16, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
        "routed_scaling_factor": 1.5, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0,
            "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 0.5,
            "llama_4_scaling_beta": 0.5}, **more})


def with_choice(model):
    """Biases that change which experts are chosen."""
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0, 0.3)
    return model
def ministral3(**more):
    """Beside a part that sees: queries become larger each 8 positions."""
    return family("Mistral3", 20, dict(model_type="pixtral", hidden_size=16, intermediate_size=16,
                                       num_hidden_layers=1, num_attention_heads=2, head_dim=8,
                                       image_size=28, patch_size=4),
                  model_type="ministral3", head_dim=16,
                  **{**SMALL, **TWO_HEADS, "intermediate_size": 32}, tie_word_embeddings=False,
                  rope_parameters={
                      "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0,
                      "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 1.0,
                      "llama_4_scaling_beta": 0.5}, **more)


def phi4_mini(**more):
    """Three quarters of a head turn, by factors, and the head is the embedding."""
    factors = [1 + i / 4 for i in range(6)]
    return family("Phi3", 21, **{**SMALL, **TWO_HEADS}, sliding_window=None,
                  tie_word_embeddings=True, original_max_position_embeddings=64,
                  max_position_embeddings=512,
                  rope_parameters={
                      "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                      "original_max_position_embeddings": 64,
                      "short_factor": factors, "long_factor": [4 * f for f in factors]}, **more)


def glm4(**more):
    """Neighbours of half a head turn; norms around blocks, with names of their own."""
    return family("Glm4", 22, head_dim=16, **{**SMALL, **TWO_HEADS}, attention_bias=True,
                  eos_token_id=127,
                  rope_parameters={"rope_type": "default", "rope_theta": 1000.0,
                                   "partial_rotary_factor": 0.5}, **more)


def smollm3(**more):
    """Heads of the second layer do not turn."""
    return family("SmolLM3", 23, **{**SMALL, **TWO_HEADS}, num_hidden_layers=3,
                  no_rope_layers=[1, 0, 1], tie_word_embeddings=True, rope_parameters={
                      "rope_type": "default", "rope_theta": 1000.0}, **more)


def seed_oss(**more):
    """Biases of all but gate, up and down."""
    return family("SeedOss", 24, head_dim=16, **{**SMALL, **TWO_HEADS}, attention_bias=True,
                  attention_out_bias=True, mlp_bias=False, rope_parameters={
                      "rope_type": "default", "rope_theta": 1000.0}, **more)


def ernie4_5(**more):
    """Neighbours of a head turn, and all products have biases."""
    return family("Ernie4_5", 25, head_dim=16, **SMALL, use_bias=True, tie_word_embeddings=True,
                  rope_parameters={"rope_type": "default", "rope_theta": 1000.0}, **more)


def exaone4(**more):
    """Heads of the layer in the middle, which does not slide, do not turn."""
    return family("Exaone4", 26, **{**SMALL, **TWO_HEADS, "intermediate_size": 32},
                  num_hidden_layers=3, sliding_window=8, sliding_window_pattern=2,
                  rope_parameters={
                      "rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0,
                      "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 64}, **more)


def hunyuan_v1_dense(**more):
    """Heads are normalised after they have turned, and their base is larger than rope_theta."""
    return family("HunYuanDenseV1", 27, head_dim=16, **SMALL, attention_bias=True,
                  tie_word_embeddings=True, rope_parameters={
                      "rope_type": "dynamic", "rope_theta": 100.0, "factor": 1.0, "alpha": 50.0},
                  **more)


def family(name, seed, vision=None, config_of="", **more):
    """With `vision` it is the text part of a model that sees; `config_of` names another config."""
    torch.manual_seed(seed)
    text = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": VOCAB, "max_position_embeddings": 256,
            "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, **more}
    wrapper = text if vision is None else {
        "text_config": text, "vision_config": vision,
        "tie_word_embeddings": text.get("tie_word_embeddings", False)}
    config = getattr(transformers, f"{config_of or name}Config")(**wrapper)
    end = "ForCausalLM" if vision is None else "ForConditionalGeneration"
    model = with_weights(getattr(transformers, name + end)(config))
    with torch.no_grad():
        for parameter in (tensor for key, tensor in model.named_parameters() if "norm" in key):
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


def with_weights(model):
    """As large as those of trained models are beside their inputs: logits of about 1."""
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("bias"):
                tensor.normal_(0, 0.2)
            elif tensor.ndim == 2 or "experts" in name:
                tensor.normal_(0, tensor.shape[-1] ** -0.5)
    return model.eval()


DELTA_NET = dict(
    hidden_size=64, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
    linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=24,
    linear_conv_kernel_dim=4, max_position_embeddings=512, eos_token_id=None, bos_token_id=None,
    pad_token_id=None)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
               shared_expert_intermediate_size=64)


def with_delta_nets(model):
    """Norms away from 1, and gates of which some forget little: after 200 tokens a state still has
    some of the first ones."""
    with torch.no_grad():
        for name, tensor in with_weights(model).named_parameters():
            if name.endswith("A_log"):
                tensor.uniform_(-5, 0)
            elif name.endswith("dt_bias"):
                tensor.normal_(0, 1)
            elif name.endswith("conv1d.weight"):
                tensor.normal_(0, 0.5)
            elif name.endswith("norm.weight"):
                tensor.add_(torch.randn_like(tensor) * 0.2)
            elif tensor.ndim == 3:
                tensor.normal_(0, tensor.shape[2] ** -0.5)
    return model


def qwen3_5(**more):
    torch.manual_seed(6)
    config = transformers.Qwen3_5TextConfig(
        **{**DELTA_NET, "intermediate_size": 96, "linear_num_value_heads": 4, "vocab_size": VOCAB,
           **more})
    return with_delta_nets(transformers.Qwen3_5ForCausalLM(config))


def qwen3_5_wrapped(tied=True, **more):
    """Three value heads for each key head, a tied head, and parts that are not read."""
    torch.manual_seed(17)  # with 7 a query and a key are so near to orthogonal that f32 shows
    text = {**DELTA_NET, "intermediate_size": 96, "linear_num_value_heads": 6,
            "vocab_size": VOCAB, "tie_word_embeddings": tied, "rope_parameters": {
                "rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5,
                "mrope_section": [4, 2, 2], "mrope_interleaved": True}, **more}
    vision = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=2,
                  out_hidden_size=text["hidden_size"], num_position_embeddings=4)
    config = transformers.Qwen3_5Config(text_config=text, vision_config=vision,
                                        tie_word_embeddings=tied)
    return with_delta_nets(transformers.Qwen3_5ForConditionalGeneration(config))


def qwen3_5_moe(**more):
    torch.manual_seed(8)
    config = transformers.Qwen3_5MoeTextConfig(
        **{**DELTA_NET, **EXPERTS, "linear_num_value_heads": 4, "vocab_size": VOCAB, **more})
    return with_delta_nets(transformers.Qwen3_5MoeForCausalLM(config))


def qwen3_next(**more):
    """The second layer is dense; three value heads for each key head."""
    torch.manual_seed(9)
    config = transformers.Qwen3NextConfig(
        **{**DELTA_NET, **EXPERTS, "linear_num_value_heads": 6, "intermediate_size": 96,
           "mlp_only_layers": [1], "vocab_size": VOCAB, **more})
    return with_delta_nets(transformers.Qwen3NextForCausalLM(config))


def gpt_oss(hidden=128, layers=2):
    torch.manual_seed(2)
    config = transformers.GptOssConfig(
        hidden_size=hidden, intermediate_size=hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 32, num_key_value_heads=hidden // 64, head_dim=32,
        vocab_size=VOCAB, max_position_embeddings=128,
        num_local_experts=4, num_experts_per_tok=2, sliding_window=8, eos_token_id=None,
        pad_token_id=None, initial_context_length=64,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"})
    model = transformers.GptOssForCausalLM(config)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "experts" in name and not name.endswith("bias"):
                tensor.normal_(0, 0.09)
            elif "bias" in name or "sinks" in name:
                tensor.normal_(0, 0.1)
    return model.eval()


def small_gpt_oss():
    return gpt_oss(hidden=64, layers=1)


def tokenizer():
    """A token for each byte, in the form of Qwen's."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(letters)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\p{N}| ?[^\s\p{N}]+|\s+"), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<pad>"])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>")


def texts(count=16, length=64):
    """Calibration: rows of random tokens."""
    torch.manual_seed(3)
    return torch.randint(1, VOCAB, (count, length))
