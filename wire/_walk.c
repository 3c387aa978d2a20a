/* One walk over the records of a batch: whether they match the batch header, and what may be asked about all of them.
 *
 * Two functions, both over the decompressed records of one batch, whose CRC has been checked:
 * check(...) judges a producer's records; find_time(...) looks a timestamp up. Their twins in Python are in wire/walk.py,
 * which says what they accept.
 *
 * Every read is checked against the end of its record, which is checked against the end of the data. Work is bounded by
 * the bytes given: a record has at least 7. The interpreter is let go on for other threads while long data is walked.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_varint.h"

#define LONG_DATA (64 * 1024)

typedef struct {
    int64_t timestamp, delta, key_size;
} Record;

typedef struct {
    const uint8_t *at, *stop;
    int64_t index;       /* of the next record */
    const char *problem; /* of that record, set when `next` fails */
} Walk;

/* Skip a length and that many bytes; -1 is null. */
static inline int blob(const uint8_t **pos, const uint8_t *end, int64_t *size) {
    if (!number(pos, end, 32, size) || *size < -1 || *size > end - *pos) return 0;
    if (*size > 0) *pos += *size;
    return 1;
}

/* RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
static int is_utf8(const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        uint8_t lead = *p++;
        int more;
        if (lead < 0x80) continue;
        if (lead >= 0xc2 && lead < 0xe0) more = 1;
        else if (lead >= 0xe0 && lead < 0xf0) more = 2;
        else if (lead >= 0xf0 && lead < 0xf5) more = 3;
        else return 0;
        if (end - p < more) return 0;
        if ((lead == 0xe0 && *p < 0xa0) || (lead == 0xed && *p > 0x9f)) return 0;
        if ((lead == 0xf0 && *p < 0x90) || (lead == 0xf4 && *p > 0x8f)) return 0;
        for (; more; more--, p++)
            if ((*p & 0xc0) != 0x80) return 0;
    }
    return 1;
}

static int headers(const uint8_t **pos, const uint8_t *end) {
    int64_t count, size;
    if (!number(pos, end, 32, &count) || count < 0 || count > end - *pos) return 0;
    for (int64_t i = 0; i < count; i++) {
        if (!blob(pos, end, &size) || size < 0 || !is_utf8(*pos - size, *pos)) return 0;
        if (!blob(pos, end, &size)) return 0;
    }
    return 1;
}

/* The next record; `whole` also checks its value and headers. 0, with a problem, if it is not one. */
static inline int next(Walk *walk, int64_t base_timestamp, int whole, Record *record) {
    int64_t length, size;
    const uint8_t *pos = walk->at;
    if (!number(&pos, walk->stop, 32, &length) || length <= 0 || length > walk->stop - pos) {
        walk->problem = "has a wrong length";
        return 0;
    }
    const uint8_t *end = pos + length;
    pos++; /* attributes: unused */
    if (!number(&pos, end, 64, &record->timestamp) ||
        __builtin_add_overflow(base_timestamp, record->timestamp, &record->timestamp)) {
        walk->problem = "has a wrong timestamp";
        return 0;
    }
    if (!number(&pos, end, 32, &record->delta)) {
        walk->problem = "has a wrong offset";
        return 0;
    }
    if (!blob(&pos, end, &record->key_size)) {
        walk->problem = "has a wrong key";
        return 0;
    }
    if (whole) {
        if (!blob(&pos, end, &size)) {
            walk->problem = "has a wrong value";
            return 0;
        }
        if (!headers(&pos, end)) {
            walk->problem = "has wrong headers";
            return 0;
        }
        if (pos != end) {
            walk->problem = "is longer than its content";
            return 0;
        }
    }
    walk->at = end;
    walk->index++;
    return 1;
}

typedef struct {
    int64_t max_timestamp;
    Py_ssize_t bad;   /* records that break a rule */
    int32_t *indexes; /* of the first `most` of them */
    uint8_t *reasons;
} Verdict;

static int check_all(Walk *walk, int64_t count, int64_t base_timestamp, int64_t oldest, int64_t newest, int keyed,
                     Py_ssize_t most, Verdict *verdict) {
    Record record;
    for (int64_t i = 0; i < count; i++) {
        if (!next(walk, base_timestamp, 1, &record)) return 0;
        if (record.delta != i) {
            walk->index = i;
            walk->problem = "is not at the offset after the one before";
            return 0;
        }
        int reason = 0;
        if (keyed && record.key_size < 0) reason = 1;
        else if (record.timestamp != -1 && (record.timestamp < oldest || record.timestamp > newest)) reason = 2;
        if (reason && verdict->bad++ < most) {
            verdict->indexes[verdict->bad - 1] = (int32_t)i;
            verdict->reasons[verdict->bad - 1] = (uint8_t)reason;
        }
        if (record.timestamp > verdict->max_timestamp) verdict->max_timestamp = record.timestamp;
    }
    return 1;
}

static PyObject *check(PyObject *self, PyObject *args) {
    Py_buffer view;
    long long count, base_timestamp, oldest, newest;
    int keyed;
    Py_ssize_t most, start;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nLLLLpn", &view, &start, &count, &base_timestamp, &oldest, &newest, &keyed, &most))
        return NULL;
    PyObject *result = NULL, *bad = NULL;
    if (start < 0 || start > view.len || most < 0 || most > 1 << 20 || count < 0 || count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a bound out of range");
        goto done;
    }
    if (most > count) most = count;
    Verdict verdict = {-1, 0, PyMem_Malloc((size_t)most * 4 + 1), PyMem_Malloc((size_t)most + 1)};
    if (verdict.indexes == NULL || verdict.reasons == NULL) {
        PyErr_NoMemory();
        goto free;
    }
    Walk walk = {(const uint8_t *)view.buf + start, (const uint8_t *)view.buf + view.len, 0, NULL};
    int whole;
    if (view.len > LONG_DATA) {
        Py_BEGIN_ALLOW_THREADS
        whole = check_all(&walk, count, base_timestamp, oldest, newest, keyed, most, &verdict);
        Py_END_ALLOW_THREADS
    } else {
        whole = check_all(&walk, count, base_timestamp, oldest, newest, keyed, most, &verdict);
    }
    if (!whole) {
        PyErr_Format(PyExc_ValueError, "record %lld %s", (long long)walk.index, walk.problem);
        goto free;
    }
    if (walk.at != walk.stop) {
        PyErr_Format(PyExc_ValueError, "%zd bytes after the last record", (Py_ssize_t)(walk.stop - walk.at));
        goto free;
    }
    Py_ssize_t listed = verdict.bad < most ? verdict.bad : most;
    bad = PyTuple_New(listed);
    for (Py_ssize_t i = 0; bad != NULL && i < listed; i++) {
        PyObject *pair = Py_BuildValue("(ii)", (int)verdict.indexes[i], (int)verdict.reasons[i]);
        if (pair == NULL) Py_CLEAR(bad);
        else PyTuple_SET_ITEM(bad, i, pair);
    }
    if (bad != NULL) result = Py_BuildValue("(LNn)", (long long)verdict.max_timestamp, bad, verdict.bad);
free:
    PyMem_Free(verdict.indexes);
    PyMem_Free(verdict.reasons);
done:
    PyBuffer_Release(&view);
    return result;
}

/* 1: found, 0: not found, -1: damaged. */
static int find(Walk *walk, int64_t count, int64_t base_timestamp, int64_t base_offset, int64_t append_time, int stamped,
                int64_t wanted, int64_t lo, int64_t hi, Record *record) {
    for (int64_t i = 0; i < count; i++) {
        if (!next(walk, base_timestamp, 0, record)) return -1;
        if (stamped) record->timestamp = append_time;
        record->delta += base_offset; /* the caller has checked that this is in range */
        if (record->timestamp >= wanted && record->delta >= lo && record->delta < hi) return 1;
    }
    return 0;
}

static PyObject *find_time(PyObject *self, PyObject *args) {
    Py_buffer view;
    long long count, base_timestamp, base_offset, append_time, wanted, lo, hi;
    int stamped, found;
    Record record;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*LLLLpLLL", &view, &count, &base_timestamp, &base_offset, &append_time, &stamped,
                          &wanted, &lo, &hi))
        return NULL;
    if (base_offset < 0 || base_offset > INT64_MAX - INT32_MAX) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "an offset out of range");
        return NULL;
    }
    Walk walk = {view.buf, (const uint8_t *)view.buf + view.len, 0, NULL};
    if (view.len > LONG_DATA) {
        Py_BEGIN_ALLOW_THREADS
        found = find(&walk, count, base_timestamp, base_offset, append_time, stamped, wanted, lo, hi, &record);
        Py_END_ALLOW_THREADS
    } else {
        found = find(&walk, count, base_timestamp, base_offset, append_time, stamped, wanted, lo, hi, &record);
    }
    PyBuffer_Release(&view);
    if (found < 0) {
        PyErr_Format(PyExc_ValueError, "record %lld %s", (long long)walk.index, walk.problem);
        return NULL;
    }
    if (!found) Py_RETURN_NONE;
    return Py_BuildValue("(LL)", (long long)record.delta, (long long)record.timestamp);
}

static PyMethodDef methods[] = {
    {"check", check, METH_VARARGS, "See wire.walk.check."},
    {"find_time", find_time, METH_VARARGS, "See wire.walk.find_time."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_walk", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__walk(void) { return PyModule_Create(&module); }
