// Requantisation and element-wise instructions: OP_REQUANT, OP_ACT_RELU, OP_ACT_LRELU, OP_E_ABS, OP_C_MIN, OP_C_MAX,
// OP_E_ADD, OP_E32_ADD and OP_E32_SHIFT of the unit EX. Everything else is skipped, for others to execute.
//
// Command words come one a cycle while `word_ready`. A SET writes its register. After an operation either `skipped`
// is 1 for one cycle, or `busy` is for EX_FILL + ceil(elements / LANES) + EX_DRAIN cycles. A `fault` (int32 overflow,
// an illegal setting) stays until reset.
//
// The scratchpad answers in the next cycle. Operands come from two byte addresses on, an element a lane, four bytes
// apart if `read_wide` and one if not, each in 32 bits of its own; channel records from an address a lane, two words
// each. Results go to one address on, likewise. An operation whose results would overwrite what is still to be read
// (operand_overlap.v) is skipped: a unit that streams cannot do it.
`include "dla_isa.vh"

module dla_post_unit #(
    parameter FIXED = 0,     // Arch.numerics: 0 onnxruntime, 1 fixed
    parameter LANES = 64,    // Arch.post_lanes
    parameter EX_FILL = 8,   // Timing.ex_fill
    parameter EX_DRAIN = 8   // Timing.ex_drain
) (
    input  wire                 clock,
    input  wire                 reset,
    input  wire [63:0]          word,
    input  wire                 word_valid,
    output wire                 word_ready,
    output reg                  skipped,
    output wire                 busy,
    output reg                  fault,
    output wire [LANES-1:0]     read_lanes,
    output wire                 read_wide,
    output wire [31:0]          first_address,
    output wire [31:0]          second_address,
    input  wire [LANES*32-1:0]  first_data,
    input  wire [LANES*32-1:0]  second_data,
    output wire                 record_enable,
    output reg  [LANES*32-1:0]  record_address,
    input  wire [LANES*64-1:0]  record_data,
    output wire [LANES-1:0]     write_lanes,
    output wire                 write_wide,
    output wire [31:0]          write_address,
    output reg  [LANES*32-1:0]  write_data
);
    localparam RECORD_BYTES = FIXED ? 12 : 8;
    localparam LATENCY = 7;

    // The word at the input: a SET, one of our operations, or somebody else's.
    wire [7:0]  opcode_in = word[`DLA_OPCODE_SHIFT +: `DLA_OPCODE_WIDTH];
    wire [1:0]  rounding_in = word[`DLA_OP_E32_SHIFT_ROUNDING_SHIFT +: `DLA_OP_E32_SHIFT_ROUNDING_WIDTH];
    wire        is_set = opcode_in == `DLA_SET;
    wire        accepted = word_valid & word_ready & !is_set;
    wire        supported, overlap, two_operands, by_channel, wide_input, wide_output, illegal;
    wire        start = accepted & supported & !overlap;

    wire [31:0] input_address, operand_address, channel_address, output_address, length;
    wire [19:0] rows, channels;
    wire [15:0] input_zero_point, operand_zero_point, output_zero_point;
    wire [7:0]  clamp_low, clamp_high, offset, shift_a, shift_b, shift_y;
    wire [31:0] scale_a, scale_b, scale_y;

    post_registers registers (
        .clock(clock), .reset(reset), .write(word_valid & word_ready & is_set), .word(word),
        .input_address(input_address), .operand_address(operand_address), .channel_address(channel_address),
        .output_address(output_address), .rows(rows), .channels(channels), .length(length),
        .input_zero_point(input_zero_point), .operand_zero_point(operand_zero_point),
        .output_zero_point(output_zero_point), .clamp_low(clamp_low), .clamp_high(clamp_high), .offset(offset),
        .scale_a(scale_a), .scale_b(scale_b), .scale_y(scale_y), .shift_a(shift_a), .shift_b(shift_b),
        .shift_y(shift_y)
    );

    // The operation in execution. Between two operations no register changes while it runs: words wait until then.
    reg [7:0] opcode;
    reg       to_the_right;
    reg [1:0] rounding;

    assign word_ready = !busy & !reset;

    post_decoder #(.FIXED(FIXED)) decoder (
        .opcode(busy ? opcode : opcode_in), .rounding(rounding_in), .clamp_low(clamp_low), .clamp_high(clamp_high),
        .scale_a(scale_a), .scale_y(scale_y), .shift_a(shift_a), .supported(supported), .two_operands(two_operands),
        .by_channel(by_channel), .wide_input(wide_input), .wide_output(wide_output), .illegal(illegal)
    );

    always @(posedge clock) begin
        skipped <= accepted & !start & !reset;
        if (start) begin
            opcode <= opcode_in;
            to_the_right <= word[`DLA_OP_E32_SHIFT_DIRECTION_SHIFT];
            rounding <= rounding_in;
        end
    end

    // Which elements are where.
    wire [31:0]         elements = by_channel ? rows * channels * length : length;
    wire [31:0]         record_bytes = channels * RECORD_BYTES;
    wire [31:0]         index, written_index;
    wire [LANES-1:0]    active, written;
    wire [LANES*20-1:0] channel;
    wire                issue;

    post_sequencer #(.LANES(LANES), .EX_FILL(EX_FILL), .EX_DRAIN(EX_DRAIN)) sequencer (
        .clock(clock), .reset(reset), .start(start), .elements(elements), .busy(busy), .issue(issue), .index(index),
        .active(active)
    );
    operand_overlap overlap_check (
        .elements(elements), .by_channel(by_channel), .two_operands(two_operands), .wide_input(wide_input),
        .wide_output(wide_output), .first_address(input_address), .second_address(operand_address),
        .record_address(channel_address), .record_bytes(record_bytes), .output_address(output_address),
        .overlap(overlap)
    );
    channel_counter #(.LANES(LANES)) counter (
        .clock(clock), .start(start), .advance(issue), .channels(channels), .length(length), .channel(channel)
    );
    delay #(.WIDTH(LANES + 32), .CYCLES(LATENCY)) until_written (
        .clock(clock), .reset(reset), .value({active, index}), .delayed({written, written_index})
    );

    assign read_lanes = active;
    assign read_wide = wide_input;
    assign first_address = input_address + (wide_input ? index << 2 : index);
    assign second_address = operand_address + (wide_input ? index << 2 : index);
    assign record_enable = by_channel;
    assign write_wide = wide_output;
    assign write_address = output_address + (wide_output ? written_index << 2 : written_index);

    // The first word of a channel record is the bias, which is in the sums already.
    reg [LANES*32-1:0] addresses;
    integer            number;

    always @* begin
        for (number = 0; number < LANES; number = number + 1)
            addresses[number*32 +: 32] = channel_address + channel[number*20 +: 20] * RECORD_BYTES + 4;
        record_address = addresses;
    end

    // The lanes, and the register of their last stage.
    wire [31:0] result [0:LANES-1];
    wire        overflow [0:LANES-1];

    genvar lane;
    generate
        for (lane = 0; lane < LANES; lane = lane + 1) begin : lanes
            post_lane #(.FIXED(FIXED)) post_lane (
                .clock(clock), .reset(reset), .opcode(opcode), .to_the_right(to_the_right), .rounding(rounding),
                .input_zero_point(input_zero_point), .operand_zero_point(operand_zero_point),
                .output_zero_point(output_zero_point), .clamp_low(clamp_low), .clamp_high(clamp_high),
                .offset(offset), .scale_a(scale_a), .scale_b(scale_b), .scale_y(scale_y), .shift_a(shift_a),
                .shift_b(shift_b), .shift_y(shift_y), .first(first_data[lane*32 +: 32]),
                .second(second_data[lane*32 +: 32]), .channel_scale(record_data[lane*64 +: 32]),
                .channel_shift(record_data[lane*64 + 32 +: 32]), .result(result[lane]), .overflow(overflow[lane])
            );
        end
    endgenerate

    reg [LANES*32-1:0] results;
    reg [LANES-1:0]    overflows, overflowed;
    integer            collected;

    always @(posedge clock) begin
        for (collected = 0; collected < LANES; collected = collected + 1) begin
            results[collected*32 +: 32] = result[collected];
            overflows[collected] = overflow[collected];
        end
        write_data <= results;
        overflowed <= overflows;
    end

    assign write_lanes = fault ? {LANES{1'b0}} : written & ~overflowed;

    always @(posedge clock)
        if (reset)
            fault <= 0;
        else if ((start & illegal) | (|(written & overflowed)))
            fault <= 1;
endmodule
