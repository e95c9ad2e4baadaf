"""From an ONNX file to a run in Apache TVM in six steps: TVM compiles, the accelerator computes.

Run it with ``python examples/tvm_byoc.py``. It needs the extra ``tvm`` and uses a built-in network.
To run your own network, change MODEL to the path of an ONNX file, and the shape of the image.
"""

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

import dla
from byoc.hooks import tvm as hook  # registers `relax.ext.dla`
from byoc.host.sessions import Oracle  # computes the expected values with ONNX Runtime

MODEL = "digits-cnn"

# 1. Import. TVM's own front end reads the quantised ONNX model. `dla.import_model` quantises a
# float network; a file that is quantised already can go to `from_onnx` as it is.
package = dla.import_model(MODEL)
module = from_onnx(package.model)

# 2. Describe a machine, as for `dla run`.
machine = dla.load_hardware("balanced-64")
device = dla.Device(machine.arch, machine.timing)

# 3. Partition. Patterns come from the operator families: a quantised operator that the machine
# supports becomes part of a function of the accelerator; all others stay Relax operators.
module = hook.partition(module, device.arch)
functions = [function.attrs for _, function in module.functions_items()]
print(sum("Codegen" in attributes for attributes in functions), "function on the accelerator")

# 4. Compile. `RunCodegen` calls the hook for the functions of the accelerator, and TVM compiles the
# rest for the CPU.
module = relax.transform.RunCodegen()(module)
executable = tvm.compile(module, target="llvm")

# 5. Run in TVM's virtual machine. At its first run, a function is compiled for the device in use.
image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
machine_code = relax.VirtualMachine(executable, tvm.cpu())
with hook.use_device(device) as runs:
    scores = machine_code["main"](tvm.runtime.tensor(image)).numpy()
cycles = sum(trace.cycles for run in runs for trace in run.traces.values())
print(f"{cycles:,} cycles; class {scores.argmax()}")

# 6. Check. ONNX Runtime runs the same model in integers. Every bit must be equal.
expected = Oracle(package.model, package.graph, package.graph.outputs).values({"image": image})
assert np.array_equal(scores, expected["logits"])
print("equal to ONNX Runtime")
