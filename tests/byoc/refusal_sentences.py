"""The sentence of each rule that refuses a node, as users read it."""

from __future__ import annotations

SENTENCES = {
    "rank": "the window has 3 dimensions; only 1-D and 2-D windows run on the accelerator",
    "constant data": "input 'x' is constant; the first operand is computed at run time",
    "input type": "input 'x' has element type int32; only int8, uint8 and bool tensors run on the "
    "accelerator",
    "output type": (
        "output 'y' has element type uint16; results are int8, uint8 or bool; "
        "an integer product may also be int32"
    ),
    "weight type": "weights 'w' have element type int16; only int8 and uint8 weights run on the "
    "accelerator",
    "pool types": "element types are int8, uint8; operands and result have the same element type",
    "scale of a maximum": (
        "'x' has scale 0.125 and zero point 0, 'y' has scale 0.25 and zero point 0; "
        "inputs and output must have the same quantisation"
    ),
    "types of what is compared": "element types are int8, uint8; operands have the same element "
    "type",
    "types of what is chosen": (
        "element types are bool; int8, uint8, int8; the condition is bool, and "
        "both other operands have the element type of the result"
    ),
    "scales of what is compared": (
        "the scale of 'b' is 4.54747e-13; the scales of the compared tensors "
        "are between 2^-40 and 2^40"
    ),
    "window in the padding": (
        "a window along spatial axis 0 lies in the padding alone (pads (3, 0, 0, 0)); "
        "every window covers at least one element of the input"
    ),
    "per channel": (
        "tensor 'x' is quantised per channel along axis 1; each activation "
        "tensor has one scale and one zero point"
    ),
    "scale": "tensor 'y' has the scale 0; scales are positive, and 255 times a scale"
    " is finite in float32",
    "empty": "tensor 'x' of shape (0, 4, 5, 6) is empty; tensors have at least one element",
    "run-time weights": "weights 'w' are computed at run time; only constant weights run on the "
    "accelerator",
    "constant operands": "'k' and 'w' are constant; one of the operands is computed at run time",
    "operand type": (
        "input 'w' has element type int16: quantise it to 8 bits; "
        "only int8, uint8 and bool tensors run on the accelerator"
    ),
    "zero points": (
        "'w' has 3 zero points; integers without scales have one zero point per"
        " operand; weights may have one per output channel"
    ),
    "computed operands": (
        "OP_DYN_MAT_MUL is not in ISA v2; products of two computed operands run on OP_DYN_MAT_MUL: "
        "use --isa v4"
    ),
    "weight axis": (
        "weights are quantised along axis 1, output channels are axis 0; "
        "weights have one scale, or one scale per output channel"
    ),
    "column axis": (
        "'c2' has several scales along axis 0; a constant operand has one "
        "scale; a constant second operand may have one scale per column"
    ),
    "rows of biases": (
        "bias 'b' has shape (300, 1) for a result (300, 7); the bias is a "
        "constant int32 tensor that fits the result, and the weights are "
        "constant"
    ),
    "run-time bias": (
        "bias 'b' is computed at run time; the bias is a constant int32 tensor "
        "with one element per output channel"
    ),
    "bias scale": (
        "the bias has scale 0.00200000009 (channel 0), not 0.00100000005; "
        "the bias has zero point 0 and the scale of the accumulators, input scale × weight scale"
    ),
    "accumulator": (
        "an accumulator could reach 2148392960; accumulators fit int32: |bias| "
        "+ 128 · Σ|weights| of every output channel is at most 2147483647"
    ),
    "window": (
        "strides (height) 300 does not fit a field below 256; "
        "sizes, kernel, strides, dilations and pads fit the instruction's fields"
    ),
    "transposed": (
        "transA is 1; transA is 0 and alpha is positive; with a bias beta is 1,"
        " and with a float bias alpha is 1"
    ),
    "average dilation": "dilations are (2, 1); average pooling has no dilation",
    "cut input": "pads are (-1, 0, -1, 0); padding at the start of an axis is not negative",
    "average rounded up": "ceil_mode is 1; average pooling with count_include_pad has no ceil_mode",
    "broadcast": (
        "OP_B_ADD is not in ISA v2; broadcast operands need instructions of their own: use --isa v4"
    ),
    "broadcast in turns": (
        "it is cut into 3200 slices; broadcasting divides the operation into at most 1024 commands"
    ),
    "many channels": "channels 1048576 does not fit a field below 1048576; channels fit their "
    "register",
    "constants alone": "all operands are constant; at least one operand is computed at run time",
    "small product": (
        "it is 9.99995e-41 times that of 'y'; "
        "the product of the operands' scales is 2^-100 to 2^15 times the scale of the result"
    ),
    "constant operand": "input 'k' is constant; all operands are computed at run time",
    "far scales": (
        "the scale of 'x0' is 1e+35 times that of 'y'; the scale of an operand "
        "is at most 2^22 times the scale of the result"
    ),
    "far products": (
        "it is 65536 times that of 'y'; "
        "the product of the operands' scales is 2^-100 to 2^15 times the scale of the result"
    ),
    "far averages": (
        "the scale of 'x' is 8.38861e+06 times that of 'y'; the scale of an "
        "operand is at most 2^22 times the scale of the result"
    ),
    "far numbers": "tensor 'y' has the scale 3e+38; scales are positive, and 255 times a "
    "scale is finite in float32",
    "slices": (
        "2 strided copies need OP_PERMUTE, which is not in ISA v2; an operand "
        "that is not one contiguous slice of the result is copied by "
        "OP_PERMUTE: use --isa v4"
    ),
    "bounds": "its bounds are computed at run time; the bounds of a Clip are constant",
    "slope": "alpha is inf; the slope of a LeakyRelu is finite",
    "order": (
        "1 strided copies need OP_PERMUTE, which is not in ISA v2; a result "
        "that is not one contiguous slice of the operand is copied by "
        "OP_PERMUTE: use --isa v4"
    ),
    "reversed": "it takes 600 copies; a data movement takes at most 512 copies",
    "rows apart": "axes (1, 3) of shape (2, 3, 4, 5); the axes of a row are adjacent",
    "gains": "they have the shapes [(4,)], rows from axis 1 on (6,); gains and "
    "biases have one element for each element of a row, each channel or "
    "each group, or a single element",
    "unknown operator": "Hardmax is not supported on the accelerator",
}
"""One case a rule, as the user reads it."""
