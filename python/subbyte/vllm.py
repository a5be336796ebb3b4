"""A plug-in of vLLM for checkpoints that it has dropped: act-order, asymmetric and 2 and 3 bit
GPTQ, NF4, kbit (docs/torch.md).

vLLM finds register() by the entry point "vllm.general_plugins" of this package. What it claims of a
checkpoint's own methods is in claims(); `--quantization subbyte` gives it any checkpoint that
subbyte reads. Weights are read by subbyte.open_checkpoint, not by vLLM's loader.
"""

from __future__ import annotations

from typing import Any

import torch

import subbyte
from subbyte.torch.checkpoints import EXPERT, fill_experts
from subbyte.torch.modules import SubbyteExperts, SubbyteLinear, packed_weight

METHOD = "subbyte"
# What models of vLLM join where they do not say it before their layers are made.
JOINED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


def claims(config: dict[str, Any]) -> bool:
    """Says whether a quantization_config is one that vLLM refuses and this package computes."""
    method = config.get("quant_method")
    if method == "gptq":
        grouped_order = config.get("desc_act", False) and config.get("group_size", -1) > 0
        return bool(config.get("bits") in (2, 3) or not config.get("sym", True) or grouped_order)
    if method == "bitsandbytes":
        return bool(config.get("load_in_4bit", config.get("_load_in_4bit", False)))
    return method == "kbit"


class Parts(torch.nn.Module):
    """The matrices of a layer of vLLM, which may be several side by side: q, k and v."""

    def __init__(self, checkpoint: subbyte.Checkpoint, names: list[str]) -> None:
        super().__init__()
        for i, name in enumerate(names):
            weight = packed_weight(checkpoint[name])
            part = SubbyteLinear(0, weight.codes.shape[0])
            part.fill(weight, None)
            self.add_module(str(i), part)

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        results = [part(x) for part in self.children()]
        y = results[0] if len(results) == 1 else torch.cat(results, -1)
        return y if bias is None else y + bias


def names_of(prefix: str, packed: dict[str, list[str]]) -> list[str]:
    """The modules of a checkpoint that a layer of vLLM is made of."""
    parent, _, last = prefix.rpartition(".")
    parts = packed.get(last) or JOINED.get(last, [last])
    return [f"{parent}.{part}" if parent else part for part in parts]


def experts_of(prefix: str, quantized: set[str]) -> dict[str, list[str]]:
    """The names of the matrices of a layer of experts, by the kind of matrix."""
    kinds: dict[str, list[str]] = {}
    for name in quantized:
        found = EXPERT.match(name)
        if found and found.group(1) == prefix:
            kinds.setdefault(found.group(3), []).append(name)
    return kinds


def routes(logits: torch.Tensor, top_k: int,
           renormalize: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The experts of each token, and their weights."""
    weights, chosen = torch.topk(torch.softmax(logits.float(), -1), top_k)
    return (weights / weights.sum(-1, keepdim=True) if renormalize else weights), chosen


class Names:
    """A pattern that finds the names of a set: what vLLM's loader shall leave out."""

    def __init__(self, names: set[str]) -> None:
        self._names = frozenset(names)

    def search(self, name: str) -> bool:
        return name in self._names


def register() -> None:
    """Registers the method "subbyte" with the vLLM of this process; more than once is no error."""
    from vllm.model_executor.layers.fused_moe import FusedMoEMethodBase, RoutedExperts
    from vllm.model_executor.layers.linear import (LinearBase, LinearMethodBase,
                                                   UnquantizedLinearMethod)
    from vllm.model_executor.layers.quantization import register_quantization_config
    from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
    from vllm.model_executor.models.utils import WeightsMapper
    from vllm.platforms import current_platform

    class SubbyteLinearMethod(LinearMethodBase):
        """Fills a layer from the checkpoint once all others are loaded, and multiplies."""

        def __init__(self, config: SubbyteConfig, names: list[str]) -> None:
            self._config, self._names = config, names

        def create_weights(self, layer: torch.nn.Module, input_size_per_partition: int,
                           output_partition_sizes: list[int], input_size: int, output_size: int,
                           params_dtype: torch.dtype, **unused: Any) -> None:
            whole = input_size_per_partition, sum(output_partition_sizes)
            if whole != (input_size, output_size):
                raise ValueError(f"{self._names[0]}: subbyte has no tensor parallelism")

        def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
            self._config.check_all_are_claimed()
            parts = Parts(self._config.checkpoint, self._names)
            layer.subbyte_parts = parts.to(torch.device(current_platform.device_type))

        def apply(self, layer: torch.nn.Module, x: torch.Tensor,
                  bias: torch.Tensor | None = None) -> torch.Tensor:
            return layer.subbyte_parts(x, bias)

    class SubbyteExpertsMethod(FusedMoEMethodBase):
        """Fills a layer of experts likewise; routes are found here where vLLM's are for GPUs."""

        def __init__(self, config: SubbyteConfig, layer: RoutedExperts, name: str,
                     kinds: dict[str, list[str]]) -> None:
            super().__init__(layer.moe_config)
            self._config, self._name, self._kinds = config, name, kinds
            special = (layer.use_grouped_topk, layer.custom_routing_function,
                       layer.e_score_correction_bias is not None,
                       layer.scoring_func != "softmax", layer.apply_router_weight_on_input,
                       layer.swiglu_limit is not None, "gate_up_proj" in kinds,
                       layer.routed_scaling_factor != 1.0, layer.use_ep,
                       layer.moe_config.moe_parallel_config.tp_size != 1,
                       layer.activation.value != "silu")
            if any(special):
                raise ValueError(f"{name}: subbyte computes experts with SwiGLU that a softmax "
                                 "chooses, on one device")

        @property
        def is_monolithic(self) -> bool:
            return current_platform.is_cpu()

        def create_weights(self, layer: torch.nn.Module, *unused: Any, **more: Any) -> None:
            pass

        def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> None:
            return None

        def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
            self._config.check_all_are_claimed()
            experts = SubbyteExperts(False, None)
            fill_experts(experts, self._config.checkpoint, self._name, self._kinds)
            layer.subbyte_experts = experts.to(torch.device(current_platform.device_type))

        def apply(self, layer: torch.nn.Module, x: torch.Tensor, topk_weights: torch.Tensor,
                  topk_ids: torch.Tensor, *unused: Any, **more: Any) -> torch.Tensor:
            return layer.subbyte_experts(x, topk_ids, topk_weights)

        def apply_monolithic(self, layer: torch.nn.Module, x: torch.Tensor,
                             router_logits: torch.Tensor, *unused: Any,
                             **more: Any) -> torch.Tensor:
            weights, chosen = routes(router_logits, layer.top_k, layer.renormalize)
            return layer.subbyte_experts(x, chosen, weights)

    @register_quantization_config(METHOD)
    class SubbyteConfig(QuantizationConfig):
        """Finds out which layers a checkpoint quantizes, whatever its own method is."""

        def __init__(self) -> None:
            super().__init__()
            self.checkpoint: subbyte.Checkpoint | None = None
            self.quantized: set[str] = set()
            self.claimed: set[str] = set()

        def get_name(self) -> str:
            return METHOD

        def get_supported_act_dtypes(self) -> list[torch.dtype]:
            return [torch.float16, torch.bfloat16, torch.float32]

        @classmethod
        def get_min_capability(cls) -> int:
            return 80

        @staticmethod
        def get_config_filenames() -> list[str]:
            return []

        @classmethod
        def from_config(cls, config: dict[str, Any]) -> SubbyteConfig:
            return cls()

        @classmethod
        def override_quantization_method(cls, hf_quant_cfg: dict[str, Any], user_quant: str | None,
                                         hf_config: Any = None) -> str | None:
            chosen = user_quant == METHOD or (user_quant is None and claims(hf_quant_cfg))
            return METHOD if chosen else None

        def maybe_update_config(self, model_name: str, hf_config: Any = None,
                                revision: str | None = None) -> None:
            self.checkpoint = subbyte.open_checkpoint(model_name)
            self.quantized = {name for name in self.checkpoint
                              if self.checkpoint.describe(name)["kind"] != "dense"}

        def get_checkpoint_weight_mapper(self) -> WeightsMapper:
            names = {tensor for name in self.quantized
                     for tensor in self.checkpoint.describe(name)["tensors"]
                     if not tensor.endswith(".bias")}
            return WeightsMapper(orig_to_new_regex={Names(names): None})

        def check_all_are_claimed(self) -> None:
            """Raises ValueError for a matrix that no layer reads: its weights would be missing."""
            left = sorted(self.quantized - self.claimed)
            if left:
                raise ValueError(f"{left[0]}: the checkpoint has quantized weights for it, and "
                                 "the model of vLLM no layer that subbyte fills")

        def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
            names = names_of(prefix, self.packed_modules_mapping)
            ours = [name for name in names if name in self.quantized]
            if isinstance(layer, LinearBase):
                if not ours:
                    return UnquantizedLinearMethod()
                if len(ours) == len(names):
                    self.claimed.update(names)
                    return SubbyteLinearMethod(self, names)
                raise ValueError(f"{prefix}: some of {names} are quantized and some are not")
            name = prefix.removesuffix(".routed_experts")
            kinds = experts_of(name, self.quantized)
            if isinstance(layer, RoutedExperts) and kinds:
                self.claimed.update(matrix for kind in kinds.values() for matrix in kind)
                return SubbyteExpertsMethod(self, layer, name, kinds)
            if ours or any(name.startswith(f"{prefix}.") for name in self.quantized):
                raise ValueError(f"{prefix}: subbyte computes linear layers and experts in vLLM, "
                                 f"and no {type(layer).__name__}")
            return None
