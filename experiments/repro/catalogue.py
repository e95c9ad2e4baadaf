"""The published figures that can be reproduced, by name. Light: the command line imports it."""

from __future__ import annotations

FIGURES: dict[str, str] = {
    "sponner2021-fig4": "Sponner et al. (TinyML 2021), figure 4: MobileNetV1 on 28 configurations (docs/figure4.md)",
}
