#include "dla_host.h"

#ifdef __FAST_MATH__
#error "compile dla_host.c without -ffast-math: it must round as IEEE 754 says"
#endif

/* Round to the nearest integer, ties to even; |value| < 2^22. */
static int32_t round_half_even(float value) {
    volatile float moved = value + 12582912.0f; /* 1.5 * 2^23: the sum has no fraction bits */
    return (int32_t)(moved - 12582912.0f);
}

void dla_quantize(void *to, enum dla_type type, const float *from, uint32_t count, float scale,
                  int32_t zero_point) {
    const int wide = type == DLA_INT16 || type == DLA_UINT16;
    const int is_signed = type == DLA_INT8 || type == DLA_INT16;
    const int32_t low = is_signed ? (wide ? -32768 : -128) : 0;
    const int32_t high = low + (wide ? 65535 : 255);
    const float least = (float)(low - zero_point);
    const float most = (float)(high - zero_point);
    for (uint32_t n = 0; n < count; n++) {
        float value = from[n] / scale;
        int32_t found;
        value = value > least ? value : least; /* not a number becomes the least value */
        value = value < most ? value : most;
        found = round_half_even(value) + zero_point;
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

void dla_dequantize(float *to, const void *from, enum dla_type type, uint32_t count, float scale,
                    int32_t zero_point) {
    for (uint32_t n = 0; n < count; n++) {
        to[n] = (float)(int32_t)(load(from, type, n) - zero_point) * scale;
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

static float *combine(float *to, const float *first, const float *second, char operation,
                      const struct dla_dimension *dimensions, uint32_t rank) {
    if (rank != 0) {
        for (uint32_t n = 0; n < dimensions->count; n++) {
            to = combine(to, first, second, operation, dimensions + 1, rank - 1);
            first += dimensions->from;
            second += dimensions->to;
        }
        return to;
    }
    switch (operation) {
    case '+': *to = *first + *second; break;
    case '-': *to = *first - *second; break;
    case '*': *to = *first * *second; break;
    default: *to = *first / *second;
    }
    return to + 1;
}

void dla_combine(float *to, const float *first, const float *second, char operation,
                 const struct dla_dimension *dimensions, uint32_t rank) {
    (void)combine(to, first, second, operation, dimensions, rank);
}

int dla_any(const uint8_t *bytes, uint32_t count) {
    for (uint32_t n = 0; n < count; n++) {
        if (bytes[n] != 0) {
            return 1;
        }
    }
    return 0;
}
