// When things happen: a command of n elements is busy for EX_FILL + ceil(n / LANES) + EX_DRAIN cycles.
//
// The first group of elements is issued so early that its results are written in the first cycle after the fill; then
// comes a group a cycle. From issue to the write port a group takes LATENCY cycles: one for the scratchpad's answer and
// six in the lanes.
module post_sequencer #(
    parameter LANES = 64,
    parameter EX_FILL = 8,
    parameter EX_DRAIN = 8
) (
    input  wire             clock,
    input  wire             reset,
    input  wire             start,
    input  wire [31:0]      elements,
    output wire             busy,
    output wire             issue,
    output reg  [31:0]      index,   // of lane 0's element
    output wire [LANES-1:0] active   // lanes that have an element in this cycle
);
    localparam LATENCY = 7;
    localparam BEFORE = EX_FILL > LATENCY ? EX_FILL - LATENCY : 0;
    localparam AFTER = EX_FILL + EX_DRAIN - BEFORE;
    localparam IDLE = 0, FILL = 1, ISSUE = 2, DRAIN = 3;

    reg [1:0]  state;
    reg [31:0] remaining;
    reg [31:0] waiting;

    // There is no such module: whoever sets too few cycles is told its name.
    generate
        if (AFTER < LATENCY) begin : check
            ex_fill_and_ex_drain_are_less_than_the_7_cycles_of_the_pipeline stop ();
        end
    endgenerate

    assign busy = state != IDLE;
    assign issue = state == ISSUE;

    assign active = !issue ? {LANES{1'b0}} : remaining < LANES ? ~({LANES{1'b1}} << remaining) : {LANES{1'b1}};

    always @(posedge clock)
        if (reset)
            state <= IDLE;
        else
            case (state)
                IDLE:
                    if (start) begin
                        index <= 0;
                        remaining <= elements;
                        waiting <= BEFORE > 0 ? BEFORE : AFTER;
                        state <= BEFORE > 0 ? FILL : elements > 0 ? ISSUE : DRAIN;
                    end
                FILL: begin
                    waiting <= waiting > 1 ? waiting - 1 : AFTER;
                    if (waiting == 1) state <= remaining > 0 ? ISSUE : DRAIN;
                end
                ISSUE: begin
                    index <= index + LANES;
                    remaining <= remaining - LANES;
                    if (remaining <= LANES) state <= DRAIN;
                end
                DRAIN: begin
                    waiting <= waiting - 1;
                    if (waiting == 1) state <= IDLE;
                end
            endcase
endmodule
