/* Varints of records (wire/varint.py), for the C modules that walk them. Each function returns 0 for invalid bytes. */
#ifndef BARNABAS_VARINT_H
#define BARNABAS_VARINT_H
#include <stdint.h>

static int varint(const uint8_t **pos, const uint8_t *end, int bits, int64_t *value) {
    const uint8_t *p = *pos;
    uint64_t raw = 0;
    int shift = 0;
    for (;;) {
        if (p >= end) return 0;
        uint64_t byte = *p++;
        if (shift == 63 && (byte & 0x7e)) return 0;
        raw |= (byte & 0x7f) << shift;
        if (byte < 0x80) break;
        shift += 7;
        if (shift >= 70) return 0;
    }
    if (bits == 32 && raw >> 32) return 0;
    *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
    *pos = p;
    return 1;
}

static inline int number(const uint8_t **pos, const uint8_t *end, int bits, int64_t *value) {
    const uint8_t *p = *pos;
    if (p < end && *p < 0x80) {
        *value = (int64_t)(*p >> 1) ^ -(int64_t)(*p & 1);
        *pos = p + 1;
        return 1;
    }
    return varint(pos, end, bits, value);
}

#endif
