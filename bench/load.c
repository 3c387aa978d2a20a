/* The closed-loop request client of the benchmark: prepared Kafka requests over many connections, on one epoll loop.
 *
 *     load HOST PORT[,PORT...] [connections=1] [in-flight=1] [window=0] [seconds=0] [requests=0] [settle=0] [warm=0] [errors-at=9,37]
 *
 * With several ports connection i goes to the i-th of them, round and round: those of the nodes that lead what it
 * writes. Standard input holds length-prefixed requests. The first opens each connection: it is sent and its answer awaited
 * before the next connection is made, so that no backlog overflows. The others are the load: connection i of n sends
 * requests i, i+n, i+2n, ... of them, round and round. Each connection has `in-flight` requests on their way; with
 * `window`, that many are on their way in all, and the connections take turns. With no further requests the
 * connections are merely held.
 *
 * Warming comes first: slices of half a second until the rate has stopped rising and `warm` answers came, for `settle`
 * seconds at most, and until each request was sent once. Then `measuring` is printed, and after `seconds` or `requests` `measured`, for who
 * reads the broker's CPU time; then, when all answers are there, one line of JSON. An answer whose correlation id is
 * not the request's, or that has other than zero at a place of an error code (counted behind the size), ends all with
 * status 1. bench/load.py is the same client in Python; bench/warm.py says when a rate has stopped rising.
 */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { HEAD = 512, ERRORS = 8, SLICES = 4096, EVENTS = 512 };
static const double SLICE = 0.5, RISE = 1.05;

struct frame {
    const unsigned char *data;
    size_t size;
};

struct connection {
    int fd;
    uint32_t cursor;           /* the next request of the load */
    uint32_t first, waiting;   /* ring of send times, one for each request on its way */
    double *sent;
    size_t size, seen;         /* the answer that is being received */
    unsigned char head[HEAD];
};

static int connections = 1, in_flight = 1, window = 0, error_count = 0;
static double seconds = 0, settle = 0;
static uint64_t requests = 0, warm_answers = 0;
static size_t errors_at[ERRORS];

static struct frame opening, *frames;
static size_t frame_count;
static struct connection *all;
static uint32_t ring, turn;
static int sending = 1, opened;
static uint64_t answers, on_their_way;
static double *times; /* seconds from send to answer, of the measured part */
static size_t time_count, time_room;
static int measuring;

static uint32_t be32(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void read_frames(void) {
    unsigned char *data = NULL;
    size_t size = 0, space = 0;
    ssize_t got;
    do {
        if (size == space) data = room(data, space = space ? 2 * space : 1 << 16);
        got = read(0, data + size, space - size);
        if (got < 0) fail("standard input: %s", strerror(errno));
        size += (size_t)got;
    } while (got);
    size_t count = 0, space_frames = 0;
    for (size_t at = 0; at < size; count++) {
        if (size - at < 16 || size - at - 4 < be32(data + at)) fail("standard input ends inside a request");
        if (count == space_frames) frames = room(frames, (space_frames = 2 * space_frames + 16) * sizeof *frames);
        frames[count] = (struct frame){data + at, 4 + be32(data + at)};
        at += frames[count].size;
    }
    if (!count) fail("no request on standard input");
    opening = frames[0];
    frames++;
    frame_count = count - 1;
}

static void transmit(struct connection *c, const struct frame *f) {
    for (size_t done = 0; done < f->size;) { /* the socket blocks: a handful of requests fits its buffer */
        ssize_t put = send(c->fd, f->data + done, f->size - done, MSG_NOSIGNAL);
        if (put < 0) fail("send: %s", strerror(errno));
        done += (size_t)put;
    }
    c->sent[(c->first + c->waiting++) % ring] = now();
    on_their_way++;
}

static void send_next(struct connection *c) {
    const struct frame *f = &frames[c->cursor];
    c->cursor = (uint32_t)((c->cursor + (uint32_t)connections) % frame_count);
    transmit(c, f);
}

static void answered(struct connection *c, double at) {
    const struct frame *asked = opened ? &frames[0] : &opening;
    if (!c->waiting || memcmp(c->head + 4, asked->data + 8, 4)) fail("an answer to nothing that was asked");
    for (int i = 0; opened && i < error_count; i++) {
        const unsigned char *p = c->head + 4 + errors_at[i];
        if (errors_at[i] + 2 > c->size) fail("an answer of %zu bytes has no error code", c->size);
        if (p[0] || p[1]) fail("the broker answered with error %d", (int16_t)(p[0] << 8 | p[1]));
    }
    if (measuring) {
        if (time_count == time_room) times = room(times, (time_room = 2 * time_room + 65536) * sizeof *times);
        times[time_count++] = at - c->sent[c->first];
    }
    c->first = (c->first + 1) % ring;
    c->waiting--;
    c->seen = 0;
    on_their_way--;
    answers++;
    if (sending && opened) send_next(window ? &all[turn++ % (uint32_t)connections] : c);
}

/* Receive once and handle every answer that is complete. */
static void receive(struct connection *c, int flags) {
    static unsigned char buffer[1 << 18];
    ssize_t got = recv(c->fd, buffer, sizeof buffer, flags);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) fail("recv: %s", strerror(errno));
    if (got == 0) fail("the broker closed a connection");
    double at = now();
    for (size_t done = 0, left = (size_t)got; left;) {
        size_t want = (c->seen < 4 ? 4 : 4 + c->size) - c->seen, take = left < want ? left : want;
        if (c->seen < HEAD) memcpy(c->head + c->seen, buffer + done, take < HEAD - c->seen ? take : HEAD - c->seen);
        c->seen += take, done += take, left -= take;
        if (c->seen == 4 && ((c->size = be32(c->head)) < 4 || c->size > 1u << 30)) fail("not an answer of Kafka's");
        if (c->seen > 4 && c->seen == 4 + c->size) answered(c, at);
    }
}

static void connect_all(const char *host, char *list) {
    enum { PORTS = 64 };
    in_port_t ports[PORTS];
    int port_count = 0;
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        if (port_count == PORTS) fail("at most %d ports", PORTS);
        ports[port_count++] = htons((uint16_t)atoi(word));
    }
    struct sockaddr_in to = {.sin_family = AF_INET};
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) fail("%s: not an IPv4 address", host);
    all = room(NULL, (size_t)connections * sizeof *all);
    memset(all, 0, (size_t)connections * sizeof *all);
    for (int i = 0, one = 1; i < connections; i++) {
        struct connection *c = &all[i];
        c->cursor = frame_count ? (uint32_t)((size_t)i % frame_count) : 0;
        c->sent = room(NULL, ring * sizeof *c->sent);
        to.sin_port = ports[i % port_count];
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to)) fail("connection %d: %s", i, strerror(errno));
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        transmit(c, &opening);
        while (c->waiting) receive(c, 0);
    }
    opened = 1;
    answers = 0;
}

/* Whether none of the last two rates is more than RISE above the best before them. */
static int settled(const double *rates, int count) {
    double best = 0;
    for (int i = 0; i < count - 2; i++) best = rates[i] > best ? rates[i] : best;
    return count >= 3 && rates[count - 1] <= RISE * best && rates[count - 2] <= RISE * best;
}

static void handle_events(int epoll) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll, events, EVENTS, 20);
    if (count < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < count; i++) receive(events[i].data.ptr, MSG_DONTWAIT);
}

static int warm(int epoll, double *rates) {
    double began = now();
    uint64_t enough = frame_count > (size_t)connections ? frame_count : (uint64_t)connections;
    int count = 0, done = settle <= 0 || !frame_count;
    while (!done) {
        double start = now(), end = start + SLICE;
        uint64_t before = answers;
        while (now() < end) handle_events(epoll);
        rates[count++] = (double)(answers - before) / (now() - start);
        int late = now() - began >= settle || count == SLICES;
        done = answers >= enough && (late || (answers >= warm_answers && settled(rates, count)));
        if (count == SLICES && !done) fail("not every request was answered once while warming");
    }
    return count;
}

static void parse(int argc, char **argv) {
    for (int i = 3; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) fail("%s: expected key=value", argv[i]);
        *value++ = 0;
        if (!strcmp(argv[i], "connections")) connections = atoi(value);
        else if (!strcmp(argv[i], "in-flight")) in_flight = atoi(value);
        else if (!strcmp(argv[i], "window")) window = atoi(value);
        else if (!strcmp(argv[i], "seconds")) seconds = atof(value);
        else if (!strcmp(argv[i], "requests")) requests = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "settle")) settle = atof(value);
        else if (!strcmp(argv[i], "warm")) warm_answers = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "errors-at")) {
            for (char *word = strtok(value, ","); word; word = strtok(NULL, ",")) {
                if (error_count == ERRORS || atoi(word) + 6 > HEAD) fail("errors-at: too many, or too far");
                errors_at[error_count++] = (size_t)atoi(word);
            }
        } else fail("%s: unknown", argv[i]);
    }
    if (connections < 1 || in_flight < 1 || window < 0) fail("connections and in-flight begin at 1");
    if (seconds <= 0 && !requests) fail("seconds or requests is needed");
}

int main(int argc, char **argv) {
    if (argc < 3) fail("load HOST PORT [key=value ...] < requests");
    parse(argc, argv);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    read_frames();
    if (!frame_count && seconds <= 0) fail("connections without requests are held for some seconds");
    ring = (uint32_t)(in_flight > window ? in_flight : window);

    double start = now();
    connect_all(argv[1], argv[2]);
    double connected = now() - start;
    int epoll = epoll_create1(0);
    for (int i = 0; i < connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event)) fail("epoll_ctl: %s", strerror(errno));
    }
    if (frame_count) {
        if (window) for (int i = 0; i < window; i++) send_next(&all[turn++ % (uint32_t)connections]);
        else for (int i = 0; i < in_flight * connections; i++) send_next(&all[i % connections]);
    }

    static double rates[SLICES];
    start = now();
    int slices = warm(epoll, rates);
    double warmed = now() - start;
    puts("measuring");
    fflush(stdout);
    measuring = 1;
    start = now();
    while (seconds > 0 ? now() - start < seconds : time_count < requests) handle_events(epoll);
    double took = now() - start;
    measuring = sending = 0;
    puts("measured");
    fflush(stdout);
    while (on_their_way) handle_events(epoll);

    printf("{\"requests\": %zu, \"seconds\": %.6f, \"connect s\": %.6f, \"warm s\": %.3f, \"warm req/s\": [",
           time_count, took, connected, warmed);
    for (int i = 0; i < slices; i++) printf("%s%.0f", i ? ", " : "", rates[i]);
    printf("]");
    if (time_count) print_percentiles(times, time_count);
    puts("}");
    return 0;
}
