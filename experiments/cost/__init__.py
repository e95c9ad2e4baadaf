"""Energy and area by a table of costs whose every figure names its source: estimates, always marked as such."""
