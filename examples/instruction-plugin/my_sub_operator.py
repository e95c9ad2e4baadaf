"""The compiler's side of OP_MY_SUB: ONNX Sub between quantised tensors."""

from byoc.operators.arithmetic import SubtractionOperator
from byoc.operators.rules import finding, rule


@rule("OP_MY_SUB computes in float32: choose numerics onnxruntime")
def in_float(record, target):
    right = target.numerics == "onnxruntime"
    return (
        None
        if right
        else finding("the machine's numerics are {numerics}", numerics=target.numerics)
    )


class MySubtraction(SubtractionOperator):
    """Subtractions on OP_MY_SUB; everything else comes from the project's subtraction."""

    family = "my-difference"
    instructions = ("OP_MY_SUB",)
    inner_types = ()
    dense = "OP_MY_SUB"
    constraints = (*SubtractionOperator.constraints, in_float)
