/* CRC-32C (RFC 3720, appendix B.4): by the processor's instruction if it has one, otherwise with eight tables. */
#ifndef BARNABAS_CRC32C_H
#define BARNABAS_CRC32C_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32C_POLYNOMIAL 0x82f63b78u

static uint32_t crc_tables[8][256];

static void crc32c_init(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ CRC32C_POLYNOMIAL : crc >> 1;
        crc_tables[0][i] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int i = 0; i < 256; i++)
            crc_tables[table][i] = (crc_tables[table - 1][i] >> 8) ^ crc_tables[0][crc_tables[table - 1][i] & 0xff];
}

static uint32_t crc32c_by_tables(const uint8_t *p, size_t size) {
    uint32_t crc = 0xffffffffu;
    for (; size >= 8; p += 8, size -= 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = crc_tables[7][crc & 0xff] ^ crc_tables[6][crc >> 8 & 0xff] ^ crc_tables[5][crc >> 16 & 0xff] ^
              crc_tables[4][crc >> 24] ^ crc_tables[3][p[4]] ^ crc_tables[2][p[5]] ^ crc_tables[1][p[6]] ^
              crc_tables[0][p[7]];
    }
    for (; size; p++, size--) crc = (crc >> 8) ^ crc_tables[0][(crc ^ *p) & 0xff];
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_by_instruction(const uint8_t *p, size_t size) {
    uint64_t crc = 0xffffffffu, word;
    for (; size >= 8; p += 8, size -= 8) {
        memcpy(&word, p, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; size; p++, size--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *p);
    return ~(uint32_t)crc;
}
#define CRC32C_HAS_INSTRUCTION __builtin_cpu_supports("sse4.2")
#else
#define crc32c_by_instruction crc32c_by_tables
#define CRC32C_HAS_INSTRUCTION 0
#endif

static inline uint32_t crc32c(const uint8_t *p, size_t size) {
    return CRC32C_HAS_INSTRUCTION ? crc32c_by_instruction(p, size) : crc32c_by_tables(p, size);
}

#endif
