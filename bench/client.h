/* What the benchmark's clients in C have in common. To be included first, as it asks for the GNU functions. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* End with one line and status 1, whatever other threads do. */
static inline void fail(const char *text, ...) {
    va_list rest;
    va_start(rest, text);
    vfprintf(stderr, text, rest);
    va_end(rest);
    fputc('\n', stderr);
    _exit(1);
}

static inline void *room(void *old, size_t size) {
    void *found = realloc(old, size);
    if (!found) fail("out of memory");
    return found;
}

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void sleep_until(double at) {
    struct timespec t = {(time_t)at, (long)((at - (double)(time_t)at) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) {}
}

static inline int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Members of a JSON object, in milliseconds; sorts the times, which are in seconds. */
static inline void print_percentiles(double *times, size_t count) {
    static const struct {
        const char *name;
        double part;
    } wanted[] = {{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}};
    qsort(times, count, sizeof *times, by_size);
    for (int i = 0; i < 3; i++) {
        size_t at = (size_t)((double)count * wanted[i].part);
        printf(", \"%s\": %.4f", wanted[i].name, times[at < count ? at : count - 1] * 1e3);
    }
}
