"""A function in torch's other modes (forward mode, double backward, vmap), with the random
directions and weights used for these."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from torch import Tensor

from gradverify.numerics.function.coordinates import Columns, columns_of, numbers, rms
from gradverify.numerics.rungs import Array
from gradverify.numerics.seed_vectors import signed_tensor
from gradverify.oracles.along import change, direction, shaped
from gradverify.subject.another import looks_symmetric
from gradverify.subject.base_call import BaseCall
from gradverify.subject.differentiable import Backward, Pushed, Second, push
from gradverify.subject.failure import UserCodeError, attempted
from gradverify.subject.subject import Tensors
from gradverify.subject.vmapped import SIZE, Batches

# The purpose of the cotangents for which backward is a function of the inputs
SECOND = "second order"


class Modes:
    """Results of the other modes for the function of `call`, computed once, when first read."""

    def __init__(self, call: BaseCall) -> None:
        self._call, self._subject = call, call.subject

    # ---- probes
    @cached_property
    def columns(self) -> Columns:
        """The real coordinates of the differentiable inputs. A bitwise symmetric matrix is moved
        symmetrically, as the function may read only half of it."""
        given = self._subject.differentiable
        symmetric = [a.symmetric or looks_symmetric(a.value) for a in given]
        return columns_of(self._subject.inputs, [a.domain for a in given], symmetric)

    def direction(self, purpose: str) -> Array:
        """Draw a random signed direction [C] of all inputs, each column in its own scale."""
        return direction(self.columns, self._subject.generator(f"direction {purpose}"))

    def tangents(self, moved: Array) -> Tensors:
        """Return a direction [C] as one tensor per input."""
        inputs = self._subject.inputs
        return tuple(shaped(change(self.columns, moved, inputs), inputs))

    def weights(self, purpose: str) -> tuple[Tensor, ...]:
        """Draw random signed cotangents, each divided by its output's root mean square."""
        return tuple(
            cotangent / size
            for cotangent, size in zip(self._call.cotangents(purpose), self._sizes, strict=True)
        )

    @cached_property
    def _sizes(self) -> list[float]:
        """The root mean square of each output."""
        return [rms(np.abs(numbers(y))) or 1.0 for y in self._call.outputs]

    @cached_property
    def _unit(self) -> float | None:
        """The power of two nearest to the size of every output; None where it is not the same for
        all."""
        units = {2.0 ** round(np.log2(size)) for size in self._sizes}
        return units.pop() if len(units) == 1 else None

    @cached_property
    def second_weights(self) -> Tensors:
        """The cotangents for which backward is examined as a function of the inputs: the base ones
        divided by the outputs' unit, if they have one, since their gradients are then known."""
        if self._unit is None:
            return self.weights(SECOND)
        return tuple(cotangent / self._unit for cotangent in self._call.cotangents("base"))

    @cached_property
    def gradient_weights(self) -> Array:
        """Random signed weights [N] of the gradients' coordinates, in the inputs' own units."""
        return self.weighing("gradient weights")

    @cached_property
    def _units(self) -> Array:
        """The size [N] of each coordinate of the inputs, mirror images included."""
        inputs = self._subject.inputs
        return columns_of(inputs, [None] * len(inputs), [False] * len(inputs)).size

    def weighing(self, purpose: str) -> Array:
        """Draw random signed weights [N] of the gradients' coordinates, in the inputs' own
        units."""
        source = self._subject.generator(purpose)
        return np.asarray(self._units * signed_tensor((len(self._units),), source).numpy())

    # ---- modes
    @cached_property
    def forward_mode(self) -> Pushed | UserCodeError:
        """The tangents of the checked outputs along `direction("forward mode")`, or the error of
        the call."""
        tangents = self.tangents(self.direction("forward mode"))
        return attempted(push, self._subject, self._call.forward.checked, tangents)

    @cached_property
    def backwards(self) -> Backward:
        """Backward for fixed cotangents, as a function of the inputs."""
        unit, gradients = self._unit, self._call.worked.gradients if self._unit else ()
        known = None if unit is None else [None if g is None else g / unit for g in gradients]
        return Backward(self._subject, self._call.function, self.second_weights, known)

    @cached_property
    def double_backward(self) -> Second | UserCodeError:
        """The derivative of the weighted gradients, or the error of backward under create_graph, or
        through it. Its graph is kept."""
        return attempted(
            lambda: self.backwards.second(
                shaped(self.gradient_weights, self._subject.inputs), keep=True
            )
        )

    @cached_property
    def batches(self) -> Batches:
        """The function on batches of points."""
        cotangents = [self._call.cotangents(f"example {number}") for number in range(SIZE)]
        return Batches(
            self._subject,
            self._call.forward.checked,
            cotangents,
            self._subject.generator("second point"),
            self._call.draws,
        )
