// Takes a float32 apart: value = significand * 2^exponent, the exponent being that of the significand's last bit.
//
// Subnormal numbers have the exponent of the smallest normal ones and no hidden bit. Not-a-number is not told from
// infinity: the instruction set has no use for it.
module float32_unpack (
    input  wire [31:0]        value,
    output wire               negative,
    output wire               infinite,
    output wire [23:0]        significand,
    output wire signed [11:0] exponent
);
    wire [7:0] biased = value[30:23];
    wire       hidden = biased != 0;

    assign negative = value[31];
    assign infinite = biased == 8'hff;
    assign significand = {hidden, value[22:0]};
    assign exponent = $signed({4'b0, hidden ? biased : 8'd1}) - 12'sd150;
endmodule
