/* Records at a steady rate through librdkafka: the time from rd_kafka_produce() until the consumer's callback has each.
 *
 *     end_to_end LIBRARY HOST:PORT TOPIC SECONDS WARM
 *
 * LIBRARY is a librdkafka shared library; bench/end_to_end.py is the same client in Python. One thread produces a
 * record of 100 bytes every millisecond, acks=all, linger 0; one consumes partition 0 of TOPIC, which must be new. The
 * first WARM seconds are not measured, the SECONDS after them are. `measuring` and `measured` are printed around the
 * measured part, for who reads the broker's CPU time, then one line of JSON. A record that is not acknowledged, is
 * missing, or is out of order ends all with status 1.
 */
#include "client.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { RATE = 1000, VALUE = 100 };
enum { PRODUCER, CONSUMER, COPY = 2, BEGINNING = -2, PARTITION_EOF = -191, PATIENCE_MS = 30000 };

/* What is used of rdkafka.h, whose ABI is stable; the header itself need not be there. */
struct message {
    int error;
    void *topic;
    int32_t partition;
    void *value;
    size_t size;
    void *key;
    size_t key_size;
    int64_t offset;
    void *private;
};
typedef void (*on_message)(struct message *, void *);
static void *(*conf_new)(void);
static int (*conf_set)(void *, const char *, const char *, char *, size_t);
static void (*set_delivered)(void *, void (*)(void *, const struct message *, void *));
static void *(*new_client)(int, void *, char *, size_t);
static void *(*new_topic)(void *, const char *, void *);
static int (*produce)(void *, int32_t, int, void *, size_t, const void *, size_t, void *);
static int (*serve)(void *, int);
static int (*flush)(void *, int);
static int (*consume_start)(void *, int32_t, int64_t);
static int (*consume)(void *, int32_t, int, on_message, void *);
static const char *(*error_text)(int);

struct value { /* of a record */
    double sent;
    uint32_t number;
};

static const char *server, *topic_name;
static double *delays;
static uint32_t total, unmeasured, seen, delivered;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static int is_ready;

static void *named(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) fail("%s is not in the library", name);
    return found;
}

static void load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) fail("%s", dlerror());
    conf_new = named(library, "rd_kafka_conf_new");
    conf_set = named(library, "rd_kafka_conf_set");
    set_delivered = named(library, "rd_kafka_conf_set_dr_msg_cb");
    new_client = named(library, "rd_kafka_new");
    new_topic = named(library, "rd_kafka_topic_new");
    produce = named(library, "rd_kafka_produce");
    serve = named(library, "rd_kafka_poll");
    flush = named(library, "rd_kafka_flush");
    consume_start = named(library, "rd_kafka_consume_start");
    consume = named(library, "rd_kafka_consume_callback");
    error_text = named(library, "rd_kafka_err2str");
}

static void on_delivery(void *client, const struct message *m, void *unused) {
    (void)client, (void)unused;
    if (m->error) fail("a record was not acknowledged: %s", error_text(m->error));
    delivered++;
}

/* A client with settings in pairs, ended by NULL. */
static void *client_of(int kind, const char *const *settings) {
    char text[512];
    void *conf = conf_new();
    for (; *settings; settings += 2)
        if (conf_set(conf, settings[0], settings[1], text, sizeof text)) fail("%s", text);
    if (kind == PRODUCER) set_delivered(conf, on_delivery);
    void *client = new_client(kind, conf, text, sizeof text);
    if (!client) fail("%s", text);
    return client;
}

static void on_record(struct message *m, void *unused) {
    double at = now();
    (void)unused;
    if (m->error == PARTITION_EOF) { /* the consumer waits for what comes */
        pthread_mutex_lock(&lock);
        is_ready = 1;
        pthread_cond_signal(&ready);
        pthread_mutex_unlock(&lock);
    }
    if (m->error) return; /* others pass, as Kafka tells of new topics with some delay */
    if (!is_ready) fail("the topic %s is not new: it has records", topic_name);
    struct value value;
    if (m->size != VALUE) fail("a record of %zu bytes", m->size);
    memcpy(&value, m->value, sizeof value);
    if (seen == total || value.number != seen) fail("record %u where %u was expected", value.number, seen);
    delays[seen++] = at - value.sent;
}

static void *read_all(void *unused) {
    const char *const settings[] = {
        "bootstrap.servers", server, "fetch.wait.max.ms", "500", "enable.partition.eof", "true", NULL,
    };
    void *topic = new_topic(client_of(CONSUMER, settings), topic_name, NULL);
    if (!topic || consume_start(topic, 0, BEGINNING)) fail("the consumer does not start");
    double last = now();
    for (uint32_t before = 0; seen < total; before = seen) {
        consume(topic, 0, 1000, on_record, NULL);
        if (seen > before || !is_ready) last = now();
        if (now() - last > PATIENCE_MS / 1e3) fail("%u records did not arrive", total - seen);
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc != 6) fail("end_to_end LIBRARY HOST:PORT TOPIC SECONDS WARM");
    load(argv[1]);
    server = argv[2], topic_name = argv[3];
    unmeasured = (uint32_t)(atof(argv[5]) * RATE);
    total = unmeasured + (uint32_t)(atof(argv[4]) * RATE);
    if (total == unmeasured) fail("%s seconds are not enough", argv[4]);
    delays = room(NULL, total * sizeof *delays);
    pthread_t reader;
    pthread_create(&reader, NULL, read_all, NULL);
    const char *const settings[] = {"bootstrap.servers", server, "acks", "all", "linger.ms", "0", NULL};
    void *client = client_of(PRODUCER, settings);
    void *topic = new_topic(client, topic_name, NULL);
    if (!topic) fail("no topic %s", topic_name);
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += PATIENCE_MS / 1000;
    pthread_mutex_lock(&lock);
    while (!is_ready)
        if (pthread_cond_timedwait(&ready, &lock, &limit)) fail("the consumer did not reach the end of the topic");
    pthread_mutex_unlock(&lock);

    double began = now();
    for (uint32_t number = 0; number < total; number++) {
        if (number == unmeasured) {
            puts("measuring");
            fflush(stdout);
        }
        sleep_until(began + (double)number / RATE);
        unsigned char data[VALUE] = {0};
        struct value value = {now(), number};
        memcpy(data, &value, sizeof value);
        if (produce(topic, 0, COPY, data, VALUE, NULL, 0, NULL)) fail("the producer's queue is full");
        serve(client, 0);
    }
    flush(client, PATIENCE_MS);
    pthread_join(reader, NULL);
    puts("measured");
    fflush(stdout);
    if (delivered != total) fail("%u records were not acknowledged", total - delivered);
    size_t count = total - unmeasured;
    printf("{\"requests\": %zu", count);
    print_percentiles(delays + unmeasured, count);
    puts("}");
    fflush(stdout);
    _exit(0); /* without librdkafka's goodbyes */
}
