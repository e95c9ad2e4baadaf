// A scaled value becomes int8: the offset is added, then the command's limits hold.
module clamp_int8 (
    input  wire signed [31:0] value,
    input  wire signed [16:0] offset,
    input  wire signed [7:0]  low,
    input  wire signed [7:0]  high,
    output wire signed [7:0]  result
);
    wire signed [32:0] moved = value + offset;

    assign result = moved < low ? low : moved > high ? high : moved[7:0];
endmodule
