"""The operators of pypose between an element of the algebra and one of the vectors or algebras they
act on.

Gradients with respect to a group element are those of a small motion to its left, so that only what
starts in the algebra has a derivative in the ordinary sense. All four groups have the same seven
operators.
"""

from __future__ import annotations

from pypose.lietensor.operation import (
    RxSO3_Act,
    RxSO3_Act4,
    RxSO3_AdjTXa,
    RxSO3_AdjXa,
    RxSO3_Inv,
    RxSO3_Log,
    RxSO3_Mul,
    SE3_Act,
    SE3_Act4,
    SE3_AdjTXa,
    SE3_AdjXa,
    SE3_Inv,
    SE3_Log,
    SE3_Mul,
    Sim3_Act,
    Sim3_Act4,
    Sim3_AdjTXa,
    Sim3_AdjXa,
    Sim3_Inv,
    Sim3_Log,
    Sim3_Mul,
    SO3_Act,
    SO3_Act4,
    SO3_AdjTXa,
    SO3_AdjXa,
    SO3_Inv,
    SO3_Log,
    SO3_Mul,
    rxso3_Exp,
    se3_Exp,
    sim3_Exp,
    so3_Exp,
)
from torch import Tensor


def so3_log(x: Tensor) -> Tensor:
    found: Tensor = SO3_Log.apply(so3_Exp.apply(x))
    return found


def so3_inv(x: Tensor) -> Tensor:
    found: Tensor = SO3_Log.apply(SO3_Inv.apply(so3_Exp.apply(x)))
    return found


def so3_mul(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = SO3_Log.apply(SO3_Mul.apply(so3_Exp.apply(x), so3_Exp.apply(other)))
    return found


def so3_act(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = SO3_Act.apply(so3_Exp.apply(x), other)
    return found


def so3_act4(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = SO3_Act4.apply(so3_Exp.apply(x), other)
    return found


def so3_adjxa(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = SO3_AdjXa.apply(so3_Exp.apply(x), other)
    return found


def so3_adjtxa(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = SO3_AdjTXa.apply(so3_Exp.apply(x), other)
    return found


def se3_log(x: Tensor) -> Tensor:
    found: Tensor = SE3_Log.apply(se3_Exp.apply(x))
    return found


def se3_inv(x: Tensor) -> Tensor:
    found: Tensor = SE3_Log.apply(SE3_Inv.apply(se3_Exp.apply(x)))
    return found


def se3_mul(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = SE3_Log.apply(SE3_Mul.apply(se3_Exp.apply(x), se3_Exp.apply(other)))
    return found


def se3_act(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = SE3_Act.apply(se3_Exp.apply(x), other)
    return found


def se3_act4(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = SE3_Act4.apply(se3_Exp.apply(x), other)
    return found


def se3_adjxa(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = SE3_AdjXa.apply(se3_Exp.apply(x), other)
    return found


def se3_adjtxa(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = SE3_AdjTXa.apply(se3_Exp.apply(x), other)
    return found


def rxso3_log(x: Tensor) -> Tensor:
    found: Tensor = RxSO3_Log.apply(rxso3_Exp.apply(x))
    return found


def rxso3_inv(x: Tensor) -> Tensor:
    found: Tensor = RxSO3_Log.apply(RxSO3_Inv.apply(rxso3_Exp.apply(x)))
    return found


def rxso3_mul(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = RxSO3_Log.apply(RxSO3_Mul.apply(rxso3_Exp.apply(x), rxso3_Exp.apply(other)))
    return found


def rxso3_act(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = RxSO3_Act.apply(rxso3_Exp.apply(x), other)
    return found


def rxso3_act4(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = RxSO3_Act4.apply(rxso3_Exp.apply(x), other)
    return found


def rxso3_adjxa(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = RxSO3_AdjXa.apply(rxso3_Exp.apply(x), other)
    return found


def rxso3_adjtxa(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = RxSO3_AdjTXa.apply(rxso3_Exp.apply(x), other)
    return found


def sim3_log(x: Tensor) -> Tensor:
    found: Tensor = Sim3_Log.apply(sim3_Exp.apply(x))
    return found


def sim3_inv(x: Tensor) -> Tensor:
    found: Tensor = Sim3_Log.apply(Sim3_Inv.apply(sim3_Exp.apply(x)))
    return found


def sim3_mul(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = Sim3_Log.apply(Sim3_Mul.apply(sim3_Exp.apply(x), sim3_Exp.apply(other)))
    return found


def sim3_act(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = Sim3_Act.apply(sim3_Exp.apply(x), other)
    return found


def sim3_act4(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = Sim3_Act4.apply(sim3_Exp.apply(x), other)
    return found


def sim3_adjxa(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = Sim3_AdjXa.apply(sim3_Exp.apply(x), other)
    return found


def sim3_adjtxa(x: Tensor, other: Tensor) -> Tensor:
    found: Tensor = Sim3_AdjTXa.apply(sim3_Exp.apply(x), other)
    return found
