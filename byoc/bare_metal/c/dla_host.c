#include "dla_host.h"

#ifdef __FAST_MATH__
#error "compile dla_host.c without -ffast-math: it must round as IEEE 754 says"
#endif

/* Round to the nearest integer, ties to even; |value| < 2^22. */
static int32_t round_half_even(float value) {
    volatile float moved = value + 12582912.0f; /* 1.5 * 2^23: the sum has no fraction bits */
    return (int32_t)(moved - 12582912.0f);
}

static int32_t round_half_away(float value) {
    const int32_t whole = (int32_t)value;
    const float rest = value - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* Return a number within the limits of a type, less its zero point. */
static float limit(float value, int32_t low, int32_t high, int32_t zero_point) {
    const float least = (float)(low - zero_point);
    const float most = (float)(high - zero_point);
    value = value > least ? value : least; /* not a number becomes the least value */
    return value < most ? value : most;
}

static int32_t saturate(float value, int32_t low, int32_t high, int32_t zero_point) {
    return round_half_even(limit(value, low, high, zero_point)) + zero_point;
}

void dla_quantize(void *to, enum dla_type type, const float *from, uint32_t count,
                  const float *scales, const int32_t *zero_points, uint32_t channels,
                  uint32_t inner, enum dla_rounding rounding) {
    const int wide = type == DLA_INT16 || type == DLA_UINT16;
    const int is_signed = type == DLA_INT8 || type == DLA_INT16;
    const int32_t low = is_signed ? (wide ? -32768 : -128) : 0;
    const int32_t high = low + (wide ? 65535 : 255);
    for (uint32_t n = 0; n < count; n++) {
        const uint32_t channel = n / inner % channels;
        const float scale = scales[channel];
        /* A zero point has the tensor's type; another one, from a damaged image, would overflow. */
        const int32_t given = zero_points[channel];
        const int32_t zero = given < low ? low : given > high ? high : given;
        const float value = rounding == DLA_RECIPROCAL ? from[n] * (1.0f / scale) : from[n] / scale;
        const int32_t found = rounding == DLA_HALF_AWAY
                                  ? round_half_away(limit(value, low, high, zero)) + zero
                                  : saturate(value, low, high, zero);
        if (wide) {
            ((uint16_t *)to)[n] = (uint16_t)found;
        } else {
            ((uint8_t *)to)[n] = (uint8_t)found;
        }
    }
}

static int64_t load(const void *from, enum dla_type type, uint32_t n) {
    switch (type) {
    case DLA_INT8: return ((const int8_t *)from)[n];
    case DLA_UINT8:
    case DLA_BOOL: return ((const uint8_t *)from)[n];
    case DLA_INT16: return ((const int16_t *)from)[n];
    case DLA_UINT16: return ((const uint16_t *)from)[n];
    case DLA_INT32: return ((const int32_t *)from)[n];
    default: return ((const int64_t *)from)[n];
    }
}

void dla_dequantize(float *to, const void *from, enum dla_type type, uint32_t count,
                    const float *scales, const int32_t *zero_points, uint32_t channels,
                    uint32_t inner) {
    for (uint32_t n = 0; n < count; n++) {
        const uint32_t channel = n / inner % channels;
        to[n] = (float)(int32_t)(load(from, type, n) - zero_points[channel]) * scales[channel];
    }
}

void dla_pack(uint8_t *to, const uint8_t *from, const struct dla_layout *layout) {
    const uint32_t channels = layout->channels, positions = layout->positions;
    const uint32_t size = layout->item_bytes;
    const size_t image = (size_t)channels * positions * size;
    for (uint32_t n = 0; n < layout->images; n++, from += image) {
        for (uint32_t base = 0; base < channels; base += layout->atom) {
            for (uint32_t position = 0; position < positions; position++) {
                for (uint32_t channel = base; channel < base + layout->atom; channel++) {
                    const size_t index = layout->by_row ? (size_t)position * channels + channel
                                                        : (size_t)channel * positions + position;
                    for (uint32_t byte = 0; byte < size; byte++) {
                        *to++ = channel < channels
                                    ? (uint8_t)(from[index * size + byte] ^ layout->flip)
                                    : 0;
                    }
                }
            }
        }
    }
}

void dla_unpack(uint8_t *to, const uint8_t *from, const struct dla_layout *layout) {
    const uint32_t channels = layout->channels, positions = layout->positions;
    const uint32_t size = layout->item_bytes;
    const size_t image = (size_t)channels * positions * size;
    for (uint32_t n = 0; n < layout->images; n++, to += image) {
        for (uint32_t base = 0; base < channels; base += layout->atom) {
            for (uint32_t position = 0; position < positions; position++) {
                for (uint32_t channel = base; channel < base + layout->atom; channel++) {
                    const size_t index = layout->by_row ? (size_t)position * channels + channel
                                                        : (size_t)channel * positions + position;
                    for (uint32_t byte = 0; byte < size; byte++, from++) {
                        if (channel < channels) {
                            to[index * size + byte] = (uint8_t)(*from ^ layout->flip);
                        }
                    }
                }
            }
        }
    }
}

void dla_copy(uint8_t *to, const uint8_t *from, const struct dla_dimension *dimensions,
              uint32_t rank, uint32_t item_bytes) {
    const ptrdiff_t size = (ptrdiff_t)item_bytes;
    if (rank == 0) {
        memcpy(to, from, item_bytes);
    } else if (rank == 1 && dimensions->from == 1 && dimensions->to == 1) {
        memcpy(to, from, (size_t)dimensions->count * item_bytes);
    } else {
        for (uint32_t n = 0; n < dimensions->count; n++) {
            dla_copy(to + size * dimensions->to * (ptrdiff_t)n,
                     from + size * dimensions->from * (ptrdiff_t)n, dimensions + 1, rank - 1,
                     item_bytes);
        }
    }
}

void dla_fill(uint8_t *to, const uint8_t *item, uint32_t count, uint32_t item_bytes) {
    for (uint32_t n = 0; n < count; n++) {
        memcpy(to + (size_t)n * item_bytes, item, item_bytes);
    }
}

void dla_look_up(uint8_t *to, const uint8_t *from, uint32_t count, const uint8_t *table) {
    for (uint32_t n = 0; n < count; n++) {
        to[n] = table[from[n]];
    }
}

void dla_widen_index(int64_t *to, const int8_t *from, uint32_t count, int64_t offset) {
    for (uint32_t n = 0; n < count; n++) {
        to[n] = from[n] + offset;
    }
}

int dla_gather(uint8_t *to, const uint8_t *rows, const void *indices, enum dla_type index_type,
               uint32_t index_count, uint32_t outer, uint32_t row_count, uint32_t row_bytes) {
    for (uint32_t block = 0; block < outer; block++) {
        for (uint32_t n = 0; n < index_count; n++) {
            int64_t index = load(indices, index_type, n);
            index += index < 0 ? (int64_t)row_count : 0;
            if (index < 0 || index >= (int64_t)row_count) {
                return -1;
            }
            memcpy(to, rows + (size_t)index * row_bytes, row_bytes);
            to += row_bytes;
        }
        rows += (size_t)row_count * row_bytes;
    }
    return 0;
}

/* Function of two bytes: the arguments of dla_combine_bytes. */
struct pair {
    const uint8_t *table;
    const double *factors;
    char operation;
    float zero_point;
    int32_t low, high;
};

static uint8_t combine_bytes(uint8_t first, uint8_t second, const struct pair *pair) {
    if (pair->table != NULL) {
        return pair->table[256u * first + second];
    }
    const double one = pair->factors[first], other = pair->factors[256u + second];
    const float value = (float)(pair->operation == '*' ? one * other : one + other);
    volatile float moved = value + pair->zero_point;
    return (uint8_t)saturate(moved, pair->low, pair->high, 0);
}

/* Combine bytes if `pair` is given, else floats; return the end of the results. */
static uint8_t *combine(uint8_t *to, const uint8_t *first, const uint8_t *second, char operation,
                        const struct pair *pair, const struct dla_dimension *dimensions,
                        uint32_t rank) {
    const ptrdiff_t size = pair == NULL ? (ptrdiff_t)sizeof(float) : 1;
    if (rank != 0) {
        for (uint32_t n = 0; n < dimensions->count; n++) {
            to = combine(to, first, second, operation, pair, dimensions + 1, rank - 1);
            first += size * dimensions->from;
            second += size * dimensions->to;
        }
    } else if (pair != NULL) {
        *to = combine_bytes(*first, *second, pair);
        to += size;
    } else {
        const float one = *(const float *)(const void *)first;
        const float other = *(const float *)(const void *)second;
        float *const result = (float *)(void *)to;
        switch (operation) {
        case '+': *result = one + other; break;
        case '-': *result = one - other; break;
        case '*': *result = one * other; break;
        default: *result = one / other;
        }
        to += size;
    }
    return to;
}

void dla_combine(float *to, const float *first, const float *second, char operation,
                 const struct dla_dimension *dimensions, uint32_t rank) {
    (void)combine((uint8_t *)to, (const uint8_t *)first, (const uint8_t *)second, operation, NULL,
                  dimensions, rank);
}

void dla_combine_bytes(uint8_t *to, const uint8_t *first, const uint8_t *second,
                       const uint8_t *table, const double *factors, char operation,
                       float zero_point, int32_t low, int32_t high,
                       const struct dla_dimension *dimensions, uint32_t rank) {
    const struct pair pair = {table, factors, operation, zero_point, low, high};
    (void)combine(to, first, second, operation, &pair, dimensions, rank);
}

/* Return a byte as a number; with `flip` 0x80 the byte is unsigned and 128 is subtracted. */
static int32_t to_number(uint8_t byte, uint8_t flip) {
    return (int32_t)((uint32_t)byte ^ flip ^ 0x80u) - 128;
}

/* Return one result of a product: the sum over its window, before scaling. */
static int32_t sum_window(const uint8_t *from, const uint8_t *weights, uint32_t sum, uint32_t row,
                          uint32_t column, const struct dla_product *p) {
    for (uint32_t y = 0; y < p->kernel_rows; y++) {
        const uint32_t at = row * p->row_stride + y * p->row_dilation - p->top;
        for (uint32_t x = 0; x < p->kernel_columns && at < p->rows; x++, weights++) {
            const uint32_t beside = column * p->column_stride + x * p->column_dilation - p->left;
            for (uint32_t z = 0; z < p->depth && beside < p->columns; z++) {
                const size_t plane = (size_t)z * p->rows + at;
                const int32_t input = to_number(from[plane * p->columns + beside], p->input_flip);
                const int32_t weight =
                    to_number(weights[(size_t)z * p->depth_step], p->weight_flip);
                sum += (uint32_t)((input - p->input_zero) * (weight - p->weight_zero));
            }
        }
        weights += at < p->rows ? 0 : p->kernel_columns;
    }
    return (int32_t)sum;
}

void dla_multiply(uint8_t *to, const uint8_t *from, const uint8_t *weights, const int32_t *bias,
                  const float *scales, const struct dla_product *product) {
    const struct dla_product *const p = product;
    for (uint32_t n = 0; n < p->images * p->groups; n++) {
        const uint32_t first = n % p->groups * p->outputs;
        for (uint32_t output = first; output < first + p->outputs; output++) {
            for (uint32_t row = 0; row < p->result_rows; row++) {
                for (uint32_t column = 0; column < p->result_columns; column++) {
                    const int32_t sum = sum_window(from, weights + (size_t)output * p->output_step,
                                                   (uint32_t)bias[output], row, column, p);
                    const int32_t found =
                        saturate((float)sum * scales[output], p->low, p->high, p->zero_point);
                    *to++ = (uint8_t)((uint32_t)found ^ p->result_flip);
                }
            }
        }
        from += (size_t)p->depth * p->rows * p->columns;
    }
}

void dla_softmax(uint8_t *to, const uint8_t *from, const float *table, uint32_t outer,
                 uint32_t count, uint32_t inner, float factor, int32_t zero_point,
                 uint8_t input_flip, uint8_t result_flip) {
    for (uint32_t n = 0; n < outer * inner; n++) {
        const size_t begin = (size_t)(n / inner) * count * inner + n % inner;
        int32_t most = -128;
        float total = 0.0f;
        for (uint32_t at = 0; at < count; at++) {
            const int32_t number = to_number(from[begin + (size_t)at * inner], input_flip);
            most = number > most ? number : most;
        }
        for (uint32_t at = 0; at < count; at++) {
            total += table[255 + to_number(from[begin + (size_t)at * inner], input_flip) - most];
        }
        for (uint32_t at = 0; at < count; at++) {
            const size_t place = begin + (size_t)at * inner;
            const float value = table[255 + to_number(from[place], input_flip) - most];
            const int32_t found = saturate(value * factor / total, -128, 127, zero_point);
            to[place] = (uint8_t)((uint32_t)found ^ result_flip);
        }
    }
}

int dla_any(const uint8_t *bytes, uint32_t count) {
    for (uint32_t n = 0; n < count; n++) {
        if (bytes[n] != 0) {
            return 1;
        }
    }
    return 0;
}
