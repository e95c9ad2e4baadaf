"""Compare our layers with the command streams that Arm's Vela compiles for Ethos-U85-256.

    python -m benchmarks.ethos_streams export NETWORK FOLDER   (executorch 1.5, torchvision)
    python -m benchmarks.ethos_streams compile INI FOLDER      (ethos-u-vela 5.2)
    python -m benchmarks.ethos_streams record FOLDER

``export`` writes FOLDER/NETWORK.tosa. ``compile`` runs Vela on the files with Alif's
``ensemble_vela.ini`` and three budgets of SRAM. ``record`` writes
``docs/figures/ethos-u85-streams.csv``, from which the tables of docs/validation.md are made.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parents[1] / "docs/figures/ethos-u85-streams.csv"
COLUMNS = ("network", "file in MiB", "layers", "number", "ours", "staged", "1536 KiB", "1024 KiB")
MIB = 1 << 20
NETWORKS = {
    "resnet50-tensor": ("light-resnet50", "resnet50", 14.42, 20.0),
    "resnet50-channel": ("light-resnet50", "resnet50", 21.76, 3.8),
    "mobilenet-v3": ("mobilenet-v3-large", "mobilenet_v3_large", 5.11, 3.0),
    "inception-v3": ("inception-v3", "inception_v3", 17.53, 7.3),
}
"""Our network, torchvision's, MiB of Arm's file, and largest weight in standard deviations."""
BUDGETS = {"staged": (), "1536 KiB": (1536,), "1024 KiB": (1024,)}
"""KiB of SRAM that Vela may use; an empty tuple sets no limit."""
OPERATIONS = {
    **dict.fromkeys(
        ("AvgPool", "Pad", "AveragePool", "GlobalAveragePool"), "average pools with their padding"
    ),
    "MaxPool": "maximum pools",
    "Transpose": "transposition of the input",
    "Concat": "concatenations",
}
OTHER = "other operations"


def export(network: str, folder: Path) -> None:
    """Quantise torchvision's network with weights from seed 0, and write it as TOSA."""
    import torch

    _, name, _, largest = NETWORKS[network]
    channel = network != "resnet50-tensor" and network != "inception-v3"
    side = 299 if name == "inception_v3" else 224
    torch.manual_seed(0)
    model = getattr(import_module("torchvision.models"), name)(weights=None).eval()
    for key, weight in model.named_parameters():
        if weight.dim() > 1 and "Aux" not in key:
            deviation = (2 / weight[0].numel()) ** 0.5
            with torch.no_grad():
                rows = weight.normal_(0, deviation).view(len(weight), -1)
                rows.clamp_(-largest * deviation, largest * deviation)
                rows[: len(rows) if channel else 1, 0] = largest * deviation
    ethosu = import_module("executorch.backends.arm.ethosu")
    quantizer = import_module("executorch.backends.arm.quantizer")
    pt2e = import_module("torchao.quantization.pt2e.quantize_pt2e")
    target: Any = ethosu.EthosUCompileSpec("ethos-u85-256", "Ethos_U85_SYS_DRAM_Mid", "Shared_Sram")
    target.dump_intermediate_artifacts_to(str(folder / network))
    inputs = (torch.randn(1, 3, side, side),)
    chosen = quantizer.EthosUQuantizer(target)
    chosen.set_global(quantizer.get_symmetric_quantization_config(is_per_channel=channel))
    graph = torch.export.export(model, inputs, strict=True).module(check_guards=False)
    prepared = pt2e.prepare_pt2e(graph, chosen)
    prepared(*inputs)
    quantised = torch.export.export(pt2e.convert_pt2e(prepared), inputs, strict=True)
    exir = import_module("executorch.exir")
    exir.to_edge_transform_and_lower(quantised, partitioner=[ethosu.EthosUPartitioner(target)])
    (folder / network / "out.tosa").rename(folder / f"{network}.tosa")


def compile_streams(ini: Path, folder: Path) -> None:
    """Compile each network for Alif's memories, and once for a memory that never waits."""
    for network in NETWORKS:
        common = [str(folder / f"{network}.tosa"), "--accelerator-config", "ethos-u85-256",
                  "--memory-mode", "Shared_Sram", "--output-format", "raw",
                  "--verbose-performance"]  # fmt: skip
        quick = ["--config", "Arm/vela.ini", "--system-config", "Ethos_U85_SYS_DRAM_Mid"]
        slow = ["--config", str(ini), "--system-config", "Ethos_U85_SRAM_OSPI"]
        runs = {"compute": quick}
        for budget, sizes in BUDGETS.items():
            limit = [f"--arena-cache-size={size << 10}" for size in sizes]
            runs[budget] = [*slow, *limit]
        for run, options in runs.items():
            place = str(folder / network / run)
            subprocess.run(["vela", *common, *options, "--output-dir", place], check=True)


def _read(folder: Path, name: str) -> list[dict[str, str]]:
    with next(folder.glob(name)).open(newline="") as file:
        return list(csv.DictReader(file))


def _describe_ours(name: str, file_bytes: int) -> tuple[dict[str, tuple[str, int]], dict[int, str]]:
    """Return the group and cycles of each layer of ours, and the group of each number of MACs."""
    from experiments.machines.preset_times import import_network, time_network
    from experiments.machines.work import describe_work

    graph = import_network(name).graph
    groups, by_macs = {}, {}
    for node in graph.nodes:
        work = describe_work(graph, (node,))
        group = OPERATIONS.get(node.op_type, OTHER)
        if work.macs:
            plane = " x ".join(map(str, work.output[1:])) or "1 x 1"
            kernel = " x ".join(map(str, sorted(work.kernel)))
            group = f"{kernel} convolutions, {plane}" if len(work.output) > 1 else "classifier"
            by_macs[work.macs] = group
        groups[node.name] = group
    layers = time_network(name, "ethos-u85-256", file_bytes).layers
    return {key: (groups.get(key, OTHER), cycles) for key, cycles in layers.items()}, by_macs


def compare(network: str, folder: Path) -> Iterator[tuple[Any, ...]]:
    """Yield for each group of layers our cycles, and those of Vela's streams by budget.

    An operation takes as long as its computation or its reading of weights, whichever is longer.
    The bytes of weights are scaled to the size of Arm's file.
    """
    ours_name, _, size, _ = NETWORKS[network]
    (summary,) = _read(folder / network / "staged", "*_summary_*.csv")[-1:]
    scale = size * MIB / float(summary["total_npu_encoded_weights"])
    ours, by_macs = _describe_ours(ours_name, round(size * MIB))
    compute = _read(folder / network / "compute", "*per-layer.csv")
    table: dict[str, list[float]] = defaultdict(lambda: [0.0] * 5)
    for group, cycles in ours.values():
        table[group][1] += cycles
    for column, budget in enumerate(BUDGETS, 2):
        for row, free in zip(
            _read(folder / network / budget, "*per-layer.csv"), compute, strict=True
        ):
            macs = int(row["MAC Count"])
            kind = row["Original Operator"]
            group = by_macs[macs] if "Conv2D" in kind else OPERATIONS.get(kind, OTHER)
            table[group][0] += column == 2
            table[group][column] += max(int(free["NPU"]), int(row["DRAM AC"]) * scale)
    for group, values in table.items():
        yield (ours_name, size, group, *map(round, values))


def main() -> None:
    """Run the command of the command line."""
    match sys.argv[1:]:
        case ["export", network, folder] if network in NETWORKS:
            export(network, Path(folder))
        case ["compile", ini, folder]:
            compile_streams(Path(ini), Path(folder))
        case ["record", folder]:
            rows = [row for network in NETWORKS for row in compare(network, Path(folder))]
            with RECORD.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
        case _:
            sys.exit(f"{__doc__}\nNETWORK is one of {', '.join(NETWORKS)}.")


if __name__ == "__main__":
    main()
