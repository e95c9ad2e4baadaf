"""An operator in a package of its own: PRelu with one slope, computed as a leaky Relu.

``python3 -m pip install -e examples/operator-plugin`` installs it; ``dla support`` then lists the
family ``slope``. docs/adding-an-instruction.md, section 8, explains it and runs it on a network.
"""

from typing import ClassVar

from byoc.operators.activation import Activation
from byoc.operators.forms import Form
from byoc.operators.rules import finding, rule


# A rule decides whether a node can run. The text of the rule and of the finding are the reason that
# users read for a node on the CPU.
@rule("the slope of a PRelu is one constant number")
def one_slope(graph, node):
    return (
        None
        if "alpha" in node.attributes
        else finding("its slope is computed, or has several numbers")
    )


class Slope(Activation):
    """Family of PRelu nodes; tiling, quantisation, layouts and commands come from Activation."""

    family = "slope"
    forms = (Form("PRelu"),)  # the ONNX operators of the family
    inner_types = ()  # Activation also claims nodes that the compiler makes; this family has none
    requirements = (*Activation.requirements, one_slope)
    functions: ClassVar = {"PRelu": "leaky_relu"}  # the function that the accelerator computes

    @classmethod
    def attributes(cls, written):
        """Return the canonical node's attributes: the slope, which is an input of PRelu."""
        slope = written.view.scalar(written.node.input(1))
        return {} if slope is None else {"alpha": slope}
