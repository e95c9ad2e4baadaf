"""Arm Ethos-U85 with 256 multiply-accumulates on Alif Ensemble E8, as our banked machine.

The preset has the sizes with their sources. One number is fitted: the rate of the weights' memory.
"""

from __future__ import annotations

from functools import partial

from experiments.machines.description import MachineDescription, PublishedFigure, Role
from experiments.machines.preset_times import predict_milliseconds

NAME = "ethos-u85-256"
CARDS = "huggingface.co/Arm/{}-ethos-u-executorch, model card"
MIB = 1 << 20
"""The cards print MB and mean MiB: 97.45 MB are the 25.6 M float weights of ResNet-50."""
TRAFFIC = (
    "U85 reads and writes the tensors of every operation through its port, and adds residuals in "
    "separate operations; the model keeps tensors in the scratchpad"
)
STAGING = (
    "U85 pads and computes average pools in several operations (12 ms), and computes kernel "
    "positions in groups of four (with the other operations of its stream, 12 ms). If its SRAM is "
    "limited to 1,792 KiB, it reads weights of the 149 x 149 and 147 x 147 planes again (51 ms)"
)
TRANSFORMER = (
    "in the published network some layers have 16-bit activations, and U85 computes Softmax, "
    "LayerNormalization and GELU in several operations through memory; the model computes each in "
    "one operation on 8 bits. The effect is not quantified"
)


def _publish(
    network: str,
    card: str,
    size: float | None,
    value: float,
    role: Role,
    claim: float,
    note: str = TRAFFIC,
) -> PublishedFigure:
    """Return the figure of a model card: latency in ms, and size of the file in MiB."""
    file_bytes = None if size is None else round(size * MIB)
    weights = "raw weights" if size is None else f"weights in a file of {size} MiB"
    return PublishedFigure(
        network,
        f"{card}, {weights}",
        value,
        "ms",
        CARDS.format(card),
        role,
        claim,
        partial(predict_milliseconds, network, NAME, file_bytes),
        note,
        slow=True,
    )


MACHINE = MachineDescription(
    name=NAME,
    summary="Arm Ethos-U85-256 on Alif Ensemble E8: our banked machine, rate of flash fitted",
    kind="preset",
    preset=NAME,
    sources=(
        "ethos-u-vela (ethos_u85.cpp): blocks of 1 x 2 x 16 outputs, 8 input channels",
        "github.com/alifsemi/alif_ml-embedded-evaluation-kit, scripts/vela/ensemble_vela.ini",
        "huggingface.co/Arm, model cards",
    ),
    published=(
        _publish("light-resnet50", "resnet-50-int8-per-channel", 21.76, 151.44, "fitted", 0.025),
        _publish("light-resnet50", "resnet-50-int8-per-tensor", 14.42, 110.20, "fitted", 0.025),
        _publish("mobilenet-v3-large", "mobilenet-v3-large-int8", 5.11, 35.17, "held out", 0.05),
        _publish("inception-v3", "inception-v3-int8", 17.53, 237.13, "held out", 0.45, STAGING),
        _publish("vit-tiny", "deit-tiny-int8", None, 81.59, "held out", 0.55, TRANSFORMER),
    ),
    fitted=("flash_rate",),
)
