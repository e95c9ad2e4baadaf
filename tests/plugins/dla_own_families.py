"""A package with a subclass of many of the project's families, each under names of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from byoc.operators.arithmetic import Add
from byoc.operators.convolution import Convolution
from byoc.operators.matmul import DynamicMatMul, MatMul
from byoc.operators.movement import Movement
from byoc.operators.normalisation import Normalisation
from byoc.operators.operator import Operator
from byoc.operators.pooling import AveragePool, MaxPool
from byoc.operators.records import Settings
from byoc.operators.reduction import Reduction
from byoc.operators.rows import Softmax
from byoc.options import Target
from isa.arch import Arch

MARK = "own "
"""What layers of these families are called first."""


class Own(Operator):
    """A family whose operations are those of its base under another name."""

    @classmethod
    def operations(cls, record: Any, target: Target) -> tuple[Operator, ...]:
        return tuple(
            replace(one, name=f"{MARK}{one.name}") for one in super().operations(record, target)
        )


class OwnSoftmax(Own, Softmax):
    family = "own-softmax"


class OwnReduction(Own, Reduction):
    family = "own-reduction"


class OwnNormalisation(Own, Normalisation):
    family = "own-normalisation"


class OwnProduct(DynamicMatMul):
    """A product of two computed operands, which another family makes."""


class OwnMatMul(Own, MatMul):
    """A product whose results are ``highest`` at most."""

    family = "own-matmul"
    instructions = ("OP_MAT_MUL",)
    highest: ClassVar[int] = 127

    @classmethod
    def operations(cls, record: Any, target: Target) -> tuple[Operator, ...]:
        found = super().operations(record, target)
        return tuple(
            OwnProduct(**vars(one)) if isinstance(one, DynamicMatMul) else one for one in found
        )

    def settings(self, arch: Arch) -> Settings:
        registers, fields = super().settings(arch)
        return Settings(
            {**registers, "EX_CLAMP_HIGH": min(registers["EX_CLAMP_HIGH"], self.highest)}, fields
        )


class OwnConvolution(Own, Convolution):
    family = "own-convolution"
    instructions = ("OP_CONV",)


class OwnAdd(Own, Add):
    family = "own-add"
    instructions = ("OP_E_ADD",)


class OwnMaxPool(Own, MaxPool):
    family = "own-max-pool"
    instructions = ("OP_POOL",)


class OwnAveragePool(Own, AveragePool):
    family = "own-average-pool"
    instructions = ("OP_POOL",)


class OwnMovement(Own, Movement):
    family = "own-movement"
    instructions = ("OP_PERMUTE",)


FAMILIES = (
    OwnSoftmax, OwnReduction, OwnNormalisation, OwnMatMul, OwnConvolution, OwnAdd, OwnMaxPool,
    OwnAveragePool,
    OwnMovement,
)  # fmt: skip
