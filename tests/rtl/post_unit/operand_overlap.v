// Whether results would be written where operands are still to be read.
//
// Elements are read and written in ascending order, so a result in place or before its operand is fine. One that begins
// inside an operand would overwrite it, and channel records are read up to the last element.
module operand_overlap (
    input  wire [31:0] elements,
    input  wire        by_channel,
    input  wire        two_operands,
    input  wire        wide_input,
    input  wire        wide_output,
    input  wire [31:0] first_address,
    input  wire [31:0] second_address,
    input  wire [31:0] record_address,
    input  wire [31:0] record_bytes,
    input  wire [31:0] output_address,
    output wire        overlap
);
    wire [31:0] input_bytes = wide_input ? elements << 2 : elements;
    wire [31:0] output_bytes = wide_output ? elements << 2 : elements;

    wire in_first = output_address > first_address & output_address < first_address + input_bytes;
    wire in_second = output_address > second_address & output_address < second_address + input_bytes;
    wire in_records = output_address < record_address + record_bytes & record_address < output_address + output_bytes;

    assign overlap = in_first | (two_operands & in_second) | (by_channel & in_records);
endmodule
