/* Columns to JSON objects, a text for each row.
 *
 * One function: write(rows, columns) -> (offsets, data). A column is (prefix, kind, validity, values, data, first): prefix
 * is what stands before its value ('{"name":' or ',"name":'), first the rows before the first one in the buffers. It
 * writes exactly the bytes of streams.encode.objects.in_python, its twin.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BOOL = 0, TEXT = 16, FLOAT64 = 24 }; /* whole numbers: their width */
enum { NUMBER_SIZE = 32 };                  /* the longest: -1.7976931348623157E308 */

typedef struct {
    const char *prefix;
    Py_ssize_t prefix_size, first;
    int kind;
    Py_buffer valid, values, data;
} Column;

typedef struct {
    PyObject *bytes;
    char *at, *end;
} Out;

/* Room for `size` more bytes. */
static int make_room(Out *out, Py_ssize_t size) {
    if (out->end - out->at >= size) return 1;
    char *start = PyBytes_AS_STRING(out->bytes);
    Py_ssize_t used = out->at - start, wanted = used + size + (used + size) / 2;
    if (_PyBytes_Resize(&out->bytes, wanted) < 0) return 0;
    out->at = PyBytes_AS_STRING(out->bytes) + used;
    out->end = PyBytes_AS_STRING(out->bytes) + wanted;
    return 1;
}

static inline char *put(char *to, const char *text, Py_ssize_t size) {
    memcpy(to, text, (size_t)size);
    return to + size;
}

static char *put_whole(char *to, uint64_t number, int digits) {
    char text[24];
    int at = sizeof text;
    do {
        text[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number || (int)sizeof text - at < digits);
    return put(to, text + at, (Py_ssize_t)sizeof text - at);
}

static char *put_integer(char *to, int64_t number) {
    if (number < 0) *to++ = '-';
    return put_whole(to, number < 0 ? -(uint64_t)number : (uint64_t)number, 1);
}

/* The digits of any double, from its repr, as Java writes them; NULL upon an error. */
static char *put_digits(char *to, double number) {
    char *text = PyOS_double_to_string(number, 'r', 0, 0, NULL), digits[32];
    if (text == NULL) return NULL;
    int count = 0, point = -1, exponent = 0;
    for (const char *c = text; *c; c++) {
        if (*c == 'e') {
            exponent = atoi(c + 1);
            break;
        }
        if (*c == '.')
            point = count;
        else if (*c == '0' && count == 0) {
            if (point >= 0) exponent--; /* 0.000012: zeros before the first digit */
        } else
            digits[count++] = *c;
    }
    PyMem_Free(text);
    if (point < 0) point = count;
    exponent += point - 1; /* of the first digit */
    while (count > 1 && digits[count - 1] == '0') count--;
    int scientific = exponent < -3 || exponent >= 7;
    int whole = scientific ? 1 : exponent + 1; /* digits before the point */
    if (whole <= 0) {
        to = put(to, "0.000", 2 - whole);
        whole = 0;
    } else {
        for (int i = 0; i < whole; i++) *to++ = i < count ? digits[i] : '0';
        *to++ = '.';
    }
    if (whole < count)
        to = put(to, digits + whole, count - whole);
    else
        *to++ = '0';
    return scientific ? to + sprintf(to, "E%d", exponent) : to;
}

/* As few digits as read back as the number. Numbers with few decimals, which most are, need no search. */
static char *put_double(char *to, double number) {
    static const double powers[] = {1e1, 1e2, 1e3, 1e4, 1e5, 1e6};
    static const uint64_t wholes[] = {10, 100, 1000, 10000, 100000, 1000000};
    if (isnan(number)) return put(to, "\"NaN\"", 5);
    if (isinf(number)) return number > 0 ? put(to, "\"Infinity\"", 10) : put(to, "\"-Infinity\"", 11);
    if (signbit(number)) {
        *to++ = '-';
        number = -number;
    }
    if (number == 0) return put(to, "0.0", 3);
    if (number >= 1e-3 && number < 1e7)
        for (int i = 0; i < 6; i++) {
            double scaled = nearbyint(number * powers[i]);
            if (scaled / powers[i] == number) {
                uint64_t all = (uint64_t)scaled;
                to = put_whole(to, all / wholes[i], 1);
                *to++ = '.';
                return put_whole(to, all % wholes[i], i + 1);
            }
        }
    return put_digits(to, number);
}

static inline int is_special(uint8_t c) { return c < 0x20 || c == '"' || c == '\\'; }

static int put_escaped(Out *out, const uint8_t *text, Py_ssize_t size) {
    static const char hex[] = "0123456789ABCDEF";
    Py_ssize_t special = 0;
    for (Py_ssize_t i = 0; i < size; i++) special += is_special(text[i]);
    if (!make_room(out, size + 5 * special + 2)) return 0;
    char *to = out->at;
    *to++ = '"';
    if (special == 0) to = put(to, (const char *)text, size);
    for (Py_ssize_t i = 0; special && i < size; i++) {
        uint8_t c = text[i];
        if (!is_special(c)) {
            *to++ = (char)c;
            continue;
        }
        *to++ = '\\';
        switch (c) {
        case '"': case '\\': *to++ = (char)c; break;
        case '\b': *to++ = 'b'; break;
        case '\t': *to++ = 't'; break;
        case '\n': *to++ = 'n'; break;
        case '\f': *to++ = 'f'; break;
        case '\r': *to++ = 'r'; break;
        default:
            to = put(to, "u00", 3);
            *to++ = hex[c >> 4];
            *to++ = hex[c & 15];
        }
    }
    *to++ = '"';
    out->at = to;
    return 1;
}

/* A quoted text; invalid UTF-8 in it is replaced. */
static int put_text(Out *out, const uint8_t *text, Py_ssize_t size) {
    Py_ssize_t plain = 0;
    while (plain < size && text[plain] < 0x80) plain++;
    if (plain == size) return put_escaped(out, text, size);
    PyObject *decoded = PyUnicode_DecodeUTF8((const char *)text, size, "replace");
    if (decoded == NULL) return 0;
    const char *valid = PyUnicode_AsUTF8AndSize(decoded, &size);
    int ok = valid != NULL && put_escaped(out, (const uint8_t *)valid, size);
    Py_DECREF(decoded);
    return ok;
}

static int64_t integer_at(const Column *c, Py_ssize_t row) {
    switch (c->kind) {
    case 1: return ((const int8_t *)c->values.buf)[row];
    case 2: return ((const int16_t *)c->values.buf)[row];
    case 4: return ((const int32_t *)c->values.buf)[row];
    default: return ((const int64_t *)c->values.buf)[row];
    }
}

static inline int bit_at(const Py_buffer *bits, Py_ssize_t row) {
    return ((const uint8_t *)bits->buf)[row >> 3] >> (row & 7) & 1;
}

static int put_value(Out *out, const Column *c, Py_ssize_t row) {
    row += c->first;
    if (!make_room(out, c->prefix_size + NUMBER_SIZE)) return 0;
    out->at = put(out->at, c->prefix, c->prefix_size);
    if (c->valid.buf && !bit_at(&c->valid, row)) {
        out->at = put(out->at, "null", 4);
        return 1;
    }
    if (c->kind == TEXT) {
        const int32_t *places = (const int32_t *)c->values.buf + row;
        if (places[0] < 0 || places[0] > places[1] || places[1] > c->data.len) {
            PyErr_SetString(PyExc_ValueError, "a text outside the data");
            return 0;
        }
        return put_text(out, (const uint8_t *)c->data.buf + places[0], places[1] - places[0]);
    }
    if (c->kind == BOOL)
        out->at = bit_at(&c->values, row) ? put(out->at, "true", 4) : put(out->at, "false", 5);
    else if (c->kind == FLOAT64)
        out->at = put_double(out->at, ((const double *)c->values.buf)[row]);
    else
        out->at = put_integer(out->at, integer_at(c, row));
    return out->at != NULL;
}

/* Whether the buffers of a column hold as many rows as they should. */
static int holds(const Column *c, Py_ssize_t rows) {
    Py_ssize_t last = c->first + rows, width = c->kind == FLOAT64 ? 8 : c->kind;
    if (c->first < 0 || (c->valid.buf && c->valid.len * 8 < last)) return 0;
    if (c->kind == TEXT) return c->values.len / 4 > last;
    return c->kind == BOOL ? c->values.len * 8 >= last : c->values.len / width >= last;
}

static PyObject *run(Py_ssize_t rows, Column *columns, Py_ssize_t count) {
    Out out = {PyBytes_FromStringAndSize(NULL, 64 + rows * count * 24), NULL, NULL};
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, (rows + 1) * 8);
    if (out.bytes == NULL || offsets == NULL) goto failed;
    int64_t *places = (int64_t *)PyBytes_AS_STRING(offsets);
    out.at = PyBytes_AS_STRING(out.bytes);
    out.end = out.at + PyBytes_GET_SIZE(out.bytes);
    places[0] = 0;
    for (Py_ssize_t row = 0; row < rows; row++) {
        for (Py_ssize_t i = 0; i < count; i++)
            if (!put_value(&out, &columns[i], row)) goto failed;
        if (!make_room(&out, 1)) goto failed;
        *out.at++ = '}';
        places[row + 1] = out.at - PyBytes_AS_STRING(out.bytes);
    }
    if (_PyBytes_Resize(&out.bytes, out.at - PyBytes_AS_STRING(out.bytes)) < 0) goto failed;
    return Py_BuildValue("NN", offsets, out.bytes);
failed:
    Py_XDECREF(offsets);
    Py_XDECREF(out.bytes);
    return NULL;
}

static PyObject *write_objects(PyObject *self, PyObject *args) {
    Py_ssize_t rows;
    PyObject *given, *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "nO!", &rows, &PyTuple_Type, &given)) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(given);
    Column *columns = PyMem_Calloc((size_t)count + 1, sizeof(Column));
    if (columns == NULL) return PyErr_NoMemory();
    int ok = rows >= 0 && count > 0;
    if (!ok) PyErr_SetString(PyExc_ValueError, "no columns");
    for (Py_ssize_t i = 0; ok && i < count; i++) {
        Column *c = &columns[i];
        ok = PyArg_ParseTuple(PyTuple_GET_ITEM(given, i), "y#iz*z*z*n", &c->prefix, &c->prefix_size, &c->kind,
                              &c->valid, &c->values, &c->data, &c->first);
        if (!ok) { /* it has released what it had taken */
            count = i;
            break;
        }
        if (!holds(c, rows)) {
            PyErr_SetString(PyExc_ValueError, "fewer values than rows");
            count = i + 1;
            ok = 0;
        }
    }
    if (ok) result = run(rows, columns, count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyBuffer_Release(&columns[i].valid);
        PyBuffer_Release(&columns[i].values);
        PyBuffer_Release(&columns[i].data);
    }
    PyMem_Free(columns);
    return result;
}

static PyMethodDef methods[] = {
    {"write", write_objects, METH_VARARGS, "write(rows, columns) -> (offsets, data)."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_objects", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__objects(void) { return PyModule_Create(&module); }
