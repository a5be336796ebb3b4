"""Gradients of a mixture of experts: of the tokens, of the router's numbers and of biases.

An expert's matrices become numbers one expert after the other, and its activations are computed
once more for the tokens that chose it.
"""

from __future__ import annotations

import torch

from ._backward import Call, clamped_gate, number_of, ops, through_clamped_gate


def matrix_of(w: object, prefix: str, expert: int, cols: int,
              number: torch.dtype) -> torch.Tensor:
    """The weights of an expert [outputs, cols] with their factors."""
    def part(name: str) -> torch.Tensor | None:
        whole = getattr(w, f"{prefix}_{name}")
        return None if whole is None else whole[expert]

    matrix = ops.dequantize(part("codes"), part("scales"), part("zeros"),
                            getattr(w, f"{prefix}_format"), cols=cols, dtype=torch.float32)
    factor = part("factors")
    if factor is not None:  # one, or those of gate and up
        factor = factor.to(matrix).reshape(-1, 1)
        matrix *= factor.repeat_interleave(matrix.shape[0] // factor.shape[0], 0)
    return matrix.to(number)


def mixture(call: Call, weights: torch.Tensor, chosen: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradients of x, of the weights of chosen experts, and of biases, in f32."""
    w, grad, number = call.given, call.rows, number_of(call.grad)
    clamp = (w.in_turns, w.alpha, float("inf") if w.limit is None else w.limit, w.up_offset)
    inner = w.gate_up_codes.shape[1] // 2
    found = {"x": torch.zeros(grad.shape[0], call.cols, device=grad.device),
             "weights": torch.zeros(weights.shape, device=grad.device)}
    for prefix in ("gate_up", "down"):
        bias = getattr(w, f"{prefix}_bias")
        if bias is not None:
            found[f"{prefix}_bias"] = torch.zeros(bias.shape, device=grad.device)
    for e in chosen.unique().tolist():
        token, place = torch.where(chosen == e)
        if not 0 <= e < w.gate_up_codes.shape[0]:
            continue  # on a GPU, where its tokens are NaN
        gate_up = matrix_of(w, "gate_up", e, call.cols, number)
        down = matrix_of(w, "down", e, inner, number)
        sums = (w.x[token].to(number) @ gate_up.T).float()
        if w.gate_up_bias is not None:
            sums += w.gate_up_bias[e].float()
        hidden, of_token = clamped_gate(sums, *clamp), grad[token].float()
        y = (hidden.to(number) @ down.T).float()
        if w.down_bias is not None:
            y += w.down_bias[e].float()
        found["weights"][token, place] = (of_token * y).sum(-1)
        of_y = of_token * weights[token, place, None].float()
        of_sums = through_clamped_gate((of_y.to(number) @ down).float(), sums, *clamp)
        found["x"].index_add_(0, token, (of_sums.to(number) @ gate_up).float())
        if w.gate_up_bias is not None:
            found["gate_up_bias"][e] = of_sums.sum(0)
        if w.down_bias is not None:
            found["down_bias"][e] = of_y.sum(0)
    return found


def routed_experts(call: Call) -> dict[str, torch.Tensor]:
    found = mixture(call, call.given.expert_weights, call.given.expert_ids)
    return {**found, "expert_weights": found["weights"]}


def experts(call: Call) -> dict[str, torch.Tensor]:
    """The router's softmax is over the chosen experts, or over all."""
    w = call.given
    logits = w.router_logits.float()
    # Of equal logits the first expert is chosen.
    chosen = logits.sort(stable=True, dim=-1, descending=True).indices[:, :w.top_k]
    considered = logits if w.of_all else logits.gather(-1, chosen)
    shares = torch.softmax(considered, -1)
    weights = shares.gather(-1, chosen) if w.of_all else shares
    found = mixture(call, weights, chosen)
    of_shares = found["weights"]
    if w.of_all:
        of_shares = torch.zeros_like(logits).scatter_(-1, chosen, of_shares)
    of_considered = shares * (of_shares - (shares * of_shares).sum(-1, keepdim=True))
    if not w.of_all:
        of_considered = torch.zeros_like(logits).scatter_(-1, chosen, of_considered)
    return {**found, "router_logits": of_considered}
