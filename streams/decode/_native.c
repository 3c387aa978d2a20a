/* Record batches, already decompressed and CRC-checked, to the buffers of Arrow arrays.
 *
 * One function: decode(batches, columns) -> (rows, buffers...). It accepts and rejects exactly what
 * wire.batch.iter_records does, its twin in Python; a rejected batch is a ValueError.
 *
 * Every read of a record is checked against the record's end, which is checked against the end of the data. Output
 * blocks are allocated once for the most that the input can hold: a record has at least 7 bytes, a header at least 2,
 * and keys, values and headers are copies of distinct input bytes.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../wire/_varint.h"

enum { KEY = 1, VALUE = 2, OFFSET = 4, TIMESTAMP = 8, TIMESTAMP_TYPE = 16, HEADERS = 32 };
#define MIN_RECORD 7
#define MIN_HEADER 2

typedef struct {
    const uint8_t *data; /* the records */
    Py_ssize_t size;
    int32_t count, last_delta;
    int64_t base_offset, base_timestamp, append_time;
    int is_append_time;
    int64_t lo, hi; /* offsets outside [lo, hi) are left out */
} Batch;

/* A column of byte strings: offsets, data, validity bitmap. */
typedef struct {
    int32_t *offsets;
    uint8_t *data, *valid;
    int32_t used, rows;
} Blobs;

typedef struct {
    int64_t *offset, *timestamp;
    int32_t *timestamp_type;
    Blobs key, value, name, content;
    int32_t *lists;
    uint8_t *lists_valid;
    int32_t rows;
} Out;

/* A length and that many bytes; a length of -1 is null. */
static inline int blob(const uint8_t **pos, const uint8_t *end, const uint8_t **start, int64_t *size) {
    if (!number(pos, end, 32, size) || *size < -1 || *size > end - *pos) return 0;
    *start = *pos;
    if (*size > 0) *pos += *size;
    return 1;
}

static inline void put(Blobs *blobs, const uint8_t *start, int64_t size) {
    if (blobs->offsets == NULL) return;
    if (size >= 0) {
        memcpy(blobs->data + blobs->used, start, (size_t)size);
        blobs->used += (int32_t)size;
        if (blobs->valid) blobs->valid[blobs->rows >> 3] |= (uint8_t)(1 << (blobs->rows & 7));
    }
    blobs->offsets[++blobs->rows] = blobs->used;
}

/* As bytes.decode() judges it. */
static int is_utf8(const uint8_t *start, int64_t size) {
    int64_t at = 0;
    while (at < size && start[at] < 0x80) at++;
    if (at == size) return 1;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)start, (Py_ssize_t)size, "strict");
    if (text == NULL) {
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(text);
    return 1;
}

static int headers(const uint8_t **pos, const uint8_t *end, int wanted, Out *out) {
    const uint8_t *name, *content;
    int64_t count, name_size, content_size;
    if (!number(pos, end, 32, &count) || count < 0 || count > end - *pos) return 0;
    for (int64_t i = 0; i < count; i++) {
        if (!blob(pos, end, &name, &name_size) || name_size < 0 || !is_utf8(name, name_size)) return 0;
        if (!blob(pos, end, &content, &content_size)) return 0;
        if (wanted) {
            put(&out->name, name, name_size);
            put(&out->content, content, content_size);
        }
    }
    if (wanted) {
        if (count) out->lists_valid[out->rows >> 3] |= (uint8_t)(1 << (out->rows & 7));
        out->lists[out->rows + 1] = out->name.rows;
    }
    return 1;
}

static int batch(const Batch *b, Out *out) {
    const uint8_t *pos = b->data, *stop = b->data + b->size, *key, *value;
    int64_t length, delta, timestamp, key_size, value_size, previous = -1;
    for (int32_t i = 0; i < b->count; i++) {
        if (!number(&pos, stop, 32, &length) || length <= 0 || length > stop - pos) return 0;
        const uint8_t *end = pos + length;
        pos++; /* attributes: unused */
        if (!number(&pos, end, 64, &timestamp)) return 0;
        if (__builtin_add_overflow(b->base_timestamp, timestamp, &timestamp) && !b->is_append_time) return 0;
        if (!number(&pos, end, 32, &delta) || delta <= previous || delta > b->last_delta) return 0;
        previous = delta;
        if (!blob(&pos, end, &key, &key_size) || !blob(&pos, end, &value, &value_size)) return 0;
        int64_t offset = b->base_offset + delta;
        int wanted = offset >= b->lo && offset < b->hi;
        if (!headers(&pos, end, wanted && out->lists, out) || pos != end) return 0;
        if (!wanted) continue;
        if (out->offset) out->offset[out->rows] = offset;
        if (out->timestamp) out->timestamp[out->rows] = b->is_append_time ? b->append_time : timestamp;
        if (out->timestamp_type) out->timestamp_type[out->rows] = b->is_append_time;
        put(&out->key, key, key_size);
        put(&out->value, value, value_size);
        out->rows++;
    }
    return pos == stop;
}

/* A block of `size` bytes in the result tuple; zeroed on request. */
static void *block(PyObject *result, Py_ssize_t *at, Py_ssize_t size, int zeroed) {
    PyObject *made = PyByteArray_FromStringAndSize(NULL, size);
    if (made == NULL) return NULL;
    PyTuple_SET_ITEM(result, (*at)++, made);
    if (zeroed) memset(PyByteArray_AS_STRING(made), 0, (size_t)size);
    return PyByteArray_AS_STRING(made);
}

static int blobs(PyObject *result, Py_ssize_t *at, Blobs *made, Py_ssize_t rows, Py_ssize_t bytes) {
    made->offsets = block(result, at, (rows + 1) * 4, 0);
    if (made->offsets) made->data = block(result, at, bytes + 1, 0);
    if (made->offsets && made->data) made->valid = block(result, at, rows / 8 + 1, 1);
    if (made->offsets == NULL || made->data == NULL || made->valid == NULL) return 0;
    made->offsets[0] = 0;
    return 1;
}

static PyObject *run(const Batch *batches, Py_ssize_t count, int columns) {
    Py_ssize_t rows = 0, bytes = 0, size = 1, at = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (batches[i].count < 0 || batches[i].count > batches[i].size / MIN_RECORD) {
            PyErr_SetString(PyExc_ValueError, "a record count that the bytes cannot hold");
            return NULL;
        }
        rows += batches[i].count;
        bytes += batches[i].size;
        if (bytes > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "more than 2 GiB of records in one call");
            return NULL;
        }
    }
    size += 3 * !!(columns & KEY) + 3 * !!(columns & VALUE) + 8 * !!(columns & HEADERS);
    size += !!(columns & OFFSET) + !!(columns & TIMESTAMP) + !!(columns & TIMESTAMP_TYPE);
    PyObject *result = PyTuple_New(size);
    if (result == NULL) return NULL;
    Out out;
    memset(&out, 0, sizeof out);
    int ok = 1;
    if (columns & OFFSET) ok = ok && (out.offset = block(result, &at, rows * 8, 0));
    if (columns & TIMESTAMP) ok = ok && (out.timestamp = block(result, &at, rows * 8, 0));
    if (columns & TIMESTAMP_TYPE) ok = ok && (out.timestamp_type = block(result, &at, rows * 4, 0));
    if (columns & KEY) ok = ok && blobs(result, &at, &out.key, rows, bytes);
    if (columns & VALUE) ok = ok && blobs(result, &at, &out.value, rows, bytes);
    if (columns & HEADERS) {
        ok = ok && (out.lists = block(result, &at, (rows + 1) * 4, 0));
        ok = ok && (out.lists_valid = block(result, &at, rows / 8 + 1, 1));
        ok = ok && blobs(result, &at, &out.name, bytes / MIN_HEADER, bytes);
        ok = ok && blobs(result, &at, &out.content, bytes / MIN_HEADER, bytes);
        if (ok) out.lists[0] = 0;
    }
    for (Py_ssize_t i = 0; ok && i < count; i++) {
        if (!batch(&batches[i], &out)) {
            PyErr_Format(PyExc_ValueError, "a damaged record in the batch at offset %lld",
                         (long long)batches[i].base_offset);
            ok = 0;
        }
    }
    PyObject *made = ok ? PyLong_FromLong(out.rows) : NULL;
    if (made == NULL) {
        Py_DECREF(result);
        return NULL;
    }
    PyTuple_SET_ITEM(result, 0, made);
    return result;
}

static PyObject *decode(PyObject *self, PyObject *args) {
    PyObject *given, *result = NULL;
    int columns;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oi", &given, &columns)) return NULL;
    PyObject *items = PySequence_Fast(given, "decode needs a sequence of batches");
    if (items == NULL) return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items), held = 0;
    Batch *batches = PyMem_Calloc((size_t)count + 1, sizeof(Batch));
    Py_buffer *views = PyMem_Calloc((size_t)count + 1, sizeof(Py_buffer));
    if (batches == NULL || views == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (; held < count; held++) {
        Batch *b = &batches[held];
        long long base_offset, base_timestamp, append_time, lo, hi;
        PyObject *item = PySequence_Fast_GET_ITEM(items, held);
        if (!PyTuple_Check(item)) {
            PyErr_SetString(PyExc_TypeError, "a batch is a tuple");
            goto done;
        }
        if (!PyArg_ParseTuple(item, "y*iiLLLpLL", &views[held], &b->count, &b->last_delta, &base_offset,
                              &base_timestamp, &append_time, &b->is_append_time, &lo, &hi))
            goto done;
        b->data = views[held].buf;
        b->size = views[held].len;
        b->base_offset = base_offset;
        b->base_timestamp = base_timestamp;
        b->append_time = append_time;
        b->lo = lo;
        b->hi = hi;
        if (base_offset < 0 || b->last_delta < 0 || base_offset > INT64_MAX - b->last_delta) {
            held++;
            PyErr_SetString(PyExc_ValueError, "an offset out of range");
            goto done;
        }
    }
    result = run(batches, count, columns);
done:
    while (views != NULL && held > 0) PyBuffer_Release(&views[--held]);
    PyMem_Free(batches);
    PyMem_Free(views);
    Py_DECREF(items);
    return result;
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS, "decode(batches, columns) -> (rows, buffers...); ValueError for a damaged batch."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
