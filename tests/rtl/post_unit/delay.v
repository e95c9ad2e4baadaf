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
    reg [WIDTH*CYCLES-1:0] stages;

    always @(posedge clock) stages <= reset ? {WIDTH * CYCLES{1'b0}} : {stages, value};  // the oldest falls off

    assign delayed = stages[WIDTH*CYCLES-1 -: WIDTH];
endmodule
