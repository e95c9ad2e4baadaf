"""The device's registers in front of the simulator or the RTL's executable, also as a process.

``python -m experiments.rtl.device SOCKET`` serves one device at a local socket (docs/device.md).
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dla_sim.device import Device
from dla_sim.device_server import serve
from dla_sim.mapped import Execute, MappedDevice, MappedRun, make_bus, make_simulation
from dla_sim.presets import DEFAULT_PRESET, apply_settings, load_preset
from dla_sim.rtl.simulator.case import Case
from experiments.extras import require_amaranth
from experiments.literal import say
from isa import memory
from isa.errors import InputError
from isa.program import Program


def make_hardware(device: Device) -> Execute:
    """Return the function that runs programs on the RTL's executable of a device's machine.

    The executable is built, or taken from the cache, when the first program runs. Cycles and bits
    are the hardware's. The hardware reports no word of an overflow; the simulator names it.

    Raises:
        InputError: no hardware models the machine, or the extra ``rtl`` or a tool is missing.
    """
    require_amaranth()
    from dla_sim.rtl.parameters import strap_values
    from dla_sim.rtl.simulator.executable import find_tools
    from experiments.rtl.hardware import build_for, run_each

    build_for(device.arch, device.timing)
    strap_values(device.arch, device.timing)
    find_tools()

    def execute(program: Program, inputs: Mapping[str, NDArray[Any]]) -> MappedRun:
        (outcome,) = run_each([Case(program.name, program, inputs, device.timing)])
        if outcome.ended != "interrupt":
            device.run(program, inputs)
            raise RuntimeError(
                f"the hardware ended with '{outcome.ended}', the simulator completed"
            )
        return MappedRun(outcome.outputs, outcome.cycles, outcome.units)

    return execute


def _announce(place: Path) -> None:
    """Tell a client, which may read from a pipe, that it can connect."""
    say(f"ready at {place}")
    sys.stdout.flush()


def main(words: Sequence[str] | None = None) -> int:
    """Serve one device until the process is stopped; return 2 after an error."""
    parser = argparse.ArgumentParser(prog="python -m experiments.rtl.device", description=__doc__)
    parser.add_argument("socket", type=Path, help="path of the socket to create")
    parser.add_argument("--preset", default=DEFAULT_PRESET, help="machine, as in dla run")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a key of the machine",
    )
    parser.add_argument(
        "--engine",
        choices=("simulator", "rtl"),
        default="simulator",
        help="what executes the programs",
    )
    parser.add_argument("--memory", default="256M", help="size of the memory, from address 0")
    given = parser.parse_args(words)
    try:
        machine = apply_settings(load_preset(given.preset), given.set)
        size = memory.size(given.memory, "--memory")
        memory.require(size, "--memory")
        device = Device(machine.arch, machine.timing)
        bus = make_bus(bytearray(size))
        execute = make_hardware(device) if given.engine == "rtl" else make_simulation(device)
        mapped = MappedDevice(device, bus, execute=execute, deferred=True)
        serve(given.socket, mapped, bus, lambda: _announce(given.socket))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
