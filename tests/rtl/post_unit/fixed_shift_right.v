// The third step: a negative shift (-31 to -1) divides by a power of two, rounded to nearest, ties away from zero.
module fixed_shift_right (
    input  wire signed [31:0] value,
    input  wire signed [7:0]  shift,
    output reg  signed [31:0] result
);
    reg [4:0]         amount;
    reg [31:0]        mask, threshold;
    reg signed [31:0] floor;

    always @* begin
        amount = shift[7] ? -shift : 5'd0;
        mask = (32'd1 << amount) - 32'd1;
        threshold = (mask >> 1) + {31'b0, value[31]};
        floor = value >>> amount;
        result = floor + {31'b0, (value & mask) > threshold};
    end
endmodule
