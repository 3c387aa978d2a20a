/* Turns lines of text into the records of a batch, and records into text, for `barnabas produce` and `consume`.
 *
 * encode(...) makes the records of a batch from lines; fill(...) writes the records of a batch in a form. What they give
 * is what wire/lines.py says; that module falls back to the codecs in Python where this one was not built.
 *
 * Every read is checked against the end of its record, which is checked against the end of the data. What comes out is
 * bounded by what goes in: a form's texts and the digits of three numbers for each record of at least 7 bytes.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_varint.h"

typedef struct {
    uint8_t *data;
    size_t size, room;
} Buffer;

/* Make room for more bytes; 0 with MemoryError set if there is none. */
static int grow(Buffer *buffer, size_t more) {
    if (buffer->room - buffer->size >= more) return 1;
    size_t room = buffer->room * 2 + more + 64;
    uint8_t *data = PyMem_Realloc(buffer->data, room);
    if (data == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    buffer->data = data;
    buffer->room = room;
    return 1;
}

static inline void put(Buffer *buffer, const void *data, size_t size) {
    memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
}

static inline int add(Buffer *buffer, const void *data, size_t size) {
    if (!grow(buffer, size)) return 0;
    if (size) put(buffer, data, size);
    return 1;
}

static size_t varint_size(int64_t value) {
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    size_t size = 1;
    while (raw >= 0x80) {
        raw >>= 7;
        size++;
    }
    return size;
}

static void put_varint(Buffer *buffer, int64_t value) {
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    uint8_t *p = buffer->data + buffer->size;
    while (raw >= 0x80) {
        *p++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *p++ = (uint8_t)raw;
    buffer->size = (size_t)(p - buffer->data);
}

/* A blob's length, -1 for null, with the bytes of its length. */
static size_t blob_size(int64_t size) { return varint_size(size) + (size > 0 ? (size_t)size : 0); }

static PyObject *encode(PyObject *module, PyObject *args) {
    Py_buffer lines, separator, null, headers;
    Py_ssize_t start, most_records, most_bytes;
    int strip_cr;
    if (!PyArg_ParseTuple(args, "y*nz*z*y*pnn", &lines, &start, &separator, &null, &headers, &strip_cr, &most_records,
                          &most_bytes))
        return NULL;
    Buffer out = {NULL, 0, 0};
    const uint8_t *text = lines.buf, *stop = text + lines.len, *at = text + start;
    Py_ssize_t count = 0, bad = 0;
    PyObject *result = NULL;
    if (start < 0 || start > lines.len) {
        PyErr_SetString(PyExc_ValueError, "start is outside of the lines");
        goto done;
    }
    while (at < stop && count < most_records && (count == 0 || (Py_ssize_t)out.size < most_bytes)) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(stop - at));
        const uint8_t *end = newline ? newline : stop, *next = newline ? newline + 1 : stop;
        if (strip_cr)
            while (end > at && end[-1] == '\r') end--;
        const uint8_t *key = NULL, *value = at;
        int64_t key_size = -1, value_size = end - at;
        if (separator.buf != NULL && separator.len > 0) {
            const uint8_t *found = NULL;
            for (const uint8_t *p = at; end - p >= separator.len;) {
                p = memchr(p, *(const uint8_t *)separator.buf, (size_t)(end - p - separator.len + 1));
                if (p == NULL) break;
                if (memcmp(p, separator.buf, (size_t)separator.len) == 0) {
                    found = p;
                    break;
                }
                p++;
            }
            if (found == NULL) {
                bad = 1;
                break;
            }
            key = at;
            key_size = found - at;
            value = found + separator.len;
            value_size = end - value;
        }
        if (null.buf != NULL && value_size == null.len && memcmp(value, null.buf, (size_t)null.len) == 0) value_size = -1;
        size_t size = 2 + varint_size(count) + blob_size(key_size) + blob_size(value_size) + (size_t)headers.len;
        if (!grow(&out, size + 10)) goto done;
        put_varint(&out, (int64_t)size);
        out.data[out.size++] = 0; /* attributes: unused */
        out.data[out.size++] = 0; /* the time is the batch's */
        put_varint(&out, count);
        put_varint(&out, key_size);
        if (key_size > 0) put(&out, key, (size_t)key_size);
        put_varint(&out, value_size);
        if (value_size > 0) put(&out, value, (size_t)value_size);
        put(&out, headers.buf, (size_t)headers.len);
        count++;
        at = next;
    }
    result = Py_BuildValue("y#nnO", (const char *)out.data, (Py_ssize_t)out.size, count, (Py_ssize_t)(at - text),
                           bad ? Py_True : Py_False);
done:
    PyMem_Free(out.data);
    PyBuffer_Release(&lines);
    if (separator.obj) PyBuffer_Release(&separator);
    if (null.obj) PyBuffer_Release(&null);
    PyBuffer_Release(&headers);
    return result;
}

/* A length and its bytes; 0 if they are incomplete. -1 is null. */
static int blob(const uint8_t **pos, const uint8_t *end, const uint8_t **data, int64_t *size) {
    if (!number(pos, end, 32, size) || *size < -1 || *size > end - *pos) return 0;
    *data = *pos;
    if (*size > 0) *pos += *size;
    return 1;
}

static int add_blob(Buffer *out, const uint8_t *data, int64_t size) {
    return size < 0 ? add(out, "NULL", 4) : add(out, data, (size_t)size);
}

static int add_number(Buffer *out, int64_t value) {
    char digits[24];
    int size = PyOS_snprintf(digits, sizeof digits, "%lld", (long long)value);
    return add(out, digits, (size_t)size);
}

typedef struct {
    int64_t offset, timestamp, key_size, value_size, header_count;
    const uint8_t *key, *value, *headers, *end;
} Record;

static int add_headers(Buffer *out, const Record *record) {
    const uint8_t *pos = record->headers, *data;
    int64_t size;
    for (int64_t i = 0; i < record->header_count; i++) {
        if (i && !add(out, ",", 1)) return 0;
        blob(&pos, record->end, &data, &size); /* they have been checked */
        if (!add_blob(out, data, size) || !add(out, "=", 1)) return 0;
        blob(&pos, record->end, &data, &size);
        if (!add_blob(out, data, size)) return 0;
    }
    return 1;
}

/* Whether the headers end at the end of their record. */
static int headers_fit(const uint8_t *pos, const uint8_t *end, int64_t count) {
    const uint8_t *data;
    int64_t size;
    for (int64_t i = 0; i < count; i++) {
        if (!blob(&pos, end, &data, &size) || size < 0) return 0;
        if (!blob(&pos, end, &data, &size)) return 0;
    }
    return pos == end;
}

static PyObject *fill(PyObject *module, PyObject *args) {
    Py_buffer records;
    PyObject *parts;
    Py_ssize_t count, most;
    long long base_offset, base_timestamp, append_time, position;
    int is_stamped;
    if (!PyArg_ParseTuple(args, "y*nLLpLLnO!", &records, &count, &base_offset, &base_timestamp, &is_stamped, &append_time,
                          &position, &most, &PyTuple_Type, &parts))
        return NULL;
    Buffer out = {NULL, 0, 0};
    const uint8_t *pos = records.buf, *stop = pos + records.len;
    Py_ssize_t filled = 0, pieces = PyTuple_GET_SIZE(parts);
    int64_t previous = -1;
    PyObject *result = NULL;
    const char *problem = "a record is cut off";
    if (!grow(&out, (size_t)records.len)) goto done;
    for (Py_ssize_t i = 0; i < count && filled < most; i++) {
        Record record;
        int64_t length, timestamp, delta;
        if (!number(&pos, stop, 32, &length) || length <= 0 || length > stop - pos) goto invalid;
        record.end = pos + length;
        pos++; /* attributes: unused */
        if (!number(&pos, record.end, 64, &timestamp) || !number(&pos, record.end, 32, &delta)) goto invalid;
        if (delta <= previous) {
            problem = "offsets do not rise";
            goto invalid;
        }
        previous = delta;
        if (!blob(&pos, record.end, &record.key, &record.key_size)) goto invalid;
        if (!blob(&pos, record.end, &record.value, &record.value_size)) goto invalid;
        if (!number(&pos, record.end, 32, &record.header_count) || record.header_count < 0) goto invalid;
        record.headers = pos;
        if (!headers_fit(pos, record.end, record.header_count)) goto invalid;
        pos = record.end;
        record.offset = base_offset + delta;
        record.timestamp = is_stamped ? append_time : base_timestamp + timestamp;
        if (record.offset < position) continue;
        for (Py_ssize_t j = 0; j < pieces; j++) {
            PyObject *piece = PyTuple_GET_ITEM(parts, j);
            int is_there;
            if (PyBytes_Check(piece))
                is_there = add(&out, PyBytes_AS_STRING(piece), (size_t)PyBytes_GET_SIZE(piece));
            else if (!PyUnicode_Check(piece) || PyUnicode_GET_LENGTH(piece) != 1) {
                PyErr_SetString(PyExc_TypeError, "a part is bytes, or the letter of a place");
                goto done;
            } else
                switch (PyUnicode_READ_CHAR(piece, 0)) {
                    case 'k': is_there = add_blob(&out, record.key, record.key_size); break;
                    case 's': is_there = add_blob(&out, record.value, record.value_size); break;
                    case 'o': is_there = add_number(&out, record.offset); break;
                    case 'T': is_there = add_number(&out, record.timestamp); break;
                    case 'h': is_there = add_headers(&out, &record); break;
                    default:
                        PyErr_SetString(PyExc_ValueError, "no such place");
                        goto done;
                }
            if (!is_there) goto done;
        }
        position = record.offset + 1;
        filled++;
    }
    if (filled < most && pos != stop) {
        problem = "bytes after the last record";
        goto invalid;
    }
    result = Py_BuildValue("y#nL", (const char *)out.data, (Py_ssize_t)out.size, filled, position);
    goto done;
invalid:
    PyErr_SetString(PyExc_ValueError, problem);
done:
    PyMem_Free(out.data);
    PyBuffer_Release(&records);
    return result;
}

static PyMethodDef methods[] = {
    {"encode", encode, METH_VARARGS, "Lines to the records of a batch."},
    {"fill", fill, METH_VARARGS, "The records of a batch in a form."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_lines", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__lines(void) { return PyModule_Create(&definition); }
