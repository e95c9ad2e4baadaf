"""``dla compile``: a model → a package that serves every machine."""

from __future__ import annotations

from pathlib import Path

from experiments.cli import options


def command(
    model: options.Model,
    shape: options.Shapes = None,
    calibration: options.Calibration = None,
    seed: options.Seed = 0,
    output: options.Output = None,
) -> None:
    """Quantise a model if needed and write its package (.dla): no tile, no address, no instruction in it yet."""
    from byoc.package.package import save_package
    from experiments.running.network import load_network, parse_shapes

    with options.stages() as progress:
        progress(f"reading {model}")
        network = load_network(model, parse_shapes(shape or ()), seed, calibration)
    place = output or Path(f"{network.name}.dla")
    save_package(network.package, place)
    graph = network.package.graph
    print(f"{place}: {len(graph.nodes)} nodes, {place.stat().st_size:,} bytes, SHA-256 {network.package.digest[:16]}")
