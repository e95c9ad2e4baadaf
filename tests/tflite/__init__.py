"""TensorFlow Lite: the rules of `isa.numerics` and the compiler, against LiteRT."""
