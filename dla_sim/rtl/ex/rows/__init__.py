"""The engine of rows: OP_REDUCE, OP_SOFTMAX and OP_NORM."""
