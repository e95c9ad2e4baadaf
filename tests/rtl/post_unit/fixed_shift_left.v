// The first step of a fixed-point scaling: a positive shift (0 to 30) applied to the value, held within int32.
module fixed_shift_left (
    input  wire signed [39:0] value,
    input  wire signed [7:0]  shift,
    output reg  signed [31:0] result
);
    reg [4:0]         amount;
    reg signed [70:0] wide;

    always @* begin
        amount = shift[7] ? 5'd0 : shift[4:0];
        wide = $signed({{31{value[39]}}, value}) <<< amount;
        result = wide[70:31] == {40{wide[31]}} ? wide[31:0] : {wide[70], {31{~wide[70]}}};
    end
endmodule
