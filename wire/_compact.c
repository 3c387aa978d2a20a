/* The byte-level work of compaction: finds the last offset of each key, and removes superseded records from batches.
 *
 * A KeyMap has the last offset of each key of a range of offsets, by a keyed 128-bit hash of the key. It is filled batch
 * by batch (index, index_records), then asked which records stay (filter, filter_records). Its twin in Python is in
 * wire/compact.py, which says what the calls mean.
 *
 * index and filter work on many whole batches at a time, without the interpreter, and stop at a batch that they leave to
 * Python: one that is compressed, transactional or a control batch. Every read is checked against the end of its record,
 * of its batch and of the data. Work is bounded by the bytes given: a record has at least 7.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_crc32c.h"
#include "_varint.h"

#define HEADER_SIZE 61
#define LOG_OVERHEAD 12
#define MIN_LENGTH (HEADER_SIZE - LOG_OVERHEAD)
#define CRC_FROM 21
#define MOST_OFFSET (INT64_MAX - 1)
#define CODEC 0x07
#define APPEND_TIME 0x08
#define TRANSACTIONAL 0x10
#define CONTROL 0x20
#define HORIZON 0x40

enum { MORE, FULL, SPECIAL, DAMAGED, END };

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static inline uint64_t load(const uint8_t *p, int size) {
    uint64_t value = 0;
    for (int i = 0; i < size; i++) value = value << 8 | p[i];
    return value;
}

static inline void store(uint8_t *p, int size, uint64_t value) {
    while (size--) {
        p[size] = (uint8_t)value;
        value >>= 8;
    }
}

/* A growing buffer. Until it is allocated, `room` is a guess of its size. */
typedef struct {
    uint8_t *bytes;
    size_t used, room;
} Out;

static uint8_t *out_more(Out *out, size_t size) {
    if (out->bytes == NULL || size > out->room - out->used) {
        size_t room = out->bytes == NULL ? out->room : out->room * 2;
        if (room < out->used + size) room = out->used + size;
        uint8_t *bytes = realloc(out->bytes, room);
        if (bytes == NULL) return NULL;
        out->bytes = bytes;
        out->room = room;
    }
    uint8_t *at = out->bytes + out->used;
    out->used += size;
    return at;
}

static int out_copy(Out *out, const uint8_t *from, size_t size) {
    uint8_t *at = out_more(out, size);
    if (at == NULL) return 0;
    memcpy(at, from, size);
    return 1;
}

static int zigzag(int64_t value, uint8_t *to) {
    uint64_t raw = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    int size = 0;
    while (raw >= 0x80) {
        to[size++] = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    to[size++] = (uint8_t)raw;
    return size;
}

/* --- SipHash-2-4 with 128 bits of output (Aumasson, Bernstein) ---------------------------------------------------- */

#define ROTATE(x, b) ((x) << (b) | (x) >> (64 - (b)))
#define SIP_ROUND                                   \
    do {                                            \
        v0 += v1; v1 = ROTATE(v1, 13); v1 ^= v0;    \
        v0 = ROTATE(v0, 32);                        \
        v2 += v3; v3 = ROTATE(v3, 16); v3 ^= v2;    \
        v0 += v3; v3 = ROTATE(v3, 21); v3 ^= v0;    \
        v2 += v1; v1 = ROTATE(v1, 17); v1 ^= v2;    \
        v2 = ROTATE(v2, 32);                        \
    } while (0)

static inline uint64_t little(const uint8_t *p, int size) {
    uint64_t value = 0;
    for (int i = 0; i < size; i++) value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static void siphash(const uint64_t secret[2], const uint8_t *p, size_t size, uint64_t hash[2]) {
    uint64_t v0 = 0x736f6d6570736575ULL ^ secret[0], v1 = 0x646f72616e646f6dULL ^ secret[1] ^ 0xee;
    uint64_t v2 = 0x6c7967656e657261ULL ^ secret[0], v3 = 0x7465646279746573ULL ^ secret[1];
    uint64_t last = (uint64_t)size << 56;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word = little(p, 8);
        v3 ^= word;
        SIP_ROUND;
        SIP_ROUND;
        v0 ^= word;
    }
    last |= little(p, (int)size);
    v3 ^= last;
    SIP_ROUND;
    SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xee;
    for (int i = 0; i < 4; i++) SIP_ROUND;
    hash[0] = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    for (int i = 0; i < 4; i++) SIP_ROUND;
    hash[1] = v0 ^ v1 ^ v2 ^ v3;
}

/* --- the map ------------------------------------------------------------------------------------------------------ */

typedef struct {
    uint64_t hash[2];
    int64_t after; /* the offset after the last one of the key; 0 if the slot is empty */
} Slot;

typedef struct {
    PyObject_HEAD
    Slot *slots;
    size_t size, most, count;
    uint64_t secret[2];
    int busy; /* a call is using it without holding the interpreter */
} KeyMap;

/* The slot of a key, or the empty one where it would be. There is one: `most` is less than `size`. */
static inline Slot *slot_of(const KeyMap *map, const uint8_t *key, size_t size, uint64_t hash[2]) {
    siphash(map->secret, key, size, hash);
    size_t at = (size_t)(((unsigned __int128)hash[0] * map->size) >> 64);
    for (;;) {
        Slot *slot = &map->slots[at];
        if (slot->after == 0 || (slot->hash[0] == hash[0] && slot->hash[1] == hash[1])) return slot;
        if (++at == map->size) at = 0;
    }
}

/* --- batches ------------------------------------------------------------------------------------------------------ */

typedef struct {
    int64_t base, last, base_time, max_time;
    int32_t count;
    uint32_t attributes;
    size_t size;
} Batch;

/* The batch at `p`, whole, with a right CRC and offsets from `low` up to `high`; MORE if its end is not there, DAMAGED
 * if it is no such batch. */
static int batch_at(const uint8_t *p, const uint8_t *stop, int64_t low, int64_t high, Batch *batch, int *status) {
    *status = MORE;
    if (stop - p < HEADER_SIZE) return 0;
    int32_t length = (int32_t)load(p + 8, 4);
    if (length < MIN_LENGTH || p[16] != 2) {
        *status = DAMAGED;
        return 0;
    }
    batch->size = (size_t)length + LOG_OVERHEAD;
    if ((size_t)(stop - p) < batch->size) return 0;
    batch->base = (int64_t)load(p, 8);
    int32_t delta = (int32_t)load(p + 23, 4);
    batch->attributes = (uint32_t)load(p + 21, 2);
    batch->base_time = (int64_t)load(p + 27, 8);
    batch->max_time = (int64_t)load(p + 35, 8);
    batch->count = (int32_t)load(p + 57, 4);
    if (batch->base < low || delta < 0 || batch->base >= high || delta >= high - batch->base ||
        (uint32_t)load(p + 17, 4) != crc32c(p + CRC_FROM, batch->size - CRC_FROM)) {
        *status = DAMAGED;
        return 0;
    }
    batch->last = batch->base + delta;
    return 1;
}

static void seal(uint8_t *p, size_t size) {
    store(p + 8, 4, size - LOG_OVERHEAD);
    store(p + 17, 4, crc32c(p + CRC_FROM, size - CRC_FROM));
}

typedef struct {
    int64_t offset, timestamp, key_size, value_size;
    const uint8_t *start, *after_time, *key, *end;
} Record;

/* The next record of a batch, after `previous`; 0 if the bytes are not a record. */
static inline int next(const uint8_t **at, const uint8_t *stop, const Batch *batch, int64_t previous, Record *record) {
    const uint8_t *pos = *at;
    int64_t length, delta;
    record->start = pos;
    if (!number(&pos, stop, 32, &length) || length <= 0 || length > stop - pos) return 0;
    const uint8_t *end = pos + length;
    pos++; /* attributes: unused */
    if (!number(&pos, end, 64, &record->timestamp) ||
        __builtin_add_overflow(batch->base_time, record->timestamp, &record->timestamp))
        return 0;
    record->after_time = pos;
    if (!number(&pos, end, 32, &delta) || delta < 0) return 0;
    record->offset = batch->base + delta;
    if (record->offset <= previous || record->offset > batch->last) return 0;
    if (!number(&pos, end, 32, &record->key_size) || record->key_size < -1 || record->key_size > end - pos) return 0;
    record->key = pos;
    if (record->key_size > 0) pos += record->key_size;
    if (!number(&pos, end, 32, &record->value_size) || record->value_size < -1 || record->value_size > end - pos)
        return 0;
    record->end = *at = end;
    return 1;
}

/* Whether the bytes are the records that the batch header announces. */
static int is_whole(const uint8_t *at, const uint8_t *stop, const Batch *batch) {
    Record record;
    int64_t previous = batch->base - 1;
    for (int32_t i = 0; i < batch->count; i++) {
        if (!next(&at, stop, batch, previous, &record)) return 0;
        previous = record.offset;
    }
    return batch->count >= 0 && at == stop;
}

/* Index the keys from offset `start` on. Returns the last offset that is indexed or need not be; `full`: no room. */
static int64_t note_keys(KeyMap *map, const uint8_t *at, const uint8_t *stop, const Batch *batch, int64_t start,
                         int *full) {
    Record record;
    uint64_t hash[2];
    int64_t previous = batch->base - 1;
    *full = 0;
    for (int32_t i = 0; i < batch->count; i++) {
        if (!next(&at, stop, batch, previous, &record)) break; /* cannot happen: `is_whole` has checked it */
        if (record.offset >= start && record.key_size >= 0) {
            Slot *slot = slot_of(map, record.key, (size_t)record.key_size, hash);
            if (slot->after == 0) {
                if (map->count >= map->most) {
                    *full = 1;
                    return record.offset - 1;
                }
                slot->hash[0] = hash[0];
                slot->hash[1] = hash[1];
                map->count++;
            }
            slot->after = record.offset + 1;
        }
        previous = record.offset;
    }
    return batch->last;
}

/* --- what stays --------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t latest; /* the last offset that the map covers: all records after it stay */
    int64_t now, horizon;
} Rules;

typedef struct {
    int unchanged; /* all records stay as they are: nothing is written */
    int64_t count, base_time, max_time;
    int has_horizon;
} Kept;

static inline int stays(const KeyMap *map, const Batch *batch, const Record *record, const Rules *rules) {
    uint64_t hash[2];
    if (record->offset > rules->latest) return 1;
    if (record->key_size < 0) return 0;
    if (record->value_size < 0 && batch->attributes & HORIZON && rules->now >= batch->base_time) return 0;
    return slot_of(map, record->key, (size_t)record->key_size, hash)->after <= record->offset + 1;
}

/* Write the remaining records with timestamps relative to the horizon; 0: no memory, -1: a timestamp is too far off. */
static int rebase(const KeyMap *map, const uint8_t *at, const uint8_t *stop, const Batch *batch, const Rules *rules,
                  Out *out) {
    Record record;
    int64_t previous = batch->base - 1, delta;
    for (int32_t i = 0; i < batch->count; i++) {
        if (!next(&at, stop, batch, previous, &record)) return -1;
        previous = record.offset;
        if (!stays(map, batch, &record, rules)) continue;
        int64_t timestamp = batch->attributes & APPEND_TIME ? batch->max_time : record.timestamp;
        if (__builtin_sub_overflow(timestamp, rules->horizon, &delta)) return -1;
        uint8_t time[10], length[10];
        int time_size = zigzag(delta, time);
        size_t rest = (size_t)(record.end - record.after_time);
        int64_t content = (int64_t)rest + 1 + time_size;
        if (content > INT32_MAX) return -1;
        int length_size = zigzag(content, length);
        uint8_t *to = out_more(out, (size_t)length_size + (size_t)content);
        if (to == NULL) return 0;
        memcpy(to, length, (size_t)length_size);
        to += length_size;
        *to++ = 0;
        memcpy(to, time, (size_t)time_size);
        memcpy(to + time_size, record.after_time, rest);
    }
    return 1;
}

/* Write the remaining records of a batch; 0: the bytes are not records, -1: no memory. */
static int retain(const KeyMap *map, const uint8_t *at, const uint8_t *stop, const Batch *batch, const Rules *rules,
                  Out *out, Kept *kept) {
    Record record;
    const uint8_t *first = at, *run = at;
    size_t mark = out->used;
    int64_t previous = batch->base - 1;
    int tombstones = 0;
    kept->count = 0;
    kept->base_time = batch->base_time;
    kept->max_time = -1;
    kept->has_horizon = (batch->attributes & HORIZON) != 0;
    for (int32_t i = 0; i < batch->count; i++) {
        if (!next(&at, stop, batch, previous, &record)) goto malformed;
        previous = record.offset;
        if (stays(map, batch, &record, rules)) {
            kept->count++;
            tombstones |= record.value_size < 0;
            if (record.timestamp > kept->max_time) kept->max_time = record.timestamp;
        } else {
            if (record.start > run && !out_copy(out, run, (size_t)(record.start - run))) return -1;
            run = record.end;
        }
    }
    if (batch->count < 0 || at != stop) goto malformed;
    kept->unchanged = kept->count == batch->count;
    if (batch->attributes & APPEND_TIME) kept->max_time = batch->max_time;
    if (tombstones && !kept->has_horizon && batch->last <= rules->latest) {
        size_t plain = out->used;
        int done = rebase(map, first, stop, batch, rules, out);
        if (done == 0) return -1;
        if (done > 0) {
            memmove(out->bytes + mark, out->bytes + plain, out->used - plain);
            out->used -= plain - mark;
            kept->unchanged = 0;
            kept->has_horizon = 1;
            kept->base_time = rules->horizon;
            return 1;
        }
        out->used = plain;
    }
    if (!kept->unchanged && stop > run && !out_copy(out, run, (size_t)(stop - run))) return -1;
    return 1;
malformed:
    out->used = mark;
    return 0;
}

static int is_among(int64_t wanted, const int64_t *sorted, size_t count) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sorted[middle] < wanted) low = middle + 1;
        else high = middle;
    }
    return low < count && sorted[low] == wanted;
}

typedef struct {
    int64_t read, kept, opaque;
    Py_ssize_t dropped; /* the position of the last batch if nothing of it stays; else -1 */
} Figures;

/* What remains of one batch, as a batch; 0: no memory. */
static int filter_batch(const KeyMap *map, const uint8_t *p, const Batch *batch, const Rules *rules,
                        const int64_t *lasts, size_t lasts_count, Out *out, Figures *figures, int *is_dropped) {
    size_t mark = out->used;
    Kept kept;
    *is_dropped = 0;
    uint8_t *header = NULL;
    if (batch->base > rules->latest) {
        figures->read += batch->count;
        figures->kept += batch->count;
        return out_copy(out, p, batch->size);
    }
    if (!out_copy(out, p, HEADER_SIZE)) return 0;
    int done = retain(map, p + HEADER_SIZE, p + batch->size, batch, rules, out, &kept);
    if (done < 0) return 0;
    if (!done) {
        figures->opaque++;
        out->used = mark;
        return out_copy(out, p, batch->size);
    }
    figures->read += batch->count;
    figures->kept += kept.count;
    if (kept.count == 0) {
        out->used = mark;
        if (!is_among(batch->last, lasts, lasts_count)) {
            *is_dropped = 1;
            return 1;
        }
        if ((header = out_more(out, HEADER_SIZE)) == NULL) return 0;
        memcpy(header, p, HEADER_SIZE);
        store(header + 21, 2, batch->attributes & (APPEND_TIME | TRANSACTIONAL | CONTROL));
        store(header + 27, 8, UINT64_MAX);
        store(header + 57, 4, 0);
        seal(header, HEADER_SIZE);
        return 1;
    }
    if (kept.unchanged) {
        out->used = mark;
        return out_copy(out, p, batch->size);
    }
    header = out->bytes + mark;
    store(header + 21, 2, batch->attributes | (kept.has_horizon ? HORIZON : 0));
    store(header + 27, 8, (uint64_t)kept.base_time);
    store(header + 35, 8, (uint64_t)kept.max_time);
    store(header + 57, 4, (uint64_t)kept.count);
    seal(header, out->used - mark);
    return 1;
}

/* --- the type ----------------------------------------------------------------------------------------------------- */

static int keymap_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    KeyMap *self = (KeyMap *)object;
    Py_ssize_t slots, most;
    Py_buffer secret;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "KeyMap takes no keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "nny*", &slots, &most, &secret)) return -1;
    if (slots < 2 || most < 1 || most >= slots || slots > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(Slot) || secret.len != 16) {
        PyBuffer_Release(&secret);
        PyErr_SetString(PyExc_ValueError, "a bound out of range");
        return -1;
    }
    self->secret[0] = little(secret.buf, 8);
    self->secret[1] = little((const uint8_t *)secret.buf + 8, 8);
    PyBuffer_Release(&secret);
    if (self->slots != NULL) {
        PyErr_SetString(PyExc_ValueError, "a KeyMap is made once");
        return -1;
    }
    self->slots = calloc((size_t)slots, sizeof(Slot));
    if (self->slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->size = (size_t)slots;
    self->most = (size_t)most;
    return 0;
}

static void keymap_free(PyObject *object) {
    free(((KeyMap *)object)->slots);
    Py_TYPE(object)->tp_free(object);
}

static int begin(KeyMap *self) {
    if (self->slots == NULL || self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "the map is in use");
        return 0;
    }
    self->busy = 1;
    return 1;
}

static PyObject *keymap_index(PyObject *object, PyObject *args) {
    KeyMap *self = (KeyMap *)object;
    Py_buffer view;
    Py_ssize_t pos;
    long long low, high, start, end;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*nLLLL", &view, &pos, &low, &high, &start, &end)) return NULL;
    if (pos < 0 || pos > view.len || low < 0 || high > MOST_OFFSET) {
        PyErr_SetString(PyExc_ValueError, "a bound out of range");
        goto done;
    }
    if (!begin(self)) goto done;
    const uint8_t *data = view.buf, *p = data + pos, *stop = data + view.len;
    int64_t latest = -1;
    int status = MORE;
    Batch batch;
    Py_BEGIN_ALLOW_THREADS
    while (batch_at(p, stop, low, high, &batch, &status)) {
        if (batch.base >= end) {
            status = END;
            break;
        }
        if (batch.attributes & (CODEC | TRANSACTIONAL | CONTROL)) {
            status = SPECIAL;
            break;
        }
        int full = 0;
        if (is_whole(p + HEADER_SIZE, p + batch.size, &batch))
            latest = note_keys(self, p + HEADER_SIZE, p + batch.size, &batch, start, &full);
        else
            latest = batch.last;
        if (full) {
            status = FULL;
            break;
        }
        p += batch.size;
        low = batch.last + 1;
    }
    Py_END_ALLOW_THREADS
    self->busy = 0;
    result = Py_BuildValue("(nLLi)", (Py_ssize_t)(p - data), low, (long long)latest, status);
done:
    PyBuffer_Release(&view);
    return result;
}

static PyObject *keymap_index_records(PyObject *object, PyObject *args) {
    KeyMap *self = (KeyMap *)object;
    Py_buffer view;
    long long count, base, last, start;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*LLLL", &view, &count, &base, &last, &start)) return NULL;
    if (count < 0 || count > INT32_MAX || base < 0 || base > INT64_MAX - 1 - INT32_MAX || last < base ||
        last - base > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a bound out of range");
        goto done;
    }
    if (!begin(self)) goto done;
    Batch batch = {.base = base, .last = last, .count = (int32_t)count};
    const uint8_t *data = view.buf;
    int whole, full = 0;
    int64_t latest = -1;
    Py_BEGIN_ALLOW_THREADS
    whole = is_whole(data, data + view.len, &batch);
    if (whole) latest = note_keys(self, data, data + view.len, &batch, start, &full);
    Py_END_ALLOW_THREADS
    self->busy = 0;
    if (!whole) PyErr_SetString(PyExc_ValueError, "these are not the records of the batch");
    else result = Py_BuildValue("(LN)", (long long)latest, PyBool_FromLong(full));
done:
    PyBuffer_Release(&view);
    return result;
}

static PyObject *keymap_filter(PyObject *object, PyObject *args) {
    KeyMap *self = (KeyMap *)object;
    Py_buffer view, lasts;
    Py_ssize_t pos;
    long long low, high, latest, now, horizon;
    PyObject *result = NULL;
    Out out = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "y*nLLLLLy*", &view, &pos, &low, &high, &latest, &now, &horizon, &lasts)) return NULL;
    if (low < 0 || high > MOST_OFFSET || pos < 0 || pos > view.len || lasts.len % 8 || (uintptr_t)lasts.buf % 8) {
        PyErr_SetString(PyExc_ValueError, "a bound out of range");
        goto done;
    }
    if (!begin(self)) goto done;
    const uint8_t *data = view.buf, *p = data + pos, *stop = data + view.len;
    Rules rules = {latest, now, horizon};
    Figures figures = {0, 0, 0, -1};
    int status = MORE, enough = 1;
    Batch batch;
    out.room = (size_t)(view.len - pos) + 1024;
    Py_BEGIN_ALLOW_THREADS
    while (enough && batch_at(p, stop, low, high, &batch, &status)) {
        if (batch.base <= latest && batch.attributes & (CODEC | TRANSACTIONAL | CONTROL)) {
            status = SPECIAL;
            break;
        }
        int is_dropped;
        enough = filter_batch(self, p, &batch, &rules, lasts.buf, (size_t)lasts.len / 8, &out, &figures, &is_dropped);
        figures.dropped = is_dropped ? p - data : -1;
        p += batch.size;
        low = batch.last + 1;
    }
    Py_END_ALLOW_THREADS
    self->busy = 0;
    if (!enough) {
        PyErr_NoMemory();
        goto done;
    }
    result = Py_BuildValue("(y#nLinLLL)", out.bytes == NULL ? "" : (const char *)out.bytes, (Py_ssize_t)out.used, (Py_ssize_t)(p - data), low, status,
                           figures.dropped, (long long)figures.read, (long long)figures.kept, (long long)figures.opaque);
done:
    free(out.bytes);
    PyBuffer_Release(&view);
    PyBuffer_Release(&lasts);
    return result;
}

static PyObject *keymap_filter_records(PyObject *object, PyObject *args) {
    KeyMap *self = (KeyMap *)object;
    Py_buffer view;
    long long count, base, last, base_time, max_time, latest, now, horizon;
    int attributes, done = 0;
    PyObject *result = NULL;
    Out out = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "y*LLLLLiLLL", &view, &count, &base, &last, &base_time, &max_time, &attributes, &latest,
                          &now, &horizon))
        return NULL;
    if (count < 0 || count > INT32_MAX || base < 0 || base > INT64_MAX - 1 - INT32_MAX || last < base ||
        last - base > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a bound out of range");
        goto done;
    }
    if (!begin(self)) goto done;
    Batch batch = {base, last, base_time, max_time, (int32_t)count, (uint32_t)attributes, 0};
    Rules rules = {latest, now, horizon};
    Kept kept;
    const uint8_t *data = view.buf;
    Py_BEGIN_ALLOW_THREADS
    out.room = (size_t)view.len + 1024;
    done = retain(self, data, data + view.len, &batch, &rules, &out, &kept);
    Py_END_ALLOW_THREADS
    self->busy = 0;
    if (done < 0) PyErr_NoMemory();
    else if (!done) PyErr_SetString(PyExc_ValueError, "these are not the records of the batch");
    else if (kept.unchanged) result = Py_BuildValue("(OLLLi)", Py_None, (long long)kept.count, (long long)kept.base_time,
                                                    (long long)kept.max_time, kept.has_horizon);
    else result = Py_BuildValue("(y#LLLi)", out.bytes == NULL ? "" : (const char *)out.bytes, (Py_ssize_t)out.used, (long long)kept.count,
                                (long long)kept.base_time, (long long)kept.max_time, kept.has_horizon);
done:
    free(out.bytes);
    PyBuffer_Release(&view);
    return result;
}

static PyObject *keymap_count(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromSize_t(((KeyMap *)object)->count);
}

static PyMethodDef keymap_methods[] = {
    {"index", keymap_index, METH_VARARGS, "See wire.compact.KeyMap.index."},
    {"index_records", keymap_index_records, METH_VARARGS, "See wire.compact.KeyMap.index_records."},
    {"filter", keymap_filter, METH_VARARGS, "See wire.compact.KeyMap.filter."},
    {"filter_records", keymap_filter_records, METH_VARARGS, "See wire.compact.KeyMap.filter_records."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef keymap_getters[] = {
    {"count", keymap_count, NULL, "Keys in the map.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject keymap_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "barnabas.wire._compact.KeyMap",
    .tp_basicsize = sizeof(KeyMap),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "See wire.compact.KeyMap.",
    .tp_new = PyType_GenericNew,
    .tp_init = keymap_init,
    .tp_dealloc = keymap_free,
    .tp_methods = keymap_methods,
    .tp_getset = keymap_getters,
};

/* --- indexes ------------------------------------------------------------------------------------------------------ */

static PyObject *index_batches(PyObject *self, PyObject *args) {
    Py_buffer view;
    long long base, position, interval, since, max_time, max_offset, indexed_time;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*LLLLLLL", &view, &base, &position, &interval, &since, &max_time, &max_offset,
                          &indexed_time))
        return NULL;
    PyObject *result = NULL;
    Out entries = {NULL, 0, 0}, times = {NULL, 0, 0};
    const uint8_t *data = view.buf, *p = data, *stop = data + view.len;
    int enough = 1;
    Py_BEGIN_ALLOW_THREADS
    while (stop - p >= HEADER_SIZE) {
        int32_t length = (int32_t)load(p + 8, 4);
        if (length < MIN_LENGTH || length > stop - p - LOG_OVERHEAD) break;
        int64_t last = (int64_t)(load(p, 8) + (uint64_t)(int32_t)load(p + 23, 4)), time = (int64_t)load(p + 35, 8);
        if (time > max_time) {
            max_time = time;
            max_offset = last;
        }
        if (since > interval) {
            uint8_t *to = out_more(&entries, 8);
            if (to == NULL) {
                enough = 0;
                break;
            }
            uint64_t entry = ((uint64_t)last - (uint64_t)base) << 32 | (uint32_t)(position + (p - data));
            memcpy(to, &entry, 8);
            if (max_time > indexed_time) {
                if ((to = out_more(&times, 12)) == NULL) {
                    enough = 0;
                    break;
                }
                store(to, 8, (uint64_t)max_time);
                store(to + 8, 4, (uint64_t)max_offset - (uint64_t)base);
                indexed_time = max_time;
            }
            since = 0;
        }
        since += length + LOG_OVERHEAD;
        p += length + LOG_OVERHEAD;
    }
    Py_END_ALLOW_THREADS
    if (!enough) PyErr_NoMemory();
    else if (p != stop) PyErr_SetString(PyExc_ValueError, "these are not whole batches");
    else
        result = Py_BuildValue("(y#y#LLLL)", entries.bytes == NULL ? "" : (const char *)entries.bytes,
                               (Py_ssize_t)entries.used, times.bytes == NULL ? "" : (const char *)times.bytes,
                               (Py_ssize_t)times.used, since, max_time, max_offset, indexed_time);
    free(entries.bytes);
    free(times.bytes);
    PyBuffer_Release(&view);
    return result;
}

static PyObject *siphash_of(PyObject *self, PyObject *args) {
    Py_buffer secret, data;
    uint64_t key[2], hash[2];
    uint8_t out[16];
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*", &secret, &data)) return NULL;
    int is_key = secret.len == 16;
    if (is_key) {
        key[0] = little(secret.buf, 8);
        key[1] = little((const uint8_t *)secret.buf + 8, 8);
        siphash(key, data.buf, (size_t)data.len, hash);
    }
    PyBuffer_Release(&secret);
    PyBuffer_Release(&data);
    if (!is_key) {
        PyErr_SetString(PyExc_ValueError, "a secret has 16 bytes");
        return NULL;
    }
    for (int i = 0; i < 16; i++) out[i] = (uint8_t)(hash[i / 8] >> (8 * (i % 8)));
    return PyBytes_FromStringAndSize((const char *)out, 16);
}

static PyObject *crc_by_tables(PyObject *self, PyObject *args) {
    Py_buffer data;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*", &data)) return NULL;
    uint32_t crc = crc32c_by_tables(data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

static PyMethodDef methods[] = {
    {"index_batches", index_batches, METH_VARARGS, "See wire.compact.index_batches."},
    {"siphash", siphash_of, METH_VARARGS, "SipHash-2-4-128, for its test."},
    {"crc_by_tables", crc_by_tables, METH_VARARGS, "CRC-32C as processors without an instruction get it, for its test."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_compact", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compact(void) {
    crc32c_init();
    if (PyType_Ready(&keymap_type) < 0) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL) return NULL;
    Py_INCREF(&keymap_type);
    if (PyModule_AddObject(made, "KeyMap", (PyObject *)&keymap_type) < 0) {
        Py_DECREF(&keymap_type);
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
