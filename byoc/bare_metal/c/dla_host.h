/* Host parts: the operations of a network that the processor computes.
 *
 * C99, no memory allocation, no library function but memcpy. Floats are IEEE 754 single precision,
 * rounded to nearest even; compile without -ffast-math. All buffers are aligned to their elements.
 */
#ifndef DLA_HOST_H
#define DLA_HOST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <string.h>
extern "C" {
#else
/* The only library function; a freestanding compiler has no string.h. */
void *memcpy(void *to, const void *from, size_t count);
#endif

enum dla_type { DLA_INT8, DLA_UINT8, DLA_BOOL, DLA_INT16, DLA_UINT16, DLA_INT32, DLA_INT64, DLA_FLOAT32 };

/* Tensor as the device stores it: atoms of `atom` channels of one position (docs/machine.md). */
struct dla_layout {
    uint32_t images, channels, positions, atom;
    uint8_t by_row;     /* elements ordered by position, then channel */
    uint8_t item_bytes; /* bytes of an element */
    uint8_t flip;       /* 0x80: the host has uint8, the device int8 */
};

/* One dimension of a strided copy: number of elements, and steps in elements. */
struct dla_dimension {
    uint32_t count;
    int32_t from, to;
};

/* Convolution or matrix product of bytes: `depth` inputs and `outputs` results of each group. */
struct dla_product {
    uint32_t images, groups, depth, outputs;
    uint32_t rows, columns, result_rows, result_columns, kernel_rows, kernel_columns;
    uint32_t row_stride, column_stride, row_dilation, column_dilation, top, left;
    uint32_t output_step, depth_step;   /* bytes of the weights from output to output, input to input */
    int32_t input_zero, weight_zero, zero_point, low, high;
    uint8_t input_flip, weight_flip, result_flip; /* 0x80: the tensor has uint8, the numbers are int8 */
};

/* Rule of quantisation. */
enum dla_rounding {
    DLA_DIVIDE,     /* round_half_even(from / scale) */
    DLA_RECIPROCAL, /* round_half_even(from * (1 / scale)) */
    DLA_HALF_AWAY   /* round_half_away(from / scale) */
};

/* Quantise: to = saturate(rounded(from, scale) + zero_point). Element n has the scale and the zero
 * point number (n / inner) % channels. */
void dla_quantize(void *to, enum dla_type type, const float *from, uint32_t count,
                  const float *scales, const int32_t *zero_points, uint32_t channels,
                  uint32_t inner, enum dla_rounding rounding);
/* Dequantise: to = (from - zero_point) * scale. */
void dla_dequantize(float *to, const void *from, enum dla_type type, uint32_t count,
                    const float *scales, const int32_t *zero_points, uint32_t channels,
                    uint32_t inner);
/* Convert between the model's order of elements and the device's layout; padding becomes zero. */
void dla_pack(uint8_t *to, const uint8_t *from, const struct dla_layout *layout);
void dla_unpack(uint8_t *to, const uint8_t *from, const struct dla_layout *layout);
/* Copy elements of `item_bytes` bytes at constant steps along `rank` dimensions, outermost first. */
void dla_copy(uint8_t *to, const uint8_t *from, const struct dla_dimension *dimensions,
              uint32_t rank, uint32_t item_bytes);
/* Fill with copies of one element. */
void dla_fill(uint8_t *to, const uint8_t *item, uint32_t count, uint32_t item_bytes);
/* Replace each byte by its entry in a table. */
void dla_look_up(uint8_t *to, const uint8_t *from, uint32_t count, const uint8_t *table);
/* Add `offset` to int8 indices of the device. */
void dla_widen_index(int64_t *to, const int8_t *from, uint32_t count, int64_t offset);
/* Gather rows of `row_bytes` bytes; negative indices count from the end.
 * Return 0, or -1 without writing further rows if an index is out of range. */
int dla_gather(uint8_t *to, const uint8_t *rows, const void *indices, enum dla_type index_type,
               uint32_t index_count, uint32_t outer, uint32_t row_count, uint32_t row_bytes);
/* Element-wise float operation: '+', '-', '*' or '/'.
 * `dimensions` has the steps of both operands: `from` of the first, `to` of the second. */
void dla_combine(float *to, const float *first, const float *second, char operation,
                 const struct dla_dimension *dimensions, uint32_t rank);
/* Element-wise function of two bytes. It is table[first * 256 + second], or for `table` NULL
 * saturate(round_half_even((float)(a + b) + zero_point)), where a and b are entries of `factors`
 * for the bytes: 256 of the first operand, then 256 of the second. `operation` '*' multiplies. */
void dla_combine_bytes(uint8_t *to, const uint8_t *first, const uint8_t *second,
                       const uint8_t *table, const double *factors, char operation,
                       float zero_point, int32_t low, int32_t high,
                       const struct dla_dimension *dimensions, uint32_t rank);
/* Products of bytes: to = saturate(round_half_even(sum * scale) + zero_point). */
void dla_multiply(uint8_t *to, const uint8_t *from, const uint8_t *weights, const int32_t *bias,
                  const float *scales, const struct dla_product *product);
/* Softmax of rows of `count` bytes at distance `inner`; `table` has the exponentials. */
void dla_softmax(uint8_t *to, const uint8_t *from, const float *table, uint32_t outer,
                 uint32_t count, uint32_t inner, float factor, int32_t zero_point,
                 uint8_t input_flip, uint8_t result_flip);
/* Return 1 if any byte is not zero. */
int dla_any(const uint8_t *bytes, uint32_t count);

#ifdef __cplusplus
}
#endif

#endif
