// A value some cycles later.
module delay #(
    parameter WIDTH = 1,
    parameter CYCLES = 1
) (
    input  wire             clock,
    input  wire             reset,
    input  wire [WIDTH-1:0] value,
    output wire [WIDTH-1:0] delayed
);
    reg [WIDTH-1:0] stage [0:CYCLES-1];

    integer number;

    always @(posedge clock) begin
        stage[0] <= reset ? {WIDTH{1'b0}} : value;
        for (number = 1; number < CYCLES; number = number + 1)
            stage[number] <= reset ? {WIDTH{1'b0}} : stage[number - 1];
    end

    assign delayed = stage[CYCLES-1];
endmodule
