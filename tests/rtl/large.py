"""``python -m tests.rtl.large``: simulate the golden cases that are too large for the tests."""

from __future__ import annotations

import tempfile
from pathlib import Path

from experiments.rtl.export import build_export, case_source
from tests.rtl.bench import owed, simulate
from tests.rtl.test_unit import golden_cases


def main() -> None:
    """Simulate each case and print the result of the test bench.

    AssertionError at the first that differs.
    """
    for case in golden_cases()[1]:
        export = build_export(case_source(case))
        with tempfile.TemporaryDirectory() as folder:
            done = simulate({case.name: export}, Path(folder))
        assert done.status == 0, done.output
        assert done.executed == {case.name: owed(export)}
        print(f"{case.name}: {done.executed[case.name]} operations, equal", flush=True)


if __name__ == "__main__":
    main()
