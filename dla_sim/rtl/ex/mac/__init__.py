"""Engine of multiply-accumulates: convolutions and matrix products."""
