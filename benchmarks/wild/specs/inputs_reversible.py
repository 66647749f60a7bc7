"""Inputs of the reversible Functions of several packages, which take blocks of two modules each."""

from __future__ import annotations

import importlib

import torch
from torch import Tensor, nn

Arguments = tuple[object, ...]


def revtorch(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    return (
        _numbers(seed, dtype, device),
        nn.ModuleList([_block("revtorch", seed, dtype, split_along_dim=2)]),
        False,
    )


def reformer(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    return (
        _numbers(seed, dtype, device),
        nn.ModuleList([_block("reformer_pytorch.reversible", seed, dtype)]),
        {"f_args": {}, "g_args": {}},
    )


def performer(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    return _several("performer_pytorch.reversible", seed, dtype, device)


def linformer(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    return _several("linformer.reversible", seed, dtype, device)


def linear_attention(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    return _several("linear_attention_transformer.reversible", seed, dtype, device)


def sinkhorn(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    return _several("sinkhorn_transformer.reversible", seed, dtype, device)


def h_transformer(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    return _several("h_transformer_1d.reversible", seed, dtype, device)


def memory_efficient(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    return _several("memory_efficient_attention_pytorch.reversible", seed, dtype, device)


def _several(module: str, seed: int, dtype: torch.dtype, device: str) -> Arguments:
    """With one dict of arguments per block."""
    return (
        _numbers(seed, dtype, device),
        nn.ModuleList([_block(module, seed, dtype)]),
        [{"f_args": {}, "g_args": {}}],
    )


def _block(module: str, seed: int, dtype: torch.dtype, **more: int) -> nn.Module:
    torch.manual_seed(seed)
    f, g = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Sequential(nn.Linear(2, 2), nn.Sigmoid())
    block: nn.Module = importlib.import_module(module).ReversibleBlock(f, g, **more)
    return block.to(dtype)


def _numbers(seed: int, dtype: torch.dtype, device: str) -> Tensor:
    return torch.randn(1, 2, 4, generator=torch.Generator().manual_seed(seed), dtype=dtype).to(
        device
    )
