"""Published figures that no description predicts, with the reason for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UncomparedFigure:
    """Published figure that no description predicts, and the reason."""

    machine: str
    figure: str
    source: str
    reason: str


UNCOMPARED = (
    UncomparedFigure(
        "MAX78002",
        "none",
        "github.com/analogdevicesinc/ai8x-synthesis, issues 136 and 182",
        "the vendor publishes registers, but neither a cycle formula nor cycles; the description "
        "max78002 is an extrapolation",
    ),
    UncomparedFigure(
        "MAX78002",
        "cats-dogs, 25,518 us",
        "github.com/analogdevicesinc/cfs-plugins, max78002-cnn-acc",
        "max78002 predicts 2,668 us at the 200 MHz that the firmware selects, 9.6 times less. The "
        "cause is not known: the layers are those of MAX78000, and the input does not stream",
    ),
    UncomparedFigure(
        "STM32N6",
        "MobileNetV1 int8, 2.83 ms (0.25) to 19.41 ms (1.0)",
        "github.com/STMicroelectronics/stm32ai-modelzoo, image classification",
        "the structure of the accelerator and the transfers of its compiler are not published",
    ),
    UncomparedFigure(
        "NVDLA",
        "ResNet-50 int8, 3.6 to 269 frames per second for 32 to 2,048 MACs",
        "nvdla.org, hardware architecture primer",
        "its authors computed the figure with a formula. On AlexNet, the RTL took 2,093,882 cycles "
        "and their sheet has 895,443 (nvdla/hw, issue 202)",
    ),
    UncomparedFigure(
        "Ethos-U, Vela",
        "MobileNetV1 int8, 13.66 M cycles for 64 MACs",
        "ethos-u-vela 5.2.0",
        "the compiler marks its figure 'estimate only'; the estimates of two versions differ by a "
        "factor of 8 for one network (pytorch/executorch, issue 21459)",
    ),
    UncomparedFigure(
        "VTA, convolution C2 of ResNet-18",
        "192 M cycles; 97, 58, 39 and 29 M with a memory system for 64 to 512 bits",
        "github.com/apache/tvm-vta, pull request 32",
        "the text does not state the schedule, which is not tuned. Five runs with tiles of one "
        "vector move as many bytes as the widths imply, but take 114 M cycles in our model of the "
        "first memory system. The second memory system, with many requests in flight, is not "
        "modelled",
    ),
    UncomparedFigure(
        "VTA, unit tests of instructions",
        "load or store 619, padded load 8,579, GEMM 648, ALU 1,067 or 1,654 cycles",
        "github.com/apache/tvm, pull request 3347",
        "a figure is the time of a whole unit test with its loads and stores, on RTL that is two "
        "years older",
    ),
    UncomparedFigure(
        "Gemmini 16 x 16",
        "ResNet-50, 153,709,356 cycles",
        "github.com/ucb-bar/gemmini, issue 69",
        "the batch is not stated (4 is likely), and this project has no description of Gemmini",
    ),
    UncomparedFigure(
        "Ethos-U55-256, Alif E7",
        "YOLO26n 416 x 416 without attention, 31.0 ms",
        "github.com/KeilChris/cmsis-executorch-traffic-counter, docs",
        "its authors changed and trained the network, and did not publish it as a model file",
    ),
    UncomparedFigure(
        "Ethos-U55, Alif E7",
        "MobileNetV3-Small for 3 classes, 13.03 ms",
        "github.com/Nota-NetsPresso/netspresso-trainer, docs",
        "neither the number of MACs nor the memory of the weights is stated",
    ),
    UncomparedFigure(
        "Ethos-U55 with Cortex-M55",
        "MobileNetV2 int8, 91.2 ms (TensorFlow Lite) and 113 ms (ExecuTorch)",
        "github.com/pytorch/executorch, issue 17157",
        "board, clock, number of MACs and memories are not stated",
    ),
)
