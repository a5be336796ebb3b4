"""The quantization method "subbyte" of transformers: weights stay as their checkpoint has them."""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.quantizers import (HfQuantizer, register_quantization_config,
                                     register_quantizer)
from transformers.utils.quantization_config import QuantizationConfigMixin

import subbyte
from subbyte.torch.checkpoints import EXPERT, fill_experts, original_tensor, stored_tensor
from subbyte.torch.modules import SubbyteExperts, SubbyteLinear, packed_weight

METHOD = "subbyte"
# How names of checkpoints may begin, in the order of src/models/checkpoint_names.cc, and how those
# of the class for the text alone do.
PREFIXES = (("model.language_model.", "model."), ("language_model.model.", "model."),
            ("language_model.lm_head", "lm_head"), ("", "model."))


Place = tuple[str, str]  # a module's name in the checkpoint and in the model


def module_of(name: str, modules: dict[str, Any]) -> str | None:
    """The module of a model that a checkpoint has as `name`; None: the model has none."""
    if name in modules:
        return name
    places = (own + name[len(stored):] for stored, own in PREFIXES if name.startswith(stored))
    return next((place for place in places if place in modules), None)


def place_of(name: str, modules: dict[str, Any]) -> Place | None:
    """Where weights of a checkpoint belong: experts to their layer, all else to its module."""
    found = EXPERT.match(name)
    for stored in (found.group(1), name) if found else (name,):
        module = module_of(stored, modules)
        if module is not None:
            return stored, module
    return None


def is_unread(model: Any, name: str) -> bool:
    """Draft heads and towers of models that read pictures: classes say what they leave out."""
    return any(re.search(rule, f"{name}.weight")
               for rule in model._keys_to_ignore_on_load_unexpected or ())


@register_quantization_config(METHOD)
class SubbyteConfig(QuantizationConfigMixin):
    """Says that subbyte reads the checkpoint; the rest is the quantization_config of its own."""

    def __init__(self, quant_method: str = METHOD, **original: Any) -> None:
        self.quant_method = METHOD
        self.original = original.pop("original", None) or original

    def to_dict(self) -> dict[str, Any]:
        """What a saved model has: the original form, which is how it was saved."""
        return copy.deepcopy(self.original)

    def to_diff_dict(self) -> dict[str, Any]:
        return self.to_dict()


def gate_of(experts: Any) -> tuple[float, float, float] | None:
    """Alpha, limit and offset of gpt-oss's gate; None for SiLU alone. Ours compute no others."""
    x = torch.linspace(-9, 9, 64, device="cpu", dtype=torch.float32)  # whatever the default is
    act, own = getattr(experts, "act_fn", None), getattr(experts, "_apply_gate", None)
    found = own(x) if callable(own) else act(x[:32]) * x[32:] if callable(act) else None
    alpha, limit = getattr(experts, "alpha", None), getattr(experts, "limit", None)
    if found is not None and alpha is not None and limit is not None:
        gate, up = x[::2].clamp(max=limit), x[1::2].clamp(-limit, limit)
        if torch.allclose(found, (up + 1) * gate * torch.sigmoid(alpha * gate), atol=1e-6):
            return float(alpha), float(limit), 1.0
    silu = torch.nn.functional.silu(x[:32]) * x[32:]
    if found is not None and torch.allclose(found, silu, atol=1e-6):
        return None
    raise ValueError(f"{type(experts).__name__}: expected experts whose gate is SiLU or that of "
                     "gpt-oss, found another")


@register_quantizer(METHOD)
class SubbyteQuantizer(HfQuantizer):
    """Puts our layers and experts in the places of modules that a checkpoint quantizes."""

    def __init__(self, quantization_config: SubbyteConfig, **arguments: Any) -> None:
        super().__init__(quantization_config, **arguments)
        self.folder = Path()
        self.checkpoint: subbyte.Checkpoint | None = None  # open while a model is loaded
        self.stored: dict[str, str] = {}  # modules of the model to their names in the checkpoint
        self.linears: list[str] = []
        self.routers: list[str] = []  # modules whose weights become floats
        self.experts: dict[str, dict[str, list[str]]] = {}  # to names of each kind of matrix
        # Tensors of the checkpoint that our modules hold, and what the model would call them.
        self.tensors: dict[str, str] = {}

    @property
    def is_trainable(self) -> bool:
        return False

    @property
    def is_compileable(self) -> bool:
        return True

    def is_serializable(self) -> bool:
        return True

    # ---- before loading ----

    def _process_model_before_weight_loading(self, model: Any, checkpoint_files: Any = None,
                                             **unused: Any) -> Any:
        self.folder = Path(checkpoint_files[0]).parent
        self.checkpoint = subbyte.open_checkpoint(self.folder)
        stored = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        self.quantization_config.original = stored.get("quantization_config", {})
        modules = dict(model.named_modules())
        for name in self.checkpoint:
            # A module that contradicts itself raises here, with its tensors in the message.
            place = place_of(name, modules)
            if place is None and is_unread(model, name):
                continue
            if self.checkpoint.describe(name)["kind"] != "dense":
                self._claim(model, modules, name, place)
        for name, parts in self.experts.items():
            self._replace(model, name, self._empty_experts(modules[name], parts))
        model._keys_to_ignore_on_load_unexpected = {
            *(model._keys_to_ignore_on_load_unexpected or ()),
            *(f"^{re.escape(name)}$" for both in self.tensors.items() for name in both)}
        model._keys_to_ignore_on_load_missing = {
            *(model._keys_to_ignore_on_load_missing or ()),
            *(f"^{re.escape(name)}\\.weight$" for name in self.routers)}
        return model

    def _claim(self, model: Any, modules: dict[str, Any], name: str, place: Place | None) -> None:
        if place is None:
            raise ValueError(f"{name}: the checkpoint has quantized weights for it, and "
                             f"{type(model).__name__} no such module")
        stored, target = place
        self.stored[target] = stored
        tensors = self.checkpoint.describe(name)["tensors"]
        for tensor in (*tensors, f"{name}.bias", f"{name}_bias"):
            if tensor in self.checkpoint.tensors:
                is_below = tensor.startswith(stored)
                self.tensors[tensor] = target + tensor[len(stored):] if is_below else tensor
        if stored != name:
            kinds = self.experts.setdefault(target, {})
            kinds.setdefault(EXPERT.match(name).group(3), []).append(name)
            return
        module = modules[target]
        if name.endswith(".gate") and getattr(module, "weight", None) is not None:
            self.routers.append(target)  # which has a function of its own, and few weights
            return
        if not isinstance(module, torch.nn.Linear):
            raise ValueError(f"{name}: expected a linear layer, found {type(module).__name__}")
        self.linears.append(target)
        self._replace(model, target, SubbyteLinear(module.in_features, module.out_features))

    def _empty_experts(self, module: Any, parts: dict[str, list[str]]) -> SubbyteExperts:
        clamp = gate_of(module)
        return SubbyteExperts(clamp is not None and "gate_up_proj" in parts, clamp)

    @staticmethod
    def _replace(model: Any, name: str, module: torch.nn.Module) -> None:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, module)

    def update_weight_conversions(self, weight_conversions: list[Any],
                                  model: Any = None) -> list[Any]:
        """Experts are not merged into one parameter where they are ours.

        transformers 5.17 passes no `model`, 5.23 does.
        """
        if not self.experts:
            return weight_conversions
        def is_of_experts(conversion: Any) -> bool:
            return any("experts" in str(pattern)
                       for kind in ("source_patterns", "target_patterns")
                       for pattern in getattr(conversion, kind, ()))

        return [c for c in weight_conversions if not is_of_experts(c)]

    # ---- after loading ----

    def _process_model_after_weight_loading(self, model: Any, **unused: Any) -> Any:
        for name in self.linears:
            module = model.get_submodule(name)
            stored = self.stored[name]
            module.fill(packed_weight(self.checkpoint[stored]), self._bias(f"{stored}.bias"))
            module.to(self._device(model, name))
        for name in self.routers:
            weight = model.get_submodule(name).weight
            floats = torch.from_numpy(self.checkpoint[self.stored[name]].dequantize())
            weight.data.copy_(floats.to(weight.dtype))
        for name, parts in self.experts.items():
            module = model.get_submodule(name)
            fill_experts(module, self.checkpoint, self.stored[name], parts)
            module.to(self._device(model, name))
        self.checkpoint = None
        return model

    @staticmethod
    def _device(model: Any, name: str) -> torch.device:
        """That of the nearest parameter above."""
        while name:
            name = name.rpartition(".")[0]
            first = next(model.get_submodule(name).parameters(), None)
            if first is not None:
                return first.device
        return torch.device("cpu")

    def _bias(self, name: str) -> torch.Tensor | None:
        return stored_tensor(self.checkpoint, name)

    # ---- saving ----

    def get_state_dict_and_metadata(self, model: Any) -> tuple[dict[str, torch.Tensor], dict]:
        """Our modules' tensors as they were in the checkpoint, and the others as they are."""
        floats = {f"{name}.weight" for name in self.routers}
        state = {k: v for k, v in model.state_dict().items() if k not in floats}
        stored = subbyte.open_checkpoint(self.folder).tensors
        for name, own in self.tensors.items():
            state[own] = original_tensor(stored[name])
        return state, {}


def config(path: str | os.PathLike[str], **arguments: Any) -> Any:
    """The configuration of a checkpoint with quant_method "subbyte", for from_pretrained."""
    made = transformers.AutoConfig.from_pretrained(path, **arguments)
    # Nothing of the original: load_in_4bit alone would bring bitsandbytes. The file is read again.
    made.quantization_config = {"quant_method": METHOD}
    return made


def load(path: str | os.PathLike[str], *, model_class: Any = None, **arguments: Any) -> Any:
    """A model of transformers whose quantized layers are ours.

    `path` is a directory or a name in the Hugging Face cache, in any form that subbyte reads; the
    arguments are those of from_pretrained (dtype, device_map, attn_implementation).
    """
    chosen = model_class or transformers.AutoModelForCausalLM
    given = arguments.pop("config", None)
    return chosen.from_pretrained(path, config=config(path) if given is None else given,
                                  **arguments)
