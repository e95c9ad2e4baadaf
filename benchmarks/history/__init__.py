"""Ratios of ``python -m benchmarks`` as benchmarks of airspeed velocity (asv)."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # asv finds this folder alone
