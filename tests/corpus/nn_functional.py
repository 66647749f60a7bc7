"""Every function of torch.nn.functional that computes, at a small smooth point: groups as its documentation has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from corpus.functions import Sample, between, normal, off_zero, spread

Group = tuple[Sample, ...]
Make = Callable[[], Tensor | tuple[Tensor, ...]]


def whole(*numbers: int) -> Tensor:
    return torch.tensor(numbers)


def signs() -> Tensor:
    return torch.tensor([1.0, -1.0], dtype=torch.float64)


def of(name: str, make: Make, *fixed: Any, **keywords: Any) -> Sample:
    """`F.name(*make(), *fixed, **keywords)`."""
    function = getattr(F, name)

    def made() -> tuple[Tensor, ...]:
        given = make()
        return given if isinstance(given, tuple) else (given,)

    return Sample(name, lambda *tensors: function(*tensors, *fixed, **keywords), made)



def smooth(names: str, make: Make) -> Group:
    return tuple(of(name, make) for name in names.split())


POINTWISE = (
    *smooth("elu relu leaky_relu selu celu softsign rrelu relu6", off_zero),
    *smooth("gelu silu mish softplus logsigmoid tanhshrink tanh sigmoid", normal),
    *smooth("hardtanh hardsigmoid hardswish", lambda: between(-0.9, 0.9)),
    *(Sample(name, lambda x, name=name: getattr(F, name)(x * 1), lambda: (off_zero(),))
      for name in ("elu_", "relu_", "leaky_relu_", "selu_", "celu_", "rrelu_")),
    Sample("hardtanh_", lambda x: F.hardtanh_(x * 1), lambda: (between(-0.9, 0.9),)),
    Sample("threshold_", lambda x: F.threshold_(x * 1, 0.0, 0.5), lambda: (off_zero(),)),
    of("threshold", off_zero, 0.0, 0.5), of("hardshrink", lambda: between(0.6, 2.0)), of("softshrink", lambda: between(0.6, 2.0)),
    of("prelu", lambda: (off_zero(), between(0.1, 0.4, 3, seed=1))), of("glu", lambda: normal(2, 4)),
    *(of(name, normal, dim=1) for name in ("softmax", "softmin", "log_softmax", "gumbel_softmax")))

NORMALISATION = (
    of("batch_norm", lambda: normal(4, 2), None, None, training=True), of("instance_norm", lambda: normal(1, 2, 4)),
    Sample("layer_norm", lambda x, w, b: F.layer_norm(x, (3,), w, b), lambda: (normal(), normal(3, seed=1), normal(3, seed=2))),
    Sample("rms_norm", lambda x, w: F.rms_norm(x, (3,), w), lambda: (normal(), normal(3, seed=1))),
    of("group_norm", lambda: normal(1, 4, 2), 2), of("local_response_norm", lambda: normal(1, 3, 2), 2), of("normalize", normal))

LINEAR = (
    of("linear", lambda: (normal(), normal(2, 3, seed=1), normal(2, seed=2))),
    of("bilinear", lambda: (normal(2, 2), normal(2, 2, seed=1), normal(2, 2, 2, seed=2))),
    Sample("embedding", lambda table, index: F.embedding(index, table), lambda: (normal(4, 2), whole(3, 0, 3))),
    Sample("embedding_bag", lambda table, index: F.embedding_bag(index.reshape(2, 2), table), lambda: (normal(4, 2), whole(3, 0, 3, 1))))

DROPOUT = (
    *(of(name, lambda: normal(2, 2, 2), 0.5) for name in ("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d")),
    of("dropout2d", lambda: normal(2, 3, 1, 2), 0.5), of("dropout3d", lambda: normal(2, 3, 1, 1, 2), 0.5))

DISTANCE = (of("cosine_similarity", lambda: (normal(), normal(seed=1))), of("pairwise_distance", lambda: (normal(), normal(seed=1))),
            of("pdist", lambda: normal(3, 2)))

LOSSES = (
    *(of(name, lambda: (normal(), normal(seed=1) + 0.1)) for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")),
    of("kl_div", lambda: (normal(), between(0.2, 0.9, seed=1)), reduction="sum"),
    of("binary_cross_entropy", lambda: (between(0.2, 0.8), between(0.2, 0.8, seed=1))),
    of("binary_cross_entropy_with_logits", lambda: (normal(), between(0.2, 0.8, seed=1))),
    of("poisson_nll_loss", lambda: (normal(), between(0.2, 2.0, seed=1))),
    of("gaussian_nll_loss", lambda: (normal(), normal(seed=1), between(0.5, 2.0, seed=2))),
    *(Sample(name, lambda x, target, name=name: getattr(F, name)(x.log_softmax(1), target), lambda: (normal(), whole(2, 0)))
      for name in ("nll_loss", "cross_entropy", "multi_margin_loss")),
    Sample("multilabel_margin_loss", lambda x, target: F.multilabel_margin_loss(x, target.reshape(2, 3)),
           lambda: (spread(), whole(2, 0, -1, 1, -1, -1))),
    Sample("multilabel_soft_margin_loss", lambda x: F.multilabel_soft_margin_loss(x, (x.detach() > 0).to(x)), lambda: (off_zero(),)),
    Sample("soft_margin_loss", lambda x: F.soft_margin_loss(x, torch.ones_like(x)), lambda: (normal(),)),
    Sample("hinge_embedding_loss", lambda x: F.hinge_embedding_loss(x, signs()), lambda: (between(0.2, 0.8, 2),)),
    Sample("margin_ranking_loss", lambda x, y: F.margin_ranking_loss(x, y, signs(), 5.0), lambda: (normal(2), normal(2, seed=1))),
    Sample("cosine_embedding_loss", lambda x, y: F.cosine_embedding_loss(x, y, signs(), -0.9), lambda: (normal(), normal(seed=1))),
    of("triplet_margin_loss", lambda: (normal(), normal(seed=1), normal(seed=2)), 5.0),
    Sample("triplet_margin_with_distance_loss", lambda a, p, n: F.triplet_margin_with_distance_loss(a, p, n, margin=5.0),
           lambda: (normal(), normal(seed=1), normal(seed=2))),
    Sample("ctc_loss", lambda x: F.ctc_loss(x.log_softmax(2), whole(1, 2).reshape(1, 2), (4,), (2,)), lambda: (normal(4, 1, 3),)),
    Sample("linear_cross_entropy", lambda x, w, target: F.linear_cross_entropy(x, w, target), lambda: (normal(), normal(4, 3, seed=1), whole(2, 0))))

CONVOLUTION = (
    of("conv1d", lambda: (normal(1, 2, 5), normal(2, 2, 3, seed=1), normal(2, seed=2))),
    of("conv2d", lambda: (normal(1, 1, 3, 3), normal(1, 1, 2, 2, seed=1)), padding=1),
    of("conv3d", lambda: (normal(1, 1, 2, 2, 2), normal(1, 1, 1, 2, 2, seed=1))),
    of("conv_transpose1d", lambda: (normal(1, 2, 3), normal(2, 1, 2, seed=1))),
    of("conv_transpose2d", lambda: (normal(1, 1, 2, 2), normal(1, 1, 2, 2, seed=1)), stride=2),
    of("conv_transpose3d", lambda: (normal(1, 1, 1, 2, 2), normal(1, 1, 1, 2, 2, seed=1))),
    of("conv_tbc", lambda: (normal(3, 1, 2), normal(2, 2, 2, seed=1), normal(2, seed=2))),
    of("unfold", lambda: normal(1, 1, 3, 3), (2, 2)), of("fold", lambda: normal(1, 4, 2), (2, 3), (2, 2)))

POOLING = (
    of("avg_pool1d", lambda: normal(1, 2, 4), 2), of("avg_pool2d", lambda: normal(1, 1, 4, 2), 2), of("avg_pool3d", lambda: normal(1, 1, 2, 2, 2), 2),
    of("max_pool1d", lambda: spread(1, 2, 4), 2), of("max_pool2d", lambda: spread(1, 1, 4, 2), 2), of("max_pool3d", lambda: spread(1, 1, 2, 2, 2), 2),
    of("max_pool1d_with_indices", lambda: spread(1, 2, 4), 2), of("max_pool2d_with_indices", lambda: spread(1, 1, 4, 2), 2),
    of("max_pool3d_with_indices", lambda: spread(1, 1, 2, 2, 2), 2),
    *(of(f"adaptive_{kind}_pool1d{more}", lambda: spread(1, 2, 5), 2) for kind, more in (("avg", ""), ("max", ""), ("max", "_with_indices"))),
    *(of(f"adaptive_{kind}_pool2d{more}", lambda: spread(1, 1, 3, 3), 2) for kind, more in (("avg", ""), ("max", ""), ("max", "_with_indices"))),
    *(of(f"adaptive_{kind}_pool3d{more}", lambda: spread(1, 1, 2, 2, 3), 2) for kind, more in (("avg", ""), ("max", ""), ("max", "_with_indices"))),
    *(of(f"lp_pool{n}d", lambda n=n: between(0.2, 2.0, 1, 1, *[2] * n), 2.0, 2) for n in (1, 2, 3)),
    *(of(f"fractional_max_pool2d{more}", lambda: spread(1, 1, 4, 4), 2, output_size=2) for more in ("", "_with_indices")),
    *(of(f"fractional_max_pool3d{more}", lambda: spread(1, 1, 4, 4, 4), 2, output_size=2) for more in ("", "_with_indices")),
    Sample("max_unpool1d", lambda x, i: F.max_unpool1d(x, i.reshape(1, 1, 2), 2), lambda: (normal(1, 1, 2), whole(0, 3))),
    Sample("max_unpool2d", lambda x, i: F.max_unpool2d(x, i.reshape(1, 1, 1, 2), 2), lambda: (normal(1, 1, 1, 2), whole(0, 3))),
    Sample("max_unpool3d", lambda x, i: F.max_unpool3d(x, i.reshape(1, 1, 1, 1, 2), 2), lambda: (normal(1, 1, 1, 1, 2), whole(0, 3))))

VISION = (
    of("pad", lambda: normal(1, 2, 3), (1, 1), mode="reflect"), of("interpolate", lambda: normal(1, 2, 3), scale_factor=2, mode="linear"),
    of("upsample", lambda: normal(1, 1, 2), scale_factor=2), of("upsample_nearest", lambda: normal(1, 1, 2), scale_factor=2),
    of("upsample_bilinear", lambda: normal(1, 1, 2, 2), scale_factor=2), of("pixel_shuffle", lambda: normal(1, 4, 1, 2), 2),
    of("pixel_unshuffle", lambda: normal(1, 1, 2, 4), 2), of("channel_shuffle", lambda: normal(1, 4, 2), 2),
    of("affine_grid", lambda: normal(1, 2, 3), (1, 1, 2, 2), align_corners=False),
    of("grid_sample", lambda: (normal(1, 1, 3, 3), between(-0.6, 0.6, 1, 2, 2, 2, seed=1)), align_corners=True))


def self_attention(x: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
    """Two heads of two features each."""
    return F.multi_head_attention_forward(x, x, x, 4, 2, inner, None, None, None, False, 0.0, outer, None, need_weights=False)[0]


ATTENTION = (
    of("scaled_dot_product_attention", lambda: (normal(1, 2, 3), normal(1, 2, 3, seed=1), normal(1, 2, 3, seed=2))),
    Sample("multi_head_attention_forward", self_attention, lambda: (normal(2, 1, 4), normal(12, 4, seed=1), normal(4, 4, seed=2))))

GROUPS: Mapping[str, Group] = {
    "pointwise": POINTWISE, "normalisation": NORMALISATION, "linear": LINEAR, "dropout": DROPOUT, "distance": DISTANCE, "losses": LOSSES,
    "convolution": CONVOLUTION, "pooling": POOLING, "vision": VISION, "attention": ATTENTION}

NO_DERIVATIVE, NARROW = "autograd has no derivative for it", "it takes 16 or 8 bits only, mostly on a GPU"
TOOLS = "it computes nothing"
LEFT_OUT: Mapping[str, str] = {
    "one_hot": "integers in, integers out", "native_channel_shuffle": NO_DERIVATIVE, "grouped_mm": NARROW, "scaled_mm": NARROW,
    "scaled_grouped_mm": NARROW, "boolean_dispatch": TOOLS, "assert_int_or_pair": TOOLS, "handle_torch_function": TOOLS,
    "has_torch_function": TOOLS, "has_torch_function_unary": TOOLS, "has_torch_function_variadic": TOOLS}


def public() -> set[str]:
    """The functions of the module by name."""
    named = {name: getattr(F, name) for name in dir(F) if not name.startswith("_")}
    modules = {name: getattr(each, "__module__", None) or "torch" for name, each in named.items() if callable(each) and not isinstance(each, type)}
    return {name for name, module in modules.items() if module.partition(".")[0] == "torch"}
