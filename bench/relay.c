/* What the machine itself takes to pass a message along: the floor under the end-to-end row.
 *
 *     relay SECONDS
 *
 * One thread sends 100 bytes every millisecond over loopback to another process, which sends them on to a second
 * thread: the wake-ups of a record from producer to consumer, without a broker. Prints one line of JSON, milliseconds.
 */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

enum { RATE = 1000, SIZE = 100 };

static int in[2], out[2]; /* to the other process and back: connected sockets */
static double *delays;
static size_t total;

static void connect_pair(int pair[2]) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    if (listener < 0 || bind(listener, (void *)&at, size) || listen(listener, 1)) fail("listen: %s", strerror(errno));
    if (getsockname(listener, (void *)&at, &size)) fail("getsockname: %s", strerror(errno));
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (pair[0] < 0 || connect(pair[0], (void *)&at, sizeof at)) fail("connect: %s", strerror(errno));
    pair[1] = accept(listener, NULL, NULL);
    if (pair[1] < 0) fail("accept: %s", strerror(errno));
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
        if (recv(out[0], data, SIZE, MSG_WAITALL) != SIZE) fail("recv: %s", strerror(errno));
        memcpy(&sent, data, sizeof sent);
        delays[i] = now() - sent;
    }
    return unused;
}

int main(int argc, char **argv) {
    total = argc == 2 ? (size_t)(atof(argv[1]) * RATE) : 0;
    if (!total) fail("relay SECONDS");
    delays = room(NULL, total * sizeof *delays);
    connect_pair(in);
    connect_pair(out);
    pid_t other = fork();
    if (other < 0) fail("fork: %s", strerror(errno));
    if (!other) pass_on();
    pthread_t receiver;
    pthread_create(&receiver, NULL, receive, NULL);
    double began = now();
    for (size_t number = 0; number < total; number++) {
        sleep_until(began + (double)number / RATE);
        char data[SIZE] = {0};
        double sent = now();
        memcpy(data, &sent, sizeof sent);
        if (send(in[0], data, SIZE, MSG_NOSIGNAL) != SIZE) fail("send: %s", strerror(errno));
    }
    pthread_join(receiver, NULL);
    kill(other, SIGKILL);
    printf("{\"requests\": %zu", total);
    print_percentiles(delays, total);
    puts("}");
    return 0;
}
