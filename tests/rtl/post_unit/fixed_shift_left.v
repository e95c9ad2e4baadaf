// The first step of a fixed-point scaling: a positive shift (0 to 30) applied to the value. The result must fit int32.
module fixed_shift_left (
    input  wire signed [39:0] value,
    input  wire signed [7:0]  shift,
    output wire signed [31:0] result,
    output wire               overflow
);
    wire [4:0]         amount = shift[7] ? 5'd0 : shift[4:0];
    wire signed [70:0] wide = $signed({{31{value[39]}}, value}) <<< amount;

    assign result = wide[31:0];
    assign overflow = wide[70:31] != {40{wide[31]}};
endmodule
