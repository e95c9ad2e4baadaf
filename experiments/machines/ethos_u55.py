"""Arm Ethos-U55 with 256 multiply-accumulates on Alif Ensemble, as our banked machine.

The preset has the sizes with their sources; no number is fitted. Its scratchpad is the NPU's own
memory of 48 KiB. Every layer reads its inputs from the SRAM and writes its result there.
"""

from __future__ import annotations

from functools import partial

from experiments.machines.description import MachineDescription, PublishedFigure
from experiments.machines.preset_times import predict_milliseconds

NAME = "ethos-u55-256"
FILE_BYTES = 3_512_288
"""Size of MobileNetV2 compiled for Ethos-U55 (pytorch/executorch, issue 17157)."""
NOTE = (
    "U55 uses 32 of its 256 multipliers for a block of outputs of a depthwise convolution, which "
    "would add 1.4 ms, and computes residual sums as separate operations, which would add 0.3 ms"
)

MACHINE = MachineDescription(
    name=NAME,
    summary="Arm Ethos-U55-256 on Alif Ensemble E8: our banked machine, nothing fitted",
    kind="preset",
    preset=NAME,
    sources=(
        "ethos-u-vela (architecture_features.py): blocks of 2 x 2 x 8 outputs, 8 input channels",
        "github.com/alifsemi/alif_ml-embedded-evaluation-kit, scripts/vela/ensemble_vela.ini",
    ),
    published=(
        PublishedFigure(
            "mobilenet-v2",
            "weights in MRAM, layer by layer",
            19.0,
            "ms",
            "github.com/pytorch/executorch, issue 19131",
            "held out",
            0.15,
            partial(predict_milliseconds, "mobilenet-v2", NAME, FILE_BYTES, alone=True),
            NOTE,
            slow=True,
        ),
    ),
    validated=True,
)
