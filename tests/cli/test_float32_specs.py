"""A spec of softmax and RMSNorm of [5, 33] in float32, as a user writes it: decided at default
tolerances, and a wrong one is found."""

from __future__ import annotations

SPEC = """
gradverify: 1
defaults: {dtype: float32}
checks:
  - {function: fused:Softmax, inputs: {x: {shape: [5, 33]}}}
  - {function: fused:Norm, inputs: {x: {shape: [5, 33]}}}
  - {function: fused:WrongNorm, inputs: {x: {shape: [5, 33]}}}
"""
FUSED = """
import torch
from torch.autograd import Function


class Softmax(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.float().softmax(-1)
        ctx.save_for_backward(y)
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return (y * (g.float() - (g.float() * y).sum(-1, keepdim=True))).to(g.dtype)


class Norm(Function):
    factor = 1.0

    @classmethod
    def forward(cls, ctx, x):
        u = x.float()
        ctx.save_for_backward(u)
        return (u * (u.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype)

    @classmethod
    def backward(cls, ctx, g):
        u, = ctx.saved_tensors
        r = (u.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        return (r * g.float() - cls.factor * u * r**3 * (g.float() * u).mean(-1, keepdim=True)).to(g.dtype)


class WrongNorm(Norm):
    factor = 1.02
"""


def test_softmax_and_rms_norm_that_compute_in_float32_are_decided_at_default_tolerances(
    gradverify, folder
):
    (folder / "fused.py").write_text(FUSED)
    (folder / "s.yaml").write_text(SPEC)
    code, out, _ = gradverify("check", "s.yaml", "--no-isolate", "--select", "GV101")
    verdicts = [
        line.split()[:2]
        for line in out.splitlines()
        if line.startswith(("PASS", "FAIL", "UNDECIDED"))
    ]
    assert (code, verdicts) == (1, [["PASS", "Softmax"], ["PASS", "Norm"], ["FAIL", "WrongNorm"]])
