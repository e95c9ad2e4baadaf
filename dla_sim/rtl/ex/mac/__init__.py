"""The engine of multiply-accumulates: convolutions and matrix products."""
