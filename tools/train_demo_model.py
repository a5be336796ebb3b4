#!/usr/bin/env python3
"""Train subbyte's embedded demo model: a small Qwen3-architecture language model.

The script does everything from plain text to a Hugging Face directory:

1. trains a byte-level BPE tokenizer of the Qwen kind (tokenizer.json);
2. optionally trains larger "teacher" models, used only as soft targets;
3. trains the demo model (AdamW, warm-up + cosine, dropout), by cross-entropy mixed
   with the teachers' averaged distribution; the last part of the run computes with
   4-bit fake-quantized linear weights (straight-through), so that the later
   round-to-nearest 4-bit quantization costs almost nothing;
4. measures validation perplexity (protocol: see `evaluate`) with the bf16 weights
   and with 4-bit weights, and writes config.json, generation_config.json,
   tokenizer.json, tokenizer_config.json, model.safetensors and training_log.json.

Needs PyTorch, tokenizers and safetensors; sized for one data-centre GPU. Run as

    python3 tools/train_demo_model.py --train train.txt.xz --valid valid.txt --out demo-bf16

The defaults are the settings of the shipped model. The seed is fixed; parallel
reductions on a GPU still round differently from run to run, so a second run gives a
model of the same quality, not the same bits.
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
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYLINE = re.compile(r"^(?=By (?:[A-Z][A-Za-z.]* ?)+(?:\[.*\])?$)", re.M)  # a book begins
PROMPTS = ["It was a dark and stormy night", "The old man looked at",
           "She opened the letter and"]


@dataclass(frozen=True)
class Arch:
    """Shape of a Qwen3 model; --arch lists the first six fields."""
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inter: int
    rope_theta: float = 10000.0
    eps: float = 1e-6
    max_positions: int = 1024


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


# ---------------------------------------------------------------- text and tokenizer


def read_text(path: Path) -> str:
    raw = path.read_bytes()
    return (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode("utf-8")


def train_tokenizer(text: str) -> Tokenizer:
    """Byte-level BPE with Qwen's normalizer and split; special tokens come last."""
    tok = Tokenizer(models.BPE(ignore_merges=False))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
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


# ---------------------------------------------------------------- model


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
        w = self.weight
        if self.fake:  # straight-through: the gradient goes to w unchanged
            w = w + (fake_quant(w) - w).detach()
        return F.linear(x, w)


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """NeoX-style rotary embedding: the two halves of a head form the pairs."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, a: Arch) -> None:
        super().__init__()
        self.a = a
        self.q_proj = Linear(a.hidden, a.heads * a.head_dim)
        self.k_proj = Linear(a.hidden, a.kv_heads * a.head_dim)
        self.v_proj = Linear(a.hidden, a.kv_heads * a.head_dim)
        self.o_proj = Linear(a.heads * a.head_dim, a.hidden)
        self.q_norm, self.k_norm = RMSNorm(a.head_dim, a.eps), RMSNorm(a.head_dim, a.eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, _ = x.shape
        heads = lambda y: y.view(b, t, -1, self.a.head_dim).transpose(1, 2)
        q = rotate(self.q_norm(heads(self.q_proj(x))), cos, sin)
        k = rotate(self.k_norm(heads(self.k_proj(x))), cos, sin)
        repeat = self.a.heads // self.a.kv_heads
        k, v = (y.repeat_interleave(repeat, dim=1) for y in (k, heads(self.v_proj(x))))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, a: Arch) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = Linear(a.hidden, a.inter), Linear(a.hidden, a.inter)
        self.down_proj = Linear(a.inter, a.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, a: Arch, dropout: float) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(a), MLP(a)
        self.input_layernorm = RMSNorm(a.hidden, a.eps)
        self.post_attention_layernorm = RMSNorm(a.hidden, a.eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.dropout(self.self_attn(self.input_layernorm(x), cos, sin))
        return x + self.dropout(self.mlp(self.post_attention_layernorm(x)))


class Qwen3(nn.Module):
    """Module names equal the Hugging Face tensor names without their 'model.' prefix."""

    def __init__(self, a: Arch, dropout: float = 0.0) -> None:
        super().__init__()
        self.arch = a
        self.embed_tokens = nn.Embedding(VOCAB, a.hidden)
        self.layers = nn.ModuleList([Layer(a, dropout) for _ in range(a.layers)])
        self.norm, self.dropout = RMSNorm(a.hidden, a.eps), nn.Dropout(dropout)
        angle = torch.outer(torch.arange(a.max_positions).float(), a.rope_theta **
                            (-torch.arange(0, a.head_dim, 2).float() / a.head_dim))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * a.layers) if residual else 1.0))

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


# ---------------------------------------------------------------- evaluation


@torch.no_grad()
def evaluate(model: Qwen3, ids: Tensor, token_bytes: Tensor, context: int) -> dict[str, float]:
    """Loss over consecutive, non-overlapping windows of `context` tokens.

    The first token of each window is not scored, the last window may be shorter.
    'bytes' counts the UTF-8 bytes of the scored tokens only.
    """
    model.eval()
    nll, count, size = 0.0, 0, 0
    for chunk in ids.split(32 * context):
        full = len(chunk) // context * context
        for rows in (chunk[:full].view(-1, context), chunk[full:].view(1, -1)):
            if rows.shape[0] == 0 or rows.shape[1] < 2:
                continue
            logits, target = model(rows[:, :-1]).float(), rows[:, 1:].reshape(-1)
            nll += F.cross_entropy(logits.reshape(-1, VOCAB), target, reduction="sum").item()
            count, size = count + len(target), size + int(token_bytes[target].sum())
    return {"loss": nll / count, "perplexity_per_token": math.exp(nll / count),
            "perplexity_per_byte": math.exp(nll / size),
            "bits_per_byte": nll / size / math.log(2), "tokens": count, "bytes": size}


@torch.no_grad()
def generate(model: Qwen3, ids: list[int], count: int, temperature: float, seed: int) -> list[int]:
    model.eval()
    device = model.embed_tokens.weight.device
    rng = torch.Generator(device).manual_seed(seed)
    for _ in range(count):
        logits = model(torch.tensor([ids], device=device))[0, -1].float()
        if temperature > 0:
            pick = torch.multinomial(F.softmax(logits / temperature, -1), 1, generator=rng)
        else:
            pick = logits.argmax()
        ids = [*ids, int(pick)]
    return ids


# ---------------------------------------------------------------- training


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
    if step < warm:
        return r.lr * (step + 1) / warm
    cosine = 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
    return r.lr * (r.final_lr + (1 - r.final_lr) * cosine)


def make_optimizer(model: Qwen3, r: Recipe) -> torch.optim.Optimizer:
    params = list(model.parameters())
    groups = [{"params": [p for p in params if p.dim() == 2], "weight_decay": r.weight_decay},
              {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=r.lr, betas=(0.9, 0.95), fused=params[0].is_cuda)


def objective(model: Qwen3, x: Tensor, y: Tensor, soft: Tensor | None, distill: float) -> Tensor:
    logp = F.log_softmax(model(x).float(), dim=-1)
    loss = F.nll_loss(logp.flatten(0, 1), y.flatten())
    if soft is None:
        return loss
    return (1 - distill) * loss - distill * (soft.float() * logp).sum(-1).mean()


@torch.no_grad()
def soft_targets(teachers: list[Qwen3], x: Tensor) -> Tensor:
    return sum(F.softmax(t(x).float(), -1) for t in teachers) / len(teachers)


def train(name: str, model: Qwen3, teachers: list[Qwen3], r: Recipe, data: Tensor,
          valid: Tensor, token_bytes: Tensor, seed: int) -> dict:
    """Train in place; leaves the best weights (by validation loss) in the model."""
    device, began = data.device, time.time()
    compiling = device.type == "cuda"
    step_fn = torch.compile(objective, dynamic=False) if compiling else objective
    soft_fn = torch.compile(soft_targets, dynamic=False) if compiling else soft_targets
    optimizer = make_optimizer(model, r)
    steps = r.epochs * ((len(data) - 1 - r.context) // r.context // r.batch)
    qat_step = steps - int(r.qat_fraction * steps)
    best, best_state, history = float("inf"), None, []
    total, since, last_epoch = torch.zeros((), device=device), 0, 0

    def checkpoint(epoch: int) -> None:
        nonlocal best, best_state, total, since
        loss = evaluate(model, valid, token_bytes, r.context)["loss"]
        history.append({"epoch": epoch, "train_loss": round(float(total) / max(1, since), 4),
                        "valid_loss": round(loss, 4), "seconds": round(time.time() - began, 1)})
        print(name, history[-1], flush=True)
        total, since = torch.zeros((), device=device), 0
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
        total, since = total + loss.detach(), since + 1
    checkpoint(r.epochs)
    model.load_state_dict(best_state)
    model.set_fake_quant(False)
    model.eval()
    return {"recipe": asdict(r), "arch": asdict(model.arch), "steps": steps,
            "seconds": round(time.time() - began, 1), "history": history,
            "parameters": sum(p.numel() for p in model.parameters())}


# ---------------------------------------------------------------- output


def write_model(out: Path, model: Qwen3) -> None:
    a = model.arch
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
        "attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu",
        "hidden_size": a.hidden, "intermediate_size": a.inter, "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads, "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim, "rms_norm_eps": a.eps, "rope_theta": a.rope_theta,
        "rope_scaling": None, "max_position_embeddings": a.max_positions,
        "max_window_layers": a.layers, "sliding_window": None, "use_sliding_window": False,
        "tie_word_embeddings": True, "initializer_range": 0.02, "vocab_size": VOCAB,
        "bos_token_id": EOS, "eos_token_id": EOS, "torch_dtype": "bfloat16", "use_cache": True,
    }
    generation = {"bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": EOS,
                  "do_sample": True, "temperature": 0.7, "top_p": 0.9}
    special = {str(EOS + i): {"content": s, "lstrip": False, "normalized": False, "rstrip": False,
                              "single_word": False, "special": True}
               for i, s in enumerate(SPECIALS)}
    tokenizer = {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False,
                 "add_bos_token": False, "added_tokens_decoder": special, "bos_token": None,
                 "eos_token": SPECIALS[0], "pad_token": SPECIALS[0], "unk_token": None,
                 "additional_special_tokens": SPECIALS[1:], "errors": "replace",
                 "clean_up_tokenization_spaces": False, "split_special_tokens": False,
                 "model_max_length": a.max_positions}
    for name, value in (("config", config), ("generation_config", generation),
                        ("tokenizer_config", tokenizer)):
        (out / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n")
    tensors = {f"model.{k}": v.to("cpu", torch.bfloat16).contiguous()
               for k, v in model.state_dict().items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def final_report(model: Qwen3, tok: Tokenizer, valid: Tensor, token_bytes: Tensor,
                 context: int) -> dict:
    """Perplexities in float32 arithmetic of the weights as stored, and samples at 4 bits."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16().float())
    report = {"valid_bf16_weights": evaluate(model, valid, token_bytes, context)}
    model.set_fake_quant(True)
    report["valid_4bit_weights"] = evaluate(model, valid, token_bytes, context)
    report["samples_4bit"] = [
        {"prompt": p, "temperature": t,
         "text": tok.decode(generate(model, tok.encode(p).ids, 60, t, seed=1))}
        for p in PROMPTS for t in (0.0, 0.7)]
    model.set_fake_quant(False)
    return report


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--train", type=Path, required=True, help="training text, plain or .xz")
    p.add_argument("--valid", type=Path, required=True, help="validation text")
    p.add_argument("--out", type=Path, required=True, help="directory to write")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--context", type=int, default=512, help="tokens per training window")
    p.add_argument("--batch", type=int, default=32, help="windows per step")
    shape = "hidden,layers,heads,kv_heads,head_dim,intermediate"
    p.add_argument("--arch", default="384,8,6,2,64,896", help=shape)
    p.add_argument("--epochs", type=int, default=24)
    p.add_argument("--lr", type=float, default=1.5e-3)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--qat-fraction", type=float, default=0.15,
                   help="last part of the steps, computed with 4-bit fake-quantized weights")
    p.add_argument("--teachers", type=int, default=0, help="number of teacher models")
    p.add_argument("--distill", type=float, default=0.5, help="weight of the teachers in the loss")
    p.add_argument("--teacher-arch", default="768,8,12,4,64,2048", help=shape)
    p.add_argument("--teacher-epochs", type=int, default=20)
    p.add_argument("--teacher-lr", type=float, default=1e-3)
    p.add_argument("--teacher-weight-decay", type=float, default=0.5)
    p.add_argument("--teacher-dropout", type=float, default=0.3)
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
           "valid_tokens": len(valid), "valid_bytes": len(valid_text.encode()), "teachers": []}
    print(f"{log['train_tokens']} training tokens, {log['valid_tokens']} validation tokens", flush=True)

    def run(name: str, arch: str, r: Recipe, seed: int, teachers: list[Qwen3]) -> tuple[Qwen3, dict]:
        torch.manual_seed(seed)
        model = Qwen3(Arch(*map(int, arch.split(","))), r.dropout).to(device)
        return model, train(name, model, teachers, r, data, valid, token_bytes, seed)

    teachers = []
    teacher_recipe = Recipe(args.teacher_epochs, args.teacher_lr, args.teacher_weight_decay,
                            args.teacher_dropout, args.batch, args.context)
    for i in range(args.teachers):
        model, result = run(f"teacher{i}", args.teacher_arch, teacher_recipe, args.seed + 1 + i, [])
        teachers.append(model)
        log["teachers"].append(result)
    recipe = Recipe(args.epochs, args.lr, args.weight_decay, args.dropout, args.batch,
                    args.context, args.qat_fraction, args.distill if teachers else 0.0)
    model, log["model"] = run("model", args.arch, recipe, args.seed, teachers)
    log |= final_report(model, tok, valid, token_bytes, args.context)
    write_model(args.out, model)
    (args.out / "training_log.json").write_text(json.dumps(log, indent=2) + "\n")
    print(json.dumps({k: v for k, v in log.items() if k.startswith(("valid_", "samples"))}, indent=1))


if __name__ == "__main__":
    main()
