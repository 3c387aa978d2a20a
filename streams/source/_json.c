/* JSON objects to the buffers of Arrow arrays: flat columns of booleans, numbers and texts.
 *
 * One function: parse(offsets, data, valid, first, rows, names, kinds) -> (left, buffers...). It takes what is plain:
 * one object as the whole value, numbers that fit their column. Whatever is not plain, be it wrong or only rare, is not
 * judged here: its row is left null and its number told, for the reader in Python.
 *
 * Every read of a value is checked against the value's end. Arrays have room for all rows from the start; the bytes of
 * texts grow as they come, and are never more than those of the values.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BOOL = 0, INT8 = 1, INT16 = 2, INT32 = 4, INT64 = 8, TEXT = 16, FLOAT32 = 20, FLOAT64 = 24 };
#define MAX_DEPTH 64
#define MAX_DIGITS 18 /* this many always fit an int64 */
#define MAX_NUMBER 64 /* the longest number that is worth a try */
#define MAX_POWER 1000000000000 /* more digits than any value has */

typedef struct {
    const char *name;
    Py_ssize_t name_size;
    int kind;
    uint8_t *valid, *values; /* bitmap; numbers, or a bitmap of booleans */
    int32_t *offsets;        /* of texts */
    PyObject **bytes;        /* their data, in the result */
    int64_t used;
    Py_ssize_t seen; /* the last row that has named this column */
} Column;

typedef struct {
    const uint8_t *at, *end;
} Text;

static inline void blanks(Text *in) {
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\t' || *in->at == '\n' || *in->at == '\r')) in->at++;
}

static inline int is(Text *in, uint8_t wanted) {
    if (in->at >= in->end || *in->at != wanted) return 0;
    in->at++;
    return 1;
}

static inline int word(Text *in, const char *wanted, Py_ssize_t size) {
    if (in->end - in->at < size || memcmp(in->at, wanted, (size_t)size)) return 0;
    in->at += size;
    return 1;
}

/* The number of bytes after a first one of 0x80 or more, by RFC 3629; 0 if they are not UTF-8. */
static int rest_of_character(Text *in, uint8_t first) {
    uint8_t low = 0x80, high = 0xbf;
    int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc2 || first > 0xf4 || in->end - in->at < more) return 0;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    for (; more > 0; more--, low = 0x80, high = 0xbf) {
        uint8_t byte = *in->at++;
        if (byte < low || byte > high) return 0;
    }
    return 1;
}

static int hex(Text *in, uint32_t *unit) {
    if (in->end - in->at < 4) return 0;
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t byte = *in->at++;
        uint8_t low = byte | 0x20;
        if (byte >= '0' && byte <= '9') *unit = *unit << 4 | (uint32_t)(byte - '0');
        else if (low >= 'a' && low <= 'f') *unit = *unit << 4 | (uint32_t)(low - 'a' + 10);
        else return 0;
    }
    return 1;
}

/* Write an escape as UTF-8 to `out`, unless that is NULL. Returns its size, 0 if it is not a character. */
static int escape(Text *in, uint8_t *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint32_t unit, low;
    uint8_t made[4];
    int size;
    if (in->at >= in->end) return 0;
    uint8_t byte = *in->at++;
    if (byte != 'u') {
        const char *found = byte ? strchr(from, byte) : NULL;
        if (found && out) *out = (uint8_t)to[found - from];
        return found != NULL;
    }
    if (!hex(in, &unit) || unit == 0 || (unit >= 0xdc00 && unit < 0xe000)) return 0;
    if (unit >= 0xd800 && unit < 0xdc00) {
        if (!is(in, '\\') || !is(in, 'u') || !hex(in, &low) || low < 0xdc00 || low >= 0xe000) return 0;
        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    }
    size = unit < 0x80 ? 1 : unit < 0x800 ? 2 : unit < 0x10000 ? 3 : 4;
    for (int i = size - 1; i > 0; i--, unit >>= 6) made[i] = (uint8_t)(0x80 | (unit & 0x3f));
    made[0] = (uint8_t)(size == 1 ? unit : (0xf0 << (4 - size) & 0xff) | unit);
    if (out) memcpy(out, made, (size_t)size);
    return size;
}

/* A text with its escapes; the opening quote has been read. */
static inline int text(Text *in, const uint8_t **start, Py_ssize_t *size, int *escaped) {
    *start = in->at;
    *escaped = 0;
    while (in->at < in->end) {
        uint8_t byte = *in->at++;
        if (byte == '"') {
            *size = in->at - 1 - *start;
            return 1;
        }
        if (byte < 0x20) return 0;
        if (byte == '\\') {
            *escaped = 1;
            if (!escape(in, NULL)) return 0;
        }
        if (byte >= 0x80 && !rest_of_character(in, byte)) return 0;
    }
    return 0;
}

typedef struct {
    const uint8_t *start;
    Py_ssize_t size;
    uint64_t digits; /* all of them, as one number, if they are few enough */
    int64_t exponent; /* never clipped where digits before it or after the point could make up for it */
    int64_t count;
    int negative, whole;
} Number;

static inline int digits(Text *in, Number *n) {
    const uint8_t *start = in->at;
    while (in->at < in->end && *in->at >= '0' && *in->at <= '9') {
        if (n->count < MAX_DIGITS) n->digits = n->digits * 10 + (*in->at - '0');
        if (n->digits) n->count++;
        in->at++;
    }
    return in->at > start;
}

static int number(Text *in, Number *n) {
    memset(n, 0, sizeof *n);
    n->start = in->at;
    n->whole = 1;
    n->negative = is(in, '-');
    if (!is(in, '0') && !digits(in, n)) return 0;
    if (is(in, '.')) {
        const uint8_t *start = in->at;
        n->whole = 0;
        if (!digits(in, n)) return 0;
        n->exponent = start - in->at;
    }
    if (in->at < in->end && (*in->at == 'e' || *in->at == 'E')) {
        int64_t power = 0;
        n->whole = 0;
        in->at++;
        int minus = is(in, '-');
        if (!minus) is(in, '+');
        const uint8_t *start = in->at;
        while (in->at < in->end && *in->at >= '0' && *in->at <= '9') {
            if (power < MAX_POWER) power = power * 10 + (*in->at - '0');
            in->at++;
        }
        if (in->at == start) return 0;
        n->exponent += minus ? -power : power;
    }
    n->size = in->at - n->start;
    return 1;
}

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* The double next to the number. Both operands of the short way are exact, so its one rounding is right. */
static int as_double(const Number *n, double *found) {
    if (n->count < MAX_DIGITS && n->digits <= 1ull << 53 && n->exponent >= -22 && n->exponent <= 22) {
        double value = (double)n->digits;
        value = n->exponent < 0 ? value / POWERS[-n->exponent] : value * POWERS[n->exponent];
        *found = n->negative ? -value : value;
        return 1;
    }
    char copy[MAX_NUMBER + 1], *stop;
    if (n->size > MAX_NUMBER) return 0;
    memcpy(copy, n->start, (size_t)n->size);
    copy[n->size] = 0;
    *found = PyOS_string_to_double(copy, &stop, NULL);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return isfinite(*found) && stop == copy + n->size;
}

/* The float next to the number, if going by way of a double cannot have led to another one. */
static int as_float(const Number *n, float *found) {
    double value;
    uint64_t bits;
    if (!as_double(n, &value)) return 0;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x1fffffff) == 0x10000000) return 0; /* it may have been rounded to half way between two floats */
    if (value != 0 && (fabs(value) < 1.2e-38 || fabs(value) > 3.4e38)) return 0;
    *found = (float)value;
    return 1;
}

static int skip(Text *in, int depth);

static int skip_members(Text *in, int depth, uint8_t close) {
    const uint8_t *start;
    Py_ssize_t size;
    int escaped;
    blanks(in);
    if (is(in, close)) return 1;
    for (;;) {
        if (close == '}') {
            blanks(in);
            if (!is(in, '"') || !text(in, &start, &size, &escaped)) return 0;
            blanks(in);
            if (!is(in, ':')) return 0;
        }
        if (!skip(in, depth)) return 0;
        blanks(in);
        if (is(in, close)) return 1;
        if (!is(in, ',')) return 0;
    }
}

/* Skip a value that no column wants. */
static int skip(Text *in, int depth) {
    const uint8_t *start;
    Py_ssize_t size;
    Number n;
    int escaped;
    if (depth > MAX_DEPTH) return 0;
    blanks(in);
    if (in->at >= in->end) return 0;
    switch (*in->at) {
    case '"': in->at++; return text(in, &start, &size, &escaped);
    case '{': in->at++; return skip_members(in, depth + 1, '}');
    case '[': in->at++; return skip_members(in, depth + 1, ']');
    case 't': return word(in, "true", 4);
    case 'f': return word(in, "false", 5);
    case 'n': return word(in, "null", 4);
    default: return number(in, &n) && n.count + n.exponent < 308; /* below 1e308: a double holds it */
    }
}

static int put_text(Column *c, const uint8_t *start, Py_ssize_t size, int escaped) {
    Py_ssize_t room = PyBytes_GET_SIZE(*c->bytes);
    if (c->used + size > room) {
        if (_PyBytes_Resize(c->bytes, room * 2 + size) < 0) return -1;
    }
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(*c->bytes) + c->used;
    if (!escaped) {
        memcpy(out, start, (size_t)size);
        c->used += size;
        return 1;
    }
    Text in = {start, start + size};
    while (in.at < in.end) { /* never longer than the escaped text */
        uint8_t byte = *in.at++;
        if (byte == '\\') out += escape(&in, out);
        else *out++ = byte;
    }
    c->used = out - (uint8_t *)PyBytes_AS_STRING(*c->bytes);
    return 1;
}

/* 1: the value was put into its column; 0: it is left to the Python reader; -1: no memory. */
static int value(Text *in, Column *c, Py_ssize_t row) {
    const uint8_t *start;
    Py_ssize_t size;
    Number n;
    int64_t whole;
    int on = 0, escaped;
    if (word(in, "null", 4)) return 1;
    if (c->kind == TEXT) {
        if (!is(in, '"') || !text(in, &start, &size, &escaped)) return 0;
        if (put_text(c, start, size, escaped) < 0) return -1;
    } else if (c->kind == BOOL) {
        on = word(in, "true", 4);
        if (!on && !word(in, "false", 5)) return 0;
        if (on) c->values[row >> 3] |= (uint8_t)(1 << (row & 7));
    } else if (!number(in, &n)) {
        return 0;
    } else if (c->kind == FLOAT64) {
        if (!as_double(&n, &((double *)c->values)[row])) return 0;
    } else if (c->kind == FLOAT32) {
        if (!as_float(&n, &((float *)c->values)[row])) return 0;
    } else {
        if (!n.whole || n.count > MAX_DIGITS) return 0;
        whole = n.negative ? -(int64_t)n.digits : (int64_t)n.digits;
        if (c->kind < INT64 && (whole < -(1ll << (c->kind * 8 - 1)) || whole >= 1ll << (c->kind * 8 - 1))) return 0;
        switch (c->kind) {
        case INT8: ((int8_t *)c->values)[row] = (int8_t)whole; break;
        case INT16: ((int16_t *)c->values)[row] = (int16_t)whole; break;
        case INT32: ((int32_t *)c->values)[row] = (int32_t)whole; break;
        default: ((int64_t *)c->values)[row] = whole;
        }
    }
    c->valid[row >> 3] |= (uint8_t)(1 << (row & 7));
    return 1;
}

/* The column of a name; names mostly come in the same order. */
static inline Column *column_of(Column *columns, Py_ssize_t count, Py_ssize_t *next, const uint8_t *name,
                                Py_ssize_t size) {
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t at = *next + i < count ? *next + i : *next + i - count;
        Column *c = &columns[at];
        if (c->name_size == size && !memcmp(c->name, name, (size_t)size)) {
            *next = at + 1 < count ? at + 1 : 0;
            return c;
        }
    }
    return NULL;
}

static int object(Text in, Column *columns, Py_ssize_t count, Py_ssize_t row) {
    const uint8_t *name;
    Py_ssize_t size, next = 0;
    int escaped;
    if (!is(&in, '{')) return 0;
    blanks(&in);
    if (!is(&in, '}')) {
        for (;;) {
            blanks(&in);
            if (!is(&in, '"') || !text(&in, &name, &size, &escaped) || escaped) return 0;
            blanks(&in);
            if (!is(&in, ':')) return 0;
            blanks(&in);
            Column *c = column_of(columns, count, &next, name, size);
            if (c == NULL) {
                if (!skip(&in, 0)) return 0;
            } else {
                if (c->seen == row) return 0; /* named twice */
                c->seen = row;
                int done = value(&in, c, row);
                if (done <= 0) return done;
            }
            blanks(&in);
            if (is(&in, '}')) break;
            if (!is(&in, ',')) return 0;
        }
    }
    blanks(&in);
    return in.at == in.end;
}

static void forget(Column *columns, Py_ssize_t count, Py_ssize_t row) {
    for (Py_ssize_t i = 0; i < count; i++) {
        columns[i].valid[row >> 3] &= (uint8_t) ~(1 << (row & 7));
        if (columns[i].offsets) columns[i].used = columns[i].offsets[row];
    }
}

static int run(const int32_t *offsets, const uint8_t *data, const uint8_t *valid, Py_ssize_t first, Py_ssize_t rows,
               Column *columns, Py_ssize_t count, PyObject *left) {
    for (Py_ssize_t row = 0; row < rows; row++) {
        Py_ssize_t at = first + row;
        Text in = {data + offsets[at], data + offsets[at + 1]};
        int there = valid == NULL || valid[at >> 3] >> (at & 7) & 1;
        int done = there ? object(in, columns, count, row) : 1; /* no value: a row of nulls */
        if (done < 0) return 0;
        if (!done) {
            forget(columns, count, row);
            PyObject *number = PyLong_FromSsize_t(row);
            int failed = number == NULL || PyList_Append(left, number) < 0;
            Py_XDECREF(number);
            if (failed) return 0;
        }
        for (Py_ssize_t i = 0; i < count; i++)
            if (columns[i].offsets) columns[i].offsets[row + 1] = (int32_t)columns[i].used;
    }
    return 1;
}

/* A zeroed block in the result tuple. */
static void *block(PyObject *result, Py_ssize_t *at, Py_ssize_t size) {
    PyObject *made = PyBytes_FromStringAndSize(NULL, size);
    if (made == NULL) return NULL;
    memset(PyBytes_AS_STRING(made), 0, (size_t)size);
    PyTuple_SET_ITEM(result, (*at)++, made);
    return PyBytes_AS_STRING(made);
}

/* Validity and numbers of a column; of a text validity, offsets and data. */
static int blocks(PyObject *result, Py_ssize_t *at, Column *c, Py_ssize_t rows, Py_ssize_t bytes) {
    c->seen = -1;
    if (!(c->valid = block(result, at, rows / 8 + 1))) return 0;
    if (c->kind == TEXT) {
        if (!(c->offsets = block(result, at, (rows + 1) * 4)) || !block(result, at, bytes / 4 + 64)) return 0;
        c->bytes = &((PyTupleObject *)result)->ob_item[*at - 1];
        return 1;
    }
    Py_ssize_t width = c->kind == FLOAT64 ? 8 : c->kind == FLOAT32 ? 4 : c->kind;
    return (c->values = block(result, at, c->kind == BOOL ? rows / 8 + 1 : rows * width + 1)) != NULL;
}

static int columns_of(PyObject *names, PyObject *kinds, Column *columns, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        char *name;
        if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(names, i), &name, &columns[i].name_size) < 0) return 0;
        columns[i].name = name;
        columns[i].kind = (int)PyLong_AsLong(PyTuple_GET_ITEM(kinds, i));
        if (PyErr_Occurred()) return 0;
    }
    return 1;
}

static PyObject *parse(PyObject *self, PyObject *args) {
    Py_buffer offsets, data, valid;
    Py_ssize_t first, rows, at = 1, size = 1;
    PyObject *names, *kinds, *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*z*nnO!O!", &offsets, &data, &valid, &first, &rows, &PyTuple_Type, &names,
                          &PyTuple_Type, &kinds))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    const int32_t *places = offsets.buf;
    Column *columns = PyMem_Calloc((size_t)count + 1, sizeof(Column));
    int ok = columns != NULL && PyTuple_GET_SIZE(kinds) == count;
    if (first < 0 || rows < 0 || offsets.len / 4 < first + rows + 1 ||
        (valid.buf && valid.len * 8 < first + rows)) {
        PyErr_SetString(PyExc_ValueError, "fewer values than rows");
        ok = 0;
    }
    for (Py_ssize_t i = 0; ok && i <= rows; i++) {
        int32_t low = i ? places[first + i - 1] : 0;
        if (places[first + i] < low || places[first + i] > data.len) {
            PyErr_SetString(PyExc_ValueError, "a value outside the data");
            ok = 0;
        }
    }
    ok = ok && columns_of(names, kinds, columns, count);
    for (Py_ssize_t i = 0; ok && i < count; i++) size += columns[i].kind == TEXT ? 3 : 2;
    if (ok && (result = PyTuple_New(size))) {
        Py_ssize_t bytes = places[first + rows] - places[first];
        PyObject *left = PyList_New(0);
        ok = left != NULL;
        if (ok) PyTuple_SET_ITEM(result, 0, left);
        for (Py_ssize_t i = 0; ok && i < count; i++) ok = blocks(result, &at, &columns[i], rows, bytes);
        if (!ok || !run(places, data.buf, valid.buf, first, rows, columns, count, left)) Py_CLEAR(result);
    }
    PyMem_Free(columns);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    PyBuffer_Release(&valid);
    return result;
}

static PyMethodDef methods[] = {
    {"parse", parse, METH_VARARGS, "parse(offsets, data, valid, first, rows, names, kinds) -> (left, buffers...)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_json", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__json(void) { return PyModule_Create(&module); }
