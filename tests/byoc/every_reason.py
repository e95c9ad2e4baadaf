"""Change running nodes of every operator that ``dla support`` lists, one property at a time.

A property is an attribute, an input or an output.

``python -m tests.byoc.every_reason`` prints for each operator how many variants run, how many are
refused, and how many stay on the CPU with a reason that names the change. Schemas and the support
list say what there is to change.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

from tests.byoc.node_cases import (
    ENDS,
    Outcome,
    place,
)
from tests.byoc.node_variants import variants
from tests.byoc.running_nodes import listed, running_nodes

# Running nodes.
# --------------------------------------------------------------------------------------------------


# Variants.
# --------------------------------------------------------------------------------------------------


def judged(operator: str, values: int = 3, nodes: int = 2) -> Iterator[Outcome]:
    """Yield the outcome of every variant of an operator's running nodes."""
    seen: set[bytes] = set()
    for case in running_nodes(operator, nodes):
        for variant in variants(case, values):
            key = variant.model.SerializeToString(deterministic=True)
            if key not in seen and variant.feeds:  # a file without inputs is refused
                seen.add(key)
                outcome = place(variant)
                if variant.outputs is None and outcome.kind in (
                    "not named",
                    "no pattern",
                    "named",
                    "runs",
                ):
                    outcome.kind = f"invalid, yet {outcome.kind}"
                yield outcome


def main() -> int:
    """Print how the variants of every operator end.

    Return 1 where one ended otherwise than it should.
    """
    wanted = sys.argv[1:] or listed()
    total: Counter[str] = Counter()
    for operator in wanted:
        nodes = running_nodes(operator)
        outcomes = list(judged(operator))
        counts = Counter(outcome.kind for outcome in outcomes)
        total += counts
        print(
            f"{operator:26} {len(nodes)} nodes, {len(outcomes)} variants: {dict(counts)}",
            flush=True,
        )
        for outcome in outcomes:
            if outcome.kind not in ENDS:
                print(
                    f"    {outcome.kind}: {outcome.case.text}: "
                    f"{'; '.join(outcome.reasons) or outcome.error}"[:400]
                )
    print(f"{len(wanted)} operators, {total.total()} variants: {dict(total)}")
    return int(not total.keys() <= ENDS)


if __name__ == "__main__":
    sys.exit(main())
