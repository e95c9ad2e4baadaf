"""Every seeded fault fits the sources.

That the corpus finds them is ``python -m tests.dla_sim.rtl.faults``.
"""

from __future__ import annotations

import pytest

from tests.dla_sim.rtl.faults import FILE, ROOT
from tests.faults.fault import Fault, read_faults


@pytest.mark.parametrize("fault", read_faults(FILE), ids=lambda fault: str(fault.name))
def test_a_fault_stands_once_in_its_file(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text().count(fault.old) == 1
    assert fault.new != fault.old
