"""Tasks of a user who wants an answer: advice, one machine for several networks, words, golden."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.e2e.user_tasks import User

pytestmark = pytest.mark.slow  # tasks compile networks or start processes

JOINT = """\
joint = true
networks = ["digits-cnn", "micro-speech"]
constraints = ["mm2 <= 0.12", "ms <= 0.01"]
arch.pe = { ic = [4, 8], oc = [8, 16] }
arch.sram_bytes = ["32 KiB", "64 KiB"]
"""
"""A sweep for one machine that runs two networks."""
CORPUS = Path(__file__).resolve().parents[1] / "golden"


def joint_sweep(user: User, limits: str = '"mm2 <= 0.12", "ms <= 0.01"') -> str:
    """Run the joint sweep with other limits and return its output."""
    text = JOINT.replace('"mm2 <= 0.12", "ms <= 0.01"', limits)
    (user.folder / "joint.toml").write_text(text)
    return user.types("dla sweep joint.toml --workers 1 --json joint.json --csv joint.csv")


def test_what_limits_my_network(user: User) -> None:
    seen = user.types("dla advise digits-cnn")
    assert "it is compute-bound" in seen
    assert re.search(r"conv +641 +is memory-bound: it loads", seen)


def test_does_the_advice_come_true(user: User) -> None:
    said = json.loads(user.types("dla advise digits-cnn --json -"))
    change = next(one for one in said["changes"] if "dram_latency" in one["command"])
    user.types(f"{change['command']} --no-advice --json run.json")
    run = json.loads(user.has("run.json").read_text())
    assert run["totals"]["cycles"] == change["cycles"] < said["now"]["cycles"]


def test_the_cheapest_machine_that_is_fast_enough(user: User) -> None:
    seen = user.types("dla advise digits-cnn --target-ips 300000")
    command = seen.splitlines()[-1]
    said = re.search(r"at most 0\.00333333 ms: .* ([0-9.]+) ms: ", seen)
    assert said
    user.types(f"{command} --json run.json")
    totals = json.loads(user.has("run.json").read_text())["totals"]
    assert totals["cycles"] / 1e6 <= float(said[1]) <= 1e3 / 300_000


def test_what_does_a_word_mean(user: User) -> None:
    assert "cycles" in user.types("dla help roofline")
    assert "did you mean roofline?" in user.fails("dla help rooflin")


def test_the_run_fits_on_a_screen(user: User) -> None:
    short = user.types("dla run digits-cnn", COLUMNS="80").splitlines()
    assert len(short) <= 40
    assert max(map(len, short)) <= 80
    assert len(user.types("dla run digits-cnn --all").splitlines()) > 40


def test_one_machine_for_two_networks(user: User) -> None:
    seen = joint_sweep(user)
    said = "2 of 8 machines meet all limits; best: pe.ic=8 pe.oc=8 sram_bytes=32KiB"
    assert said in " ".join(seen.split())
    for command in re.findall(r"^dla run [^&\n]*", seen, re.MULTILINE):
        user.types(f"{command} --json run.json")
        totals = json.loads((user.folder / "run.json").read_text())["totals"]
        assert totals["cycles"] <= 10_000


def test_the_machines_in_a_spreadsheet(user: User) -> None:
    joint_sweep(user)
    with user.has("joint.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    meeting = [row for row in rows if row["meets"] == "True"]
    assert len(rows) == 8
    assert 0 < len(meeting) < 8
    assert all(
        float(row["mm2"]) <= 0.12 and float(row["ms.micro-speech"]) <= 0.01 for row in meeting
    )
    assert min(meeting, key=lambda row: float(row["ms"]))["pe.ic"] == "8"


def test_no_machine_meets_the_limits(user: User) -> None:
    seen = joint_sweep(user, '"ms <= 0.000001"')
    assert "0 of 8 machines meet all limits; most often missed:" in seen
    assert "run the best" not in seen


def test_a_limit_with_a_wrong_name(user: User) -> None:
    (user.folder / "joint.toml").write_text(JOINT.replace("mm2", "mm3"))
    assert "unknown key 'mm3'; choose one of" in user.fails("dla sweep joint.toml --workers 1")


def test_a_page_of_machines(user: User) -> None:
    joint_sweep(user)
    user.types("dla report runs/joint.sqlite --where 'ms < 0.0063' -o machines.html")
    page = user.has("machines.html").read_text()
    assert "1 of 8 machines meet" in page


def test_search_for_one_machine(user: User) -> None:
    (user.folder / "joint.toml").write_text(JOINT)
    seen = user.types("dla explore joint.toml --trials 8 --no-grid --workers 1")
    assert "machines meet all limits; best: pe.ic=8 pe.oc=8 sram_bytes=32KiB" in " ".join(
        seen.split()
    )


def test_golden_outputs_in_a_ci_system(user: User) -> None:
    seen = user.types(f"dla golden check {CORPUS} --case conv-3x3 --junit golden.xml")
    assert len(seen.splitlines()) <= 20
    suite = ElementTree.parse(user.has("golden.xml")).getroot()
    cases = list(suite.iter("testcase"))
    assert cases
    assert not list(suite.iter("failure"))


def test_advice_in_a_script(user: User) -> None:
    seen = user.runs(
        "import dla\n"
        "advice = dla.advise('digits-cnn')\n"
        "best = advice.faster[0]\n"
        "print(best.command)\n"
    )
    assert seen.strip() == "dla run digits-cnn --integer-io"


def test_a_timeline_in_a_script(user: User) -> None:
    user.types("dla run digits-cnn --trace run.pftrace")
    seen = user.runs("import dla\nprint(len(dla.load('run.pftrace').packet) > 10)\n")
    assert seen == "True\n"
