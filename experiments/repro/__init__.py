"""Reproductions of published figures: what is run, how it is drawn, and what the publication says about it."""

FIGURES: dict[str, str] = {
    "li2022-table5": "Li et al. (2022), table 5: six applications under five ways of scheduling (docs/published.md)",
    "sponner2021-fig4": "Sponner et al. (TinyML 2021), figure 4: MobileNetV1 on 28 configurations (docs/published.md)",
}
"""The published figures that can be reproduced, by name."""
