/* Rows of Arrow arrays to the records of one batch, uncompressed and without its header.
 *
 * One function: encode(offset, timestamp, lists, key, value, names, contents, row, base_offset, max_bytes) ->
 * (records, end, max_timestamp). It writes exactly the bytes of streams.encode.python, its twin in Python.
 *
 * A first pass over the rows finds where the batch ends and its size, a second one writes it. Every offset into the data
 * of a column is checked in the first pass, so that arrays that do not hold together are a ValueError.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* A column of byte strings, 64-bit offsets: Arrow's large_binary. */
typedef struct {
    Py_buffer valid, offsets, data;
    Py_ssize_t first, rows; /* of a slice: rows before it, rows in it */
} Blobs;

typedef struct {
    Py_buffer offset, timestamp, lists;
    Blobs key, value, name, content;
    int64_t rows;
} Columns;

typedef struct {
    const uint8_t *start;
    int64_t size; /* -1: null */
} Blob;

static inline uint64_t zigzag(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }

static inline int64_t varint_size(int64_t value) {
    return (70 - __builtin_clzll(zigzag(value) | 1)) / 7;
}

static inline uint8_t *put_varint(uint8_t *to, int64_t value) {
    uint64_t raw = zigzag(value);
    while (raw > 0x7f) {
        *to++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *to++ = (uint8_t)raw;
    return to;
}

static inline Blob blob_at(const Blobs *blobs, int64_t row) {
    Blob none = {NULL, -1}, found;
    const uint8_t *valid = blobs->valid.buf;
    row += blobs->first;
    if (valid && !(valid[row >> 3] >> (row & 7) & 1)) return none;
    const int64_t *offsets = (const int64_t *)blobs->offsets.buf + row;
    found.start = (const uint8_t *)blobs->data.buf + offsets[0];
    found.size = offsets[1] - offsets[0];
    return found;
}

static inline int64_t blob_size(Blob blob) { return varint_size(blob.size) + (blob.size > 0 ? blob.size : 0); }

static inline uint8_t *put_blob(uint8_t *to, Blob blob) {
    to = put_varint(to, blob.size);
    if (blob.size > 0) {
        memcpy(to, blob.start, (size_t)blob.size);
        to += blob.size;
    }
    return to;
}

/* Whether the blob at `row` is inside the data. */
static inline int is_sound(const Blobs *blobs, int64_t row) {
    const int64_t *offsets = (const int64_t *)blobs->offsets.buf + blobs->first + row;
    return 0 <= offsets[0] && offsets[0] <= offsets[1] && offsets[1] <= blobs->data.len;
}

/* Whether the buffers hold as many rows as they should. */
static int holds(const Blobs *blobs, int64_t rows) {
    if (rows == 0) return 1;
    if (blobs->first < 0 || blobs->rows < rows) return 0;
    int64_t last = blobs->first + rows;
    if (blobs->valid.buf && blobs->valid.len * 8 < last) return 0;
    return blobs->offsets.buf && blobs->offsets.len / 8 > last;
}

static int64_t content_size(const Columns *c, int64_t row, int64_t timestamp, int64_t delta) {
    const int64_t *lists = c->lists.buf;
    int64_t size = 1 + varint_size(timestamp) + varint_size(delta);
    size += blob_size(blob_at(&c->key, row)) + blob_size(blob_at(&c->value, row));
    size += varint_size(lists[row + 1] - lists[row]);
    for (int64_t i = lists[row]; i < lists[row + 1]; i++)
        size += blob_size(blob_at(&c->name, i)) + blob_size(blob_at(&c->content, i));
    return size;
}

static int are_sound(const Columns *c, int64_t row) {
    const int64_t *lists = c->lists.buf;
    if (!is_sound(&c->key, row) || !is_sound(&c->value, row) || lists[row] < 0 || lists[row] > lists[row + 1] ||
        lists[row + 1] > c->name.rows)
        return 0;
    for (int64_t i = lists[row]; i < lists[row + 1]; i++)
        if (!is_sound(&c->name, i) || !is_sound(&c->content, i)) return 0;
    return 1;
}

static PyObject *run(const Columns *c, int64_t row, int64_t base_offset, int64_t max_bytes) {
    const int64_t *offset = c->offset.buf, *timestamp = c->timestamp.buf, *lists = c->lists.buf;
    int64_t base_timestamp = timestamp[row], max_timestamp = -1, end = row, total = 0, delta, since;
    for (; end < c->rows; end++) {
        if (__builtin_sub_overflow(offset[end], base_offset, &delta) || delta > INT32_MAX) break;
        if (__builtin_sub_overflow(timestamp[end], base_timestamp, &since)) break;
        if (!are_sound(c, end)) {
            PyErr_SetString(PyExc_ValueError, "an array whose buffers do not hold its rows");
            return NULL;
        }
        int64_t size = content_size(c, end, since, delta);
        size += varint_size(size);
        if (end > row && total + size > max_bytes) break;
        total += size;
        if (timestamp[end] > max_timestamp) max_timestamp = timestamp[end];
    }
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (records == NULL) return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(records);
    for (; row < end; row++) {
        delta = offset[row] - base_offset;
        since = timestamp[row] - base_timestamp;
        to = put_varint(to, content_size(c, row, since, delta));
        *to++ = 0; /* attributes: unused */
        to = put_varint(put_varint(to, since), delta);
        to = put_blob(put_blob(to, blob_at(&c->key, row)), blob_at(&c->value, row));
        to = put_varint(to, lists[row + 1] - lists[row]);
        for (int64_t i = lists[row]; i < lists[row + 1]; i++)
            to = put_blob(put_blob(to, blob_at(&c->name, i)), blob_at(&c->content, i));
    }
    return Py_BuildValue("NLL", records, (long long)end, (long long)max_timestamp);
}

static PyObject *encode(PyObject *self, PyObject *args) {
    Columns c;
    Blobs *blobs[] = {&c.key, &c.value, &c.name, &c.content};
    PyObject *given[4], *result = NULL;
    Py_ssize_t row;
    long long base_offset, max_bytes;
    (void)self;
    memset(&c, 0, sizeof c);
    int ok = PyArg_ParseTuple(args, "y*y*y*O!O!O!O!nLL", &c.offset, &c.timestamp, &c.lists, &PyTuple_Type, &given[0],
                              &PyTuple_Type, &given[1], &PyTuple_Type, &given[2], &PyTuple_Type, &given[3], &row,
                              &base_offset, &max_bytes);
    /* Not nested in one format: there Python's list of buffers to release upon an error would overflow. */
    for (int i = 0; ok && i < 4; i++)
        ok = PyArg_ParseTuple(given[i], "z*z*z*nn", &blobs[i]->valid, &blobs[i]->offsets, &blobs[i]->data,
                              &blobs[i]->first, &blobs[i]->rows);
    c.rows = c.offset.len / 8;
    if (ok && (row < 0 || row >= c.rows || c.timestamp.len / 8 < c.rows || c.lists.len / 8 <= c.rows ||
               !holds(&c.key, c.rows) || !holds(&c.value, c.rows) || !holds(&c.name, c.name.rows) ||
               !holds(&c.content, c.name.rows)))
        PyErr_SetString(PyExc_ValueError, "arrays of different lengths");
    else if (ok)
        result = run(&c, row, base_offset, max_bytes);
    for (int i = 0; i < 4; i++) {
        PyBuffer_Release(&blobs[i]->valid);
        PyBuffer_Release(&blobs[i]->offsets);
        PyBuffer_Release(&blobs[i]->data);
    }
    PyBuffer_Release(&c.offset);
    PyBuffer_Release(&c.timestamp);
    PyBuffer_Release(&c.lists);
    return result;
}

static PyMethodDef methods[] = {
    {"encode", encode, METH_VARARGS,
     "encode(offset, timestamp, lists, key, value, names, contents, row, base_offset, max_bytes) -> "
     "(records, end, max_timestamp)."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
