"""Compare the outputs of ONNX Runtime under other session options with the oracle's.

The networks are the zoo's quantised ones.

    python -m benchmarks.session_options [NETWORK ...]

Prints the table of docs/numerics.md: of all outputs on three drawn inputs, elements that differ
from the oracle's session, and in brackets those that are more than a step of the output's scale
away.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import onnxruntime
from onnx import ModelProto

from byoc.checking.file_check import Tensors, compare_outputs, draw_feeds, outputs_of
from byoc.runtimes.session import NEWEST_IR_VERSION
from experiments.running.given import Given
from experiments.running.network import load

NETWORKS = (
    "digits-cnn", "resnet-8", "keyword-spotting", "autoencoder", "visual-wake-words",
    "mobilenet-v1", "resnext-11",
    "mobilenet-v2", "squeezenet", "mobilenet-v3-small", "shufflenet-v2", "resnet-18",
)  # fmt: skip


def differences(
    model: ModelProto, feeds: Sequence[Tensors], level: onnxruntime.GraphOptimizationLevel
) -> str:
    """Return as text how far outputs at one optimisation level differ from the oracle's.

    The session has no other options.
    """
    model.ir_version = min(model.ir_version, NEWEST_IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    names = [value.name for value in model.graph.output]
    others = [session.run(names, dict(feed)) for feed in feeds]
    ours = outputs_of(model, feeds, optimised=True)
    assert ours is not None
    count = sum(
        int((one != other).sum())
        for pair in zip(ours, others, strict=True)
        for one, other in zip(*pair, strict=True)
    )
    return f"{count:,} ({compare_outputs(ours, others, model).beyond:,})"


def main() -> None:
    """Print a table row per network."""
    levels = onnxruntime.GraphOptimizationLevel
    print("| network | elements | default options | unoptimised |\n|---|---|---|---|")
    for name in sys.argv[1:] or NETWORKS:
        model = load(Given(name)).package.model
        assert isinstance(model, ModelProto)
        feeds = draw_feeds(model, 0)
        elements = sum(
            array.size for outputs in outputs_of(model, feeds) or () for array in outputs
        )
        found = (
            differences(model, feeds, level)
            for level in (levels.ORT_ENABLE_ALL, levels.ORT_DISABLE_ALL)
        )
        print(f"| {name} | {elements:,} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
