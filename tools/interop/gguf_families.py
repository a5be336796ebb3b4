"""What the converter of llama.cpp writes of families with experts, Mamba 2 or latent attention."""

import gguf

# Names of transformers that gguf-py knows under others.
OTHER_NAMES = (
    ("e_score_correction_bias", "e_score_correction.bias"),
    (".mlp.e_score", ".block_sparse_moe.e_score"),
    (".expert_bias", ".expert_bias.bias"),
    ("moe.router.weight", "moe.router.layer.weight"),
    (".gate.moe_statics.", ".moe_statics."),
    ("block_sparse_moe.experts.", "mlp.experts."),
    ("model.layers.{}.feed_forward.experts.gate_proj", "layers.{}.feed_forward.experts.w1"),
    ("model.layers.{}.feed_forward.experts.up_proj", "layers.{}.feed_forward.experts.w3"),
    ("model.layers.{}.feed_forward.experts.down_proj", "layers.{}.feed_forward.experts.w2"),
    ("model.layers.{}.mixer.experts.", "model.layers.{}.mlp.experts."),
    ("model.layers.{}.mixer.", "backbone.layers.{}.mixer."),
    (".mixer.dt_bias", ".mixer.dt.bias"),
    (".mamba.dt_bias", ".mamba.dt_proj.bias"),
    ("layers.{}.shared_mlp.gate_proj", "layers.{}.mlp.shared_expert.gate_proj"),
    ("layers.{}.shared_mlp.up_proj", "layers.{}.mlp.shared_expert.up_proj"),
)
GATED_BY_SIGMOIDS = ("glm4moe", "minimax-m2", "lfm2moe")
WITHOUT_INNER_SIZE = ("llama", "granitemoe", "granitehybrid")


def other_name(name):
    parts = name.split(".")
    layer = parts[2] if parts[1:2] == ["layers"] else ""
    for old, new in OTHER_NAMES:
        name = name.replace(old.replace("{}", layer), new.replace("{}", layer))
    return name


def add_metadata(writer, arch, config):
    if arch == "exaone4":
        add_windows(writer, config)
        return
    if arch == "mistral3":
        rope = config.rope_parameters
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
        return
    if arch == "gemma4":
        add_gemma4(writer, config)
        return
    if getattr(config, "mamba_n_groups", None) or arch.startswith("nemotron"):
        add_mambas(writer, arch, config)
    experts = getattr(config, "n_routed_experts", None) or \
        getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None) or \
        getattr(config, "moe_num_experts", None)
    if arch == "nemotron_h" or (arch == "granitehybrid" and not experts):
        return
    writer.add_expert_count(experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    if arch not in WITHOUT_INNER_SIZE:
        writer.add_expert_feed_forward_length(
            getattr(config, "moe_intermediate_size", config.intermediate_size))
    if arch == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if arch == "hunyuan-moe":
        writer.add_expert_shared_feed_forward_length(config.intermediate_size)
    if arch == "llama4":
        writer.add_interleave_moe_layer_step(config.interleave_moe_layer_step)
    if arch == "ernie4_5-moe":
        writer.add_expert_shared_feed_forward_length(
            config.moe_num_shared_experts * config.moe_intermediate_size)
        writer.add_expert_shared_count(config.moe_num_shared_experts)
        writer.add_leading_dense_block_count(config.moe_layer_start_index)
        writer.add_interleave_moe_layer_step(config.moe_layer_interval)
    if arch in ("deepseek2", "mistral4"):
        add_latents(writer, config)
    if arch in GATED_BY_SIGMOIDS:
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if arch == "lfm2moe":
        writer.add_leading_dense_block_count(config.num_dense_layers)
    if arch == "glm4moe":
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
        writer.add_expert_shared_count(config.n_shared_experts)
    if arch in ("glm4moe", "nemotron_h_moe"):
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
    if arch == "nemotron_h_moe":
        writer.add_expert_shared_count(1)
        writer.add_expert_shared_feed_forward_length(config.moe_shared_expert_intermediate_size)


def add_windows(writer, config):
    if config.sliding_window is None:
        return
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])


def add_gemma4(writer, config):
    slides = [kind == "sliding_attention" for kind in config.layer_types]
    said = config.to_dict()
    of_full = next(iter(said["per_layer_config"].values()))
    full = of_full["head_dim"]
    shared = config.num_kv_shared_layers
    add_windows(writer, config)
    kv_heads = said["num_key_value_heads"]
    writer.add_head_count_kv(
        [kv_heads if one else of_full.get("num_key_value_heads", kv_heads) for one in slides])
    first_shared = config.num_hidden_layers - shared
    writer.add_feed_forward_length([config.intermediate_size * (2 if i >= first_shared else 1)
                                    for i in range(len(slides))]
                                   if config.use_double_wide_mlp else config.intermediate_size)
    writer.add_key_length(full)
    writer.add_value_length(full)
    writer.add_key_length_swa(said["head_dim"])
    writer.add_value_length_swa(said["head_dim"])
    writer.add_rope_dimension_count(full)
    writer.add_rope_dimension_count_swa(said["head_dim"])
    writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.enable_moe_block:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def add_latents(writer, config):
    turning, rank = config.qk_rope_head_dim, config.kv_lora_rank
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(rank)
    writer.add_head_count_kv(1)
    writer.add_key_length(rank + turning)
    writer.add_value_length(rank)
    writer.add_key_length_mla(config.qk_nope_head_dim + turning)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_rope_dimension_count(turning)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_group_count(config.n_group)
    writer.add_expert_group_used_count(config.topk_group)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    if config.model_type == "deepseek_v3":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if config.model_type != "deepseek_v2":
        writer.add_expert_weights_norm(config.norm_topk_prob)
    rope = config.rope_parameters
    if "llama_4_scaling_beta" in rope:
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
        writer.add_attn_temperature_length(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def add_mambas(writer, arch, config):
    is_nemotron = arch.startswith("nemotron")
    if is_nemotron:
        heads, size = config.mamba_num_heads, config.mamba_head_dim
        kinds = config.layers_block_type
        inner = config.moe_intermediate_size if arch.endswith("moe") else config.intermediate_size
        writer.add_feed_forward_length([inner if kind in ("mlp", "moe") else 0 for kind in kinds])
        writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        writer.add_ssm_conv_kernel(config.conv_kernel)
        writer.add_ssm_state_size(config.ssm_state_size)
        writer.add_ssm_group_count(config.n_groups)
    else:
        heads, size = config.mamba_n_heads, config.mamba_d_head
        kinds = config.layer_types
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_scaling_finetuned(config.position_embedding_type == "rope")
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
        writer.add_ssm_conv_kernel(config.mamba_d_conv)
        writer.add_ssm_state_size(config.mamba_d_state)
        writer.add_ssm_group_count(config.mamba_n_groups)
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_inner_size(heads * size)
    attends = ("full_attention", "attention")
    writer.add_head_count_kv([config.num_key_value_heads if kind in attends else 0
                              for kind in kinds])


def with_inputs_last(state):
    """Experts that have their inputs first."""
    is_of_experts = (".experts.gate_up_proj", ".experts.down_proj")
    return {name: tensor.transpose(1, 2) if name.endswith(is_of_experts) else tensor
            for name, tensor in state.items()}


def with_changes(state, config):
    """Joined blocks apart, and numbers of Mamba 2 as they are stored."""
    result = {}
    for name, tensor in state.items():
        last = name.rpartition(".")[2]
        if "shared_mlp.input_linear" in name:
            gate, up = tensor.chunk(2)
            result[name.replace("input_linear", "gate_proj")] = gate
            result[name.replace("input_linear", "up_proj")] = up
        elif last == "A_log":
            result[name] = -tensor.exp()[:, None]
        elif last == "D":
            result[name] = tensor[:, None]
        elif name.endswith(("mamba.norm.weight", "mixer.norm.weight")):
            groups = getattr(config, "mamba_n_groups", None) or config.n_groups
            result[name] = tensor.reshape(groups, -1)
        elif "kv_b_proj" in name:
            heads = tensor.reshape(config.num_attention_heads, -1, tensor.shape[-1])
            keys, values = heads.split([config.qk_nope_head_dim, config.v_head_dim], 1)
            result[name.replace("kv_b_proj", "k_b_proj")] = keys.transpose(1, 2)
            result[name.replace("kv_b_proj", "v_b_proj")] = values
        elif name.endswith(("layer_scalar", ".experts.gate_up_proj", ".experts.down_proj")):
            result[name + ".weight"] = tensor
        elif name.endswith(".router.scale"):
            result[f"blk.{name.split('.')[2]}.ffn_gate_inp.scale"] = tensor
        elif name.endswith(".router.per_expert_scale"):
            result[f"blk.{name.split('.')[2]}.ffn_down_exps.scale"] = tensor
        elif "e_score_correction_bias" in name:
            result[name] = tensor.flatten()
        elif name.endswith("conv1d.weight"):
            result[name] = tensor.squeeze(1)
        elif name.endswith("mixer.experts.up_proj"):
            result[name + ".weight"] = tensor
        else:
            result[name] = tensor
    return {other_name(name): tensor for name, tensor in result.items()}
