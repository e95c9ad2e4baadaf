"""Program that builds a user's RTL with cocotb and starts its simulation, for ``cosimulation``.

Its argument is the folder with the files of the comparison.
"""

import json
import sys
from pathlib import Path

CASE = "case.pickle"
DESIGN = "design.json"
RESULT = "result.json"
"""Files of a comparison: program and inputs, the RTL, and the agent's result."""
FOLDER = "DLA_COCOTB_FOLDER"
"""Environment variable with the folder of the comparison."""
_ARGUMENTS = {"icarus": (), "verilator": ("-Wno-fatal", "--x-initial", "unique")}


def main(folder: Path) -> None:
    """Build the RTL and run the agent in the simulator."""
    from cocotb_tools.runner import get_runner

    design = json.loads((folder / DESIGN).read_text())
    runner = get_runner(design["simulator"])
    runner.build(
        sources=[Path(file).resolve() for file in design["sources"]],
        hdl_toplevel=design["top"],
        build_args=[*_ARGUMENTS[design["simulator"]], *design["build_arg"]],
        build_dir=folder / "build",
        cwd=Path.cwd(),
        timescale=("1ns", "1ps"),
    )
    runner.test(
        hdl_toplevel=design["top"],
        test_module="experiments.rtl.cocotb_test",
        build_dir=folder / "build",
        test_dir=Path.cwd(),
        results_xml=str(folder / "results.xml"),
        extra_env={FOLDER: str(folder)},
    )


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except RuntimeError:  # a tool failed and has printed the reason
        sys.exit(1)
