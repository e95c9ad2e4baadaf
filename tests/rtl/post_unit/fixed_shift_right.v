// The third step: a negative shift (-31 to -1) divides by a power of two, rounded to nearest, ties away from zero.
module fixed_shift_right (
    input  wire signed [31:0] value,
    input  wire signed [7:0]  shift,
    output wire signed [31:0] result
);
    wire [4:0]  amount = shift[7] ? -shift : 5'd0;
    wire [31:0] mask = (32'd1 << amount) - 32'd1;
    wire [31:0] rest = value & mask;
    wire [31:0] threshold = (mask >> 1) + {31'b0, value[31]};

    wire signed [31:0] floor = value >>> amount;

    assign result = floor + {31'b0, rest > threshold};
endmodule
