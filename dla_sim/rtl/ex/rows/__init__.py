"""Engine of row instructions: OP_REDUCE, OP_SOFTMAX and OP_NORM."""
