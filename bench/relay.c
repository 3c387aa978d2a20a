/* What the machine itself takes to pass a message along: the floor under the end-to-end row.
 *
 *     relay SECONDS
 *
 * One thread sends 100 bytes every millisecond over loopback to another process, which sends them on to a second
 * thread: the wake-ups of a record from producer to consumer, without a broker. Prints one line of JSON, milliseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RATE = 1000, SIZE = 100 };

static int in[2], out[2]; /* to the other process and back: connected sockets */
static double *delays;
static size_t total;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void connect_pair(int pair[2]) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    if (listener < 0 || bind(listener, (void *)&at, size) || listen(listener, 1)) fail("listen");
    if (getsockname(listener, (void *)&at, &size)) fail("getsockname");
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (pair[0] < 0 || connect(pair[0], (void *)&at, sizeof at)) fail("connect");
    pair[1] = accept(listener, NULL, NULL);
    if (pair[1] < 0) fail("accept");
    for (int i = 0; i < 2; i++) setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(listener);
}

static void pass_on(void) {
    char data[SIZE];
    while (recv(in[1], data, SIZE, MSG_WAITALL) == SIZE && send(out[1], data, SIZE, MSG_NOSIGNAL) == SIZE) {}
    _exit(0);
}

static void *receive(void *unused) {
    char data[SIZE];
    for (size_t i = 0; i < total; i++) {
        double sent;
        if (recv(out[0], data, SIZE, MSG_WAITALL) != SIZE) fail("recv");
        memcpy(&sent, data, sizeof sent);
        delays[i] = now() - sent;
    }
    return unused;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    total = argc == 2 ? (size_t)(atof(argv[1]) * RATE) : 0;
    if (!total) {
        fputs("relay SECONDS\n", stderr);
        return 1;
    }
    delays = calloc(total, sizeof *delays);
    if (!delays) fail("delays");
    connect_pair(in);
    connect_pair(out);
    pid_t other = fork();
    if (other < 0) fail("fork");
    if (!other) pass_on();
    pthread_t receiver;
    pthread_create(&receiver, NULL, receive, NULL);
    double began = now();
    for (size_t number = 0; number < total; number++) {
        double at = began + (double)number / RATE;
        struct timespec until = {(time_t)at, (long)((at - (double)(time_t)at) * 1e9)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) {}
        char data[SIZE] = {0};
        double sent = now();
        memcpy(data, &sent, sizeof sent);
        if (send(in[0], data, SIZE, MSG_NOSIGNAL) != SIZE) fail("send");
    }
    pthread_join(receiver, NULL);
    kill(other, SIGKILL);
    qsort(delays, total, sizeof *delays, by_size);
    printf("{\"requests\": %zu, \"p50\": %.4f, \"p99\": %.4f, \"p99.9\": %.4f}\n", total, delays[total / 2] * 1e3,
           delays[total * 99 / 100] * 1e3, delays[total * 999 / 1000] * 1e3);
    return 0;
}
