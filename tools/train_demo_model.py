#!/usr/bin/env python3
"""Train subbyte's embedded demo model, a small Qwen3-architecture language model.

The script makes a Hugging Face directory from plain text. It trains a byte-level BPE
tokenizer of the Qwen kind; then larger "teacher" models, used only as soft targets; then
the demo model (AdamW, warm-up and cosine, dropout; cross-entropy mixed with the teachers'
averaged distribution). The last part of the run computes with 4-bit fake-quantized linear
weights (straight-through), so that a later 4-bit quantization costs little. It measures
validation perplexity (protocol: see `evaluate`) with bf16 and with 4-bit weights.

Needs PyTorch, tokenizers and safetensors; sized for one data-centre GPU. Run as

    python3 tools/train_demo_model.py --train train.txt.xz --valid valid.txt --out demo-bf16

The defaults are the settings of the shipped model. The seed is fixed; parallel reductions
on a GPU may still round differently, so expect the same quality rather than the same bits.
"""
from __future__ import annotations

import argparse
import json
import lzma
import math
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Iterator

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, trainers
from torch import Tensor, nn

VOCAB = 4096
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # the last three ids
EOS = VOCAB - len(SPECIALS)
GROUP = 128  # quantization group along a linear layer's input dimension
QWEN_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
              r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYLINE = re.compile(r"^(?=By (?:[A-Z][A-Za-z.]* ?)+(?:\[.*\])?$)", re.M)  # a book begins


@dataclass(frozen=True)
class Recipe:
    """Optimization settings of one training run."""
    epochs: int
    lr: float
    weight_decay: float
    dropout: float
    batch: int
    context: int
    qat_fraction: float = 0.0
    distill: float = 0.0  # weight of the teachers' distribution in the loss
    warmup: float = 0.03  # fraction of all steps
    final_lr: float = 0.02  # fraction of the peak learning rate


def make_config(arch: str) -> dict:
    """Hugging Face config.json of a model shape; the model itself is built from it, too."""
    hidden, layers, heads, kv_heads, head_dim, inter = map(int, arch.split(","))
    return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False,
            "attention_dropout": 0.0, "bos_token_id": EOS, "eos_token_id": EOS,
            "head_dim": head_dim, "hidden_act": "silu", "hidden_size": hidden,
            "initializer_range": 0.02, "intermediate_size": inter, "max_window_layers": layers,
            "max_position_embeddings": 1024, "num_attention_heads": heads,
            "num_hidden_layers": layers, "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-6,
            "rope_scaling": None, "rope_theta": 10000.0, "sliding_window": None,
            "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True,
            "use_sliding_window": False, "vocab_size": VOCAB}


def read_text(path: Path) -> str:
    raw = path.read_bytes()
    return (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode("utf-8")


def train_tokenizer(text: str) -> Tokenizer:
    """Byte-level BPE with Qwen's normalizer and split; special tokens come last."""
    tok = Tokenizer(models.BPE(ignore_merges=False))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=EOS, initial_alphabet=alphabet,
                                  special_tokens=[], show_progress=False)
    tok.train_from_iterator(text.splitlines(keepends=True), trainer)
    tok.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SPECIALS])
    assert tok.get_vocab_size() == VOCAB and tok.token_to_id(SPECIALS[0]) == EOS
    return tok


def encode(tok: Tokenizer, text: str) -> Tensor:
    """Token ids of the books, each ended by <|endoftext|>."""
    books = [b for b in BYLINE.split(text) if b.strip()]
    ids = [i for e in tok.encode_batch(books) for i in [*e.ids, EOS]]
    return torch.tensor(ids, dtype=torch.long)


def fake_quant(w: Tensor) -> Tensor:
    """4-bit asymmetric min-max round-to-nearest in groups of 128, fp16 scales (AWQ form)."""
    g = w.reshape(-1, GROUP)
    lo, hi = g.amin(1, keepdim=True), g.amax(1, keepdim=True)
    scale = ((hi - lo) / 15).half().float().clamp_min(1e-7)
    zero = torch.round(-lo / scale).clamp(0, 15)
    q = (torch.round(g / scale) + zero).clamp(0, 15)
    return ((q - zero) * scale).view_as(w)


class Linear(nn.Linear):
    """Bias-free linear layer that can compute with fake-quantized weights."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, bias=False)
        self.fake = False

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight  # straight-through: the gradient goes to w unchanged
        return F.linear(x, w + (fake_quant(w) - w).detach() if self.fake else w)


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, True) + self.eps) * self.weight).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """NeoX-style rotary embedding: the two halves of a head form the pairs."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c: dict) -> None:
        super().__init__()
        self.head_dim, d, eps = c["head_dim"], c["hidden_size"], c["rms_norm_eps"]
        q_dim = c["num_attention_heads"] * self.head_dim
        kv_dim = c["num_key_value_heads"] * self.head_dim
        self.repeat = q_dim // kv_dim
        self.q_proj, self.k_proj = Linear(d, q_dim), Linear(d, kv_dim)
        self.v_proj, self.o_proj = Linear(d, kv_dim), Linear(q_dim, d)
        self.q_norm, self.k_norm = RMSNorm(self.head_dim, eps), RMSNorm(self.head_dim, eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
                   for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(self.q_norm(q), cos, sin), rotate(self.k_norm(k), cos, sin)
        k, v = (y.repeat_interleave(self.repeat, dim=1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, d: int, inter: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = Linear(d, inter), Linear(d, inter)
        self.down_proj = Linear(inter, d)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: dict, dropout: float) -> None:
        super().__init__()
        d, eps = c["hidden_size"], c["rms_norm_eps"]
        self.self_attn, self.mlp = Attention(c), MLP(d, c["intermediate_size"])
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(d, eps), RMSNorm(d, eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.dropout(self.self_attn(self.input_layernorm(x), cos, sin))
        return x + self.dropout(self.mlp(self.post_attention_layernorm(x)))


class Qwen3(nn.Module):
    """Module names equal the Hugging Face tensor names without their 'model.' prefix."""

    def __init__(self, config: dict, dropout: float) -> None:
        super().__init__()
        self.config, d, layers = config, config["hidden_size"], config["num_hidden_layers"]
        self.embed_tokens, self.dropout = nn.Embedding(VOCAB, d), nn.Dropout(dropout)
        self.layers = nn.ModuleList([Layer(config, dropout) for _ in range(layers)])
        self.norm, half = RMSNorm(d, config["rms_norm_eps"]), config["head_dim"] // 2
        frequency = config["rope_theta"] ** (-torch.arange(half).float() / half)
        angle = torch.outer(torch.arange(config["max_position_embeddings"]).float(), frequency)
        for name, table in (("cos", angle.cos()), ("sin", angle.sin())):
            self.register_buffer(name, table, persistent=False)
        for name, p in self.named_parameters():
            residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, ids: Tensor) -> Tensor:
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        x = self.dropout(self.embed_tokens(ids))
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)

    def set_fake_quant(self, on: bool) -> None:
        for m in self.modules():
            if isinstance(m, Linear):
                m.fake = on


@torch.no_grad()
def evaluate(model: Qwen3, ids: Tensor, token_bytes: Tensor, context: int) -> dict[str, float]:
    """Loss over consecutive, non-overlapping windows of `context` tokens.

    Each window starts without history, its first token is not scored, and an incomplete
    window at the end is left out. 'bytes' are the UTF-8 bytes of the scored tokens.
    """
    model.eval()
    rows, nll = ids[:len(ids) // context * context].view(-1, context), 0.0
    for part in rows.split(32):
        logits = model(part[:, :-1]).float().flatten(0, 1)
        nll += F.cross_entropy(logits, part[:, 1:].flatten(), reduction="sum").item()
    count, size = rows[:, 1:].numel(), int(token_bytes[rows[:, 1:]].sum())
    return {"loss": nll / count, "perplexity_per_token": math.exp(nll / count),
            "perplexity_per_byte": math.exp(nll / size),
            "bits_per_byte": nll / size / math.log(2), "tokens": count, "bytes": size}


def batches(ids: Tensor, r: Recipe, seed: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(epoch, inputs, targets); every epoch cuts the stream at a new random offset."""
    rng = torch.Generator().manual_seed(seed)
    for epoch in range(r.epochs):
        offset = int(torch.randint(r.context, (1,), generator=rng))
        n = (len(ids) - 1 - offset) // r.context
        order = torch.randperm(n, generator=rng).to(ids.device)
        x = ids[offset:offset + n * r.context].view(n, r.context)
        y = ids[offset + 1:offset + 1 + n * r.context].view(n, r.context)
        for pick in order[:n // r.batch * r.batch].view(-1, r.batch):
            yield epoch, x[pick], y[pick]


def learning_rate(step: int, steps: int, r: Recipe) -> float:
    warm = max(1, int(r.warmup * steps))
    cosine = 0.5 + 0.5 * math.cos(math.pi * max(0, step - warm) / max(1, steps - warm))
    return r.lr * min((step + 1) / warm, r.final_lr + (1 - r.final_lr) * cosine)


def objective(model: Qwen3, x: Tensor, y: Tensor, soft: Tensor | None, distill: float) -> Tensor:
    logp = F.log_softmax(model(x).float(), dim=-1)
    loss = F.nll_loss(logp.flatten(0, 1), y.flatten())
    if soft is None:
        return loss
    return (1 - distill) * loss - distill * (soft * logp).sum(-1).mean()


@torch.no_grad()
def soft_targets(teachers: list[Qwen3], x: Tensor) -> Tensor:
    return sum(F.softmax(t(x).float(), -1) for t in teachers) / len(teachers)


def train(name: str, arch: str, r: Recipe, teachers: list[Qwen3], data: Tensor,
          valid: Tensor, token_bytes: Tensor, seed: int) -> tuple[Qwen3, dict]:
    """A new model with the best weights (by validation loss) of its run, and the run's log."""
    torch.manual_seed(seed)
    device, began = data.device, time.time()
    model = Qwen3(make_config(arch), r.dropout).to(device)
    disable = device.type != "cuda"  # on a CPU, without compilation
    step_fn = torch.compile(objective, dynamic=False, disable=disable)
    soft_fn = torch.compile(soft_targets, dynamic=False, disable=disable)
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in model.parameters() if p.dim() == dim], "weight_decay": decay}
         for dim, decay in ((2, r.weight_decay), (1, 0.0))], betas=(0.9, 0.95), fused=not disable)
    steps = r.epochs * ((len(data) - 1 - r.context) // r.context // r.batch)
    qat_step = steps - int(r.qat_fraction * steps)
    best, best_state, history, losses, last_epoch = float("inf"), None, [], [], 0

    def checkpoint(epoch: int) -> None:
        nonlocal best, best_state
        loss = evaluate(model, valid, token_bytes, r.context)["loss"]
        history.append({"epoch": epoch, "train_loss": round(float(torch.stack(losses).mean()), 4),
                        "valid_loss": round(loss, 4), "seconds": round(time.time() - began, 1)})
        print(name, history[-1], flush=True)
        losses.clear()
        if loss < best:
            best = loss
            best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        model.train()

    model.train()
    for step, (epoch, x, y) in enumerate(batches(data, r, seed)):
        if epoch != last_epoch:
            checkpoint(epoch)
            last_epoch = epoch
        if step == qat_step:  # from here on, only 4-bit results compete for "best"
            model.set_fake_quant(True)
            best = float("inf")
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, r)
        with torch.autocast(device.type, torch.bfloat16):
            soft = soft_fn(teachers, x) if teachers else None
            loss = step_fn(model, x, y, soft, r.distill)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    checkpoint(r.epochs)
    model.load_state_dict(best_state)
    model.set_fake_quant(False)
    model.eval()
    return model, {"recipe": asdict(r), "config": model.config, "steps": steps,
                   "seconds": round(time.time() - began, 1), "history": history,
                   "parameters": sum(p.numel() for p in model.parameters())}


def write_model(out: Path, model: Qwen3) -> None:
    special = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    files = {
        "config": model.config,
        "generation_config": {"bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": EOS,
                              "do_sample": True, "temperature": 0.7, "top_p": 0.9},
        "tokenizer_config": {
            "tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False, "add_bos_token": False,
            "added_tokens_decoder": {str(EOS + i): {"content": s, **special, "special": True}
                                     for i, s in enumerate(SPECIALS)},
            "bos_token": None, "eos_token": SPECIALS[0], "pad_token": SPECIALS[0],
            "unk_token": None, "additional_special_tokens": SPECIALS[1:], "errors": "replace",
            "clean_up_tokenization_spaces": False, "split_special_tokens": False,
            "model_max_length": model.config["max_position_embeddings"]}}
    for name, value in files.items():
        (out / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n")
    tensors = {f"model.{k}": v.to("cpu", torch.bfloat16).contiguous()
               for k, v in model.state_dict().items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    shape = "hidden,layers,heads,kv_heads,head_dim,intermediate"
    p.add_argument("--train", type=Path, required=True, help="training text, plain or .xz")
    p.add_argument("--valid", type=Path, required=True, help="validation text")
    p.add_argument("--out", type=Path, required=True, help="directory to write")
    for name, default, text in (
            ("seed", 1, "seed of the demo model; the teachers use the next ones"),
            ("context", 512, "tokens per training window"), ("batch", 32, "windows per step"),
            ("arch", "384,8,6,2,64,896", shape), ("epochs", 36, "passes over the text"),
            ("lr", 2e-3, "peak learning rate"), ("weight-decay", 0.5, "on matrices only"),
            ("dropout", 0.05, "on the embeddings and the residual branches"),
            ("qat-fraction", 0.15, "last part of the steps, with 4-bit fake-quantized weights"),
            ("teachers", 3, "number of teacher models"),
            ("distill", 0.9, "weight of the teachers' distribution in the loss"),
            ("teacher-arch", "768,8,12,4,64,2048", shape), ("teacher-epochs", 10, "passes"),
            ("teacher-lr", 1e-3, "peak learning rate"), ("teacher-weight-decay", 2.0, "matrices"),
            ("teacher-dropout", 0.3, "as --dropout")):
        p.add_argument(f"--{name}", type=type(default), default=default, help=text)
    return p.parse_args()


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_text, valid_text = read_text(args.train), read_text(args.valid)
    tok = train_tokenizer(train_text)
    tok.save(str(args.out / "tokenizer.json"))
    data = encode(tok, train_text).to(device)
    valid = torch.tensor(tok.encode(valid_text).ids, device=device)
    token_bytes = torch.tensor([len(tok.id_to_token(i)) for i in range(VOCAB)], device=device)
    log = {"command": sys.argv, "train_tokens": len(data), "train_bytes": len(train_text.encode()),
           "valid_tokens": len(valid), "valid_bytes": len(valid_text.encode())}
    print(len(data), "training tokens,", len(valid), "validation tokens", flush=True)
    shared = (data, valid, token_bytes)
    recipe = Recipe(args.teacher_epochs, args.teacher_lr, args.teacher_weight_decay,
                    args.teacher_dropout, args.batch, args.context)
    runs = [train("teacher", args.teacher_arch, recipe, [], *shared, args.seed + 1 + i)
            for i in range(args.teachers)]
    teachers, log["teachers"] = [model for model, _ in runs], [result for _, result in runs]
    recipe = Recipe(args.epochs, args.lr, args.weight_decay, args.dropout, args.batch,
                    args.context, args.qat_fraction, args.distill)
    model, log["model"] = train("model", args.arch, recipe, teachers, *shared, args.seed)
    with torch.no_grad():  # measure the weights as stored, in float32 arithmetic
        for p in model.parameters():
            p.copy_(p.bfloat16().float())
    for key, fake in (("valid_bf16_weights", False), ("valid_4bit_weights", True)):
        model.set_fake_quant(fake)
        log[key] = evaluate(model, valid, token_bytes, args.context)
    write_model(args.out, model)
    (args.out / "training_log.json").write_text(json.dumps(log, indent=2) + "\n")
    print(json.dumps({k: v for k, v in log.items() if k.startswith("valid_")}, indent=1))


if __name__ == "__main__":
    main()
