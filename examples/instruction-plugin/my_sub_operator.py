"""The compiler's side of OP_MY_SUB: ONNX Sub between quantised tensors."""

from byoc.operators.arithmetic import Subtraction
from byoc.operators.rules import finding, rule


@rule("OP_MY_SUB computes in float32: choose numerics onnxruntime")
def in_float(record, target):
    right = target.numerics == "onnxruntime"
    return None if right else finding("the machine's numerics are {numerics}", numerics=target.numerics)


class MySubtraction(Subtraction):
    """Subtractions on OP_MY_SUB; everything else comes from the project's subtraction."""

    family = "my-difference"
    instructions = ("OP_MY_SUB",)
    inner_types = ()
    dense = "OP_MY_SUB"
    constraints = (*Subtraction.constraints, in_float)
