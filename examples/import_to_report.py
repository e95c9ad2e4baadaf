"""From an ONNX file to a report in six steps: the flow of ``dla run``, one step at a time.

Run it with ``python examples/import_to_report.py``. It uses a PyTorch network that docs/inputs.md
exports, and needs no extra. To run your own network, change MODEL and SAMPLES.
"""

from pathlib import Path

import numpy as np

import dla

# runs the regions on the accelerator and the other nodes on the CPU
from byoc.host.runtime import Runtime
from byoc.host.sessions import Oracle  # computes the expected values with ONNX Runtime

DATA = Path(__file__).resolve().parents[1] / "docs" / "pytorch"
MODEL = DATA / "blocks.onnx"
SAMPLES = DATA / "images.npz"

# 1. Import. A float model is quantised: the samples give the range, and so the int8 scale, of every
# tensor. The package contains integer operations only, and depends on no machine.
samples = np.load(SAMPLES)
calibration = [
    {name: samples[name][number] for name in samples} for number in range(len(samples["image"]))
]
package = dla.import_model(MODEL, calibration=calibration)

# 2. Describe a machine. `arch` is all that programs depend on; `timing` changes only cycles.
machine = dla.load_hardware("balanced-64", {"pe.ic": 8, "pe.oc": 8, "sram_bytes": "64KiB"})
arch = machine.arch
timing = machine.timing

# 3. Partition and compile. Each region of nodes that the machine supports becomes one program. A
# node on the CPU has a reason with the actual values.
network = dla.compile(package, arch, timing=timing)
placement = network.partition.placement
print(f"{sum(node.on == 'dla' for node in placement)} of {len(placement)} nodes on the accelerator")
for node in placement:
    if node.on == "cpu":
        print(f"CPU: {node.node}: {node.reason}")

# 4. Simulate. A Device executes the programs on data and times every command.
device = dla.Device(arch, timing)
image = calibration[0]["image"]
done = Runtime(network, device).run({"image": image})
cycles = sum(trace.cycles for trace in done.traces.values())
print(f"{cycles:,} cycles; class {done.outputs['scores'].argmax()}")

# 5. Check. The oracle runs the same integer network on ONNX Runtime. Every byte must be equal.
expected = Oracle(package.model, network.graph, network.graph.outputs)
for name, values in expected.values(done.values).items():
    assert np.array_equal(values, done.values[name]), name
print("equal to ONNX Runtime")

# 6. Report. `dla.run` does steps 1 to 5 and counts what they did. The report is data; it is also a
# page with charts.
result = dla.run(package, settings={"pe.ic": 8, "pe.oc": 8, "sram_bytes": "64KiB"}, inputs=image)
assert result.report.check.mismatches == 0
assert result.report.totals.cycles == cycles
for layer in sorted(result.report.layers, key=lambda layer: -layer.cycles)[:3]:
    print(f"{layer.name:40} {layer.cycles:8,} cycles, {layer.utilization:.0%} of the array")
result.save("run.json")
print("run.json written; `dla report run.json -o page` makes the page")
