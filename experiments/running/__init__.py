"""One run: a network or a program on a simulated machine, checked to the bit."""
