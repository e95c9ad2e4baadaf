"""Front ends: models of other tools become canonical graphs."""
