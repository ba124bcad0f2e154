#include "proxy.h"

#include "flow.h"
#include "listener.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    READ_SIZE = 65536,
    READS_A_TURN = 32,
    LINGER = 1000000000, /* ns: time for the last bytes to arrive, and for a closed peer to stop sending */
    RETRY = 1000000      /* ns between two polls of states that cause no event */
};
static const uint32_t EVENTS = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

enum state {
    CONNECTING, /* to the server; the client's bytes are read meanwhile */
    PASSING,
    RESETTING, /* until the sent bytes have arrived */
    DRAINING   /* both sides were shut down; bytes that still come are dropped */
};

struct side {
    struct source source;
    struct pair *pair;
    struct side *other;
    bool readable, writable; /* edge-triggered: no later event reports it */
    struct flow flow;        /* bytes from this side to the other */
};

struct pair {
    struct side client, server;
    struct proxy *proxy;
    struct pair *next, *previous;
    struct timer timer, idle;
    enum state state;
    int address;        /* index of the upstream address being tried, finally of the one that accepted */
    int tried;          /* addresses tried so far */
    int sources;        /* not yet released by the loop */
    uint64_t last_move; /* when bytes last came or went */
    uint64_t until;     /* RESETTING, DRAINING: when to give up */
};

static char input[READ_SIZE];

/* Opening and closing. */

static int socket_for(const struct upstream_address *address)
{
    return socket(address->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

bool proxy_prepare(struct proxy *proxy)
{
    struct upstream *upstream = &proxy->upstream;
    for (int tried = 0; proxy->spare < 0 && tried < upstream->count; tried++) {
        proxy->spare_for = (upstream->first + tried) % upstream->count;
        proxy->spare = socket_for(&upstream->addresses[proxy->spare_for]);
        if (proxy->spare < 0 && errno != EAFNOSUPPORT) break;
    }
    return proxy->spare >= 0;
}

static void release(struct source *source)
{
    struct side *side = container_of(source, struct side, source);
    flow_free(&side->flow);
    if (--side->pair->sources == 0) free(side->pair);
}

static bool is_open(const struct pair *pair)
{
    return pair->client.source.fd >= 0;
}

static void close_pair(struct pair *pair)
{
    struct proxy *proxy = pair->proxy;
    if (!is_open(pair)) return;
    timers_cancel(&proxy->loop->timers, &pair->timer);
    timers_cancel(&proxy->loop->timers, &pair->idle);
    if (pair->previous) {
        pair->previous->next = pair->next;
    } else {
        proxy->pairs = pair->next;
    }
    if (pair->next) pair->next->previous = pair->previous;
    proxy->stats.open--;
    loop_close(proxy->loop, &pair->client.source);
    loop_close(proxy->loop, &pair->server.source);
    if (proxy_prepare(proxy)) listener_descriptor_is_free(proxy->listener);
}

/* Closes both sides so that each gets a reset. UNIX sockets have no reset: they are closed. */
static void reset_pair(struct pair *pair)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    if (!is_open(pair)) return;
    for (struct side *side = &pair->client;; side = side->other) {
        if (side->source.fd >= 0) setsockopt(side->source.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        if (side == &pair->server) break;
    }
    pair->proxy->stats.resets++;
    close_pair(pair);
}

static void set_timer(struct pair *pair, uint64_t at)
{
    struct timers *timers = &pair->proxy->loop->timers;
    if (at == UINT64_MAX) {
        timers_cancel(timers, &pair->timer);
    } else if (pair->timer.place == TIMER_IDLE || pair->timer.at != at) {
        if (timers_set(timers, &pair->timer, at) < 0) reset_pair(pair);
    }
}

/* Returns whether bytes sent to the side have not arrived yet. A reset would discard them. */
static bool in_flight(const struct side *side)
{
    int bytes = 0;
    return side->source.fd >= 0 && ioctl(side->source.fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

static void try_reset(struct pair *pair)
{
    uint64_t now = loop_clock();
    if (now < pair->until && (in_flight(&pair->client) || in_flight(&pair->server))) {
        set_timer(pair, now + RETRY);
    } else {
        reset_pair(pair);
    }
}

static void begin_reset(struct pair *pair)
{
    pair->state = RESETTING;
    pair->until = loop_clock() + LINGER;
    try_reset(pair);
}

/* A close with unread input would send a reset instead of the end: reads until each peer has closed. */
static void drain(struct pair *pair)
{
    bool ended = true;
    for (struct side *side = &pair->client;; side = side->other) {
        ssize_t got = 1;
        for (int reads = 0; got > 0 && reads < READS_A_TURN; reads++)
            got = side->source.fd < 0 ? 0 : recv(side->source.fd, input, sizeof input, 0);
        if (got > 0 || (got < 0 && errno == EAGAIN)) ended = false;
        if (side == &pair->server) break;
    }
    if (ended || loop_clock() >= pair->until) {
        close_pair(pair);
    } else {
        set_timer(pair, loop_clock() + RETRY);
    }
}

static void begin_close(struct pair *pair)
{
    pair->state = DRAINING;
    pair->until = loop_clock() + LINGER;
    shutdown(pair->client.source.fd, SHUT_WR);
    shutdown(pair->server.source.fd, SHUT_WR);
    drain(pair);
}

/* Passing bytes on. */

/* Reads the available bytes as far as there is room. Returns false if the pair was reset. */
static bool read_side(struct side *side, uint64_t now)
{
    struct flow *flow = &side->flow;
    for (int reads = 0; side->readable && flow->input == INPUT_OPEN && reads < READS_A_TURN; reads++) {
        size_t room = flow_room(flow);
        if (room == 0) return true;
        ssize_t got = recv(side->source.fd, input, room < sizeof input ? room : sizeof input, 0);
        if (got > 0) {
            side->pair->last_move = now;
            if (flow_take(flow, input, (size_t)got, now) == 0) continue;
            reset_pair(side->pair);
            return false;
        }
        if (got < 0 && errno == EINTR) continue;
        side->readable = false;
        if (got == 0) flow_input_over(flow, INPUT_ENDED, now);
        if (got < 0 && errno != EAGAIN) flow_input_over(flow, INPUT_RESET, now);
    }
    return true;
}

/* Passes on the bytes that may go to the other side. Returns when to try again; UINT64_MAX: at the next event. */
static uint64_t pass_side(struct side *side, uint64_t now)
{
    struct pair *pair = side->pair;
    struct side *to = side->other;
    uint64_t before = side->flow.passed, at = UINT64_MAX;
    if (!to->writable && side->flow.first) return UINT64_MAX;

    enum flow_step step = flow_pass(&side->flow, to->source.fd, now, &at);
    uint64_t went = side->flow.passed - before;
    *(side == &pair->client ? &pair->proxy->stats.request_bytes : &pair->proxy->stats.reply_bytes) += went;
    if (went > 0) pair->last_move = now;

    switch (step) {
    case FLOW_IDLE: break;
    case FLOW_WAIT: return at;
    case FLOW_BLOCKED: to->writable = false; break;
    case FLOW_BROKEN: /* send has consumed the error that a read would have reported */
        to->writable = false;
        flow_input_over(&to->flow, INPUT_RESET, now);
        return now + 1;
    case FLOW_TURN: return now + 1;
    case FLOW_END:
        shutdown(to->source.fd, SHUT_WR);
        side->flow.done = true;
        break;
    case FLOW_RESET: begin_reset(pair); break;
    case FLOW_CLOSE: begin_close(pair); break;
    }
    return UINT64_MAX;
}

static void pass(struct pair *pair)
{
    uint64_t now = loop_clock(), at = UINT64_MAX;
    for (struct side *side = &pair->client;; side = side->other) {
        if (!read_side(side, now)) return;
        uint64_t next = pass_side(side, now);
        if (!is_open(pair) || pair->state > PASSING) return;
        if (next < at) at = next;
        /* This side's turn may have made room, or ended by the limit of reads. */
        if (side->readable && side->flow.input == INPUT_OPEN && flow_room(&side->flow) > 0) at = now + 1;
        if (side == &pair->server) break;
    }
    if (pair->client.flow.done && pair->server.flow.done) {
        close_pair(pair);
    } else {
        set_timer(pair, at);
    }
}

static int watch(struct side *side)
{
    int on = 1;
    /* Fails for a UNIX socket, which does not need it. */
    setsockopt(side->source.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return loop_watch(side->pair->proxy->loop, &side->source, EVENTS);
}

static void try_connect(struct pair *pair);

/* Replaces the socket that failed with a new one, for the next address. The descriptor's number, and so the source,
   stay. Returns false if no address is left, or no socket can be made. */
static bool turn_to_next_address(struct pair *pair)
{
    const struct upstream *upstream = &pair->proxy->upstream;
    while (++pair->tried < upstream->count) {
        pair->address = (pair->address + 1) % upstream->count;
        int fresh = socket_for(&upstream->addresses[pair->address]);
        if (fresh < 0) continue;
        int fd = pair->server.source.fd, result = dup3(fresh, fd, O_CLOEXEC);
        close(fresh);
        if (result < 0) return false;
        pair->server.source.watched = false; /* the kernel has dropped the old registration */
        if (watch(&pair->server) == 0) return true;
    }
    return false;
}

static void connect_failed(struct pair *pair, int error)
{
    struct proxy *proxy = pair->proxy;
    if (turn_to_next_address(pair)) {
        try_connect(pair);
        return;
    }
    proxy->stats.failed++;
    if (error != proxy->last_error) {
        fprintf(stderr, "heddle-server: cannot connect to %s: %s\n", proxy->upstream.name, strerror(error));
    }
    proxy->last_error = error;
    reset_pair(pair);
}

static void connected(struct pair *pair)
{
    pair->state = PASSING;
    pair->proxy->last_error = 0;
    pair->proxy->upstream.first = pair->address;
    pair->server.readable = pair->server.writable = true;
    pass(pair);
}

static void try_connect(struct pair *pair)
{
    const struct upstream_address *address = &pair->proxy->upstream.addresses[pair->address];
    int result = connect(pair->server.source.fd, (const struct sockaddr *)&address->address, address->length);
    if (result == 0) {
        connected(pair);
    } else if (errno == EAGAIN) { /* a UNIX socket's backlog is full, and no event reports room */
        set_timer(pair, loop_clock() + RETRY);
    } else if (errno != EINPROGRESS && errno != EALREADY && errno != EINTR) {
        connect_failed(pair, errno);
    }
}

static int error_of(const struct side *side)
{
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(side->source.fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
}

static void advance(struct pair *pair)
{
    switch (pair->state) {
    case CONNECTING:
        if (!read_side(&pair->client, loop_clock())) return;
        if (pair->client.flow.input == INPUT_RESET) reset_pair(pair);
        break;
    case PASSING: pass(pair); break;
    case RESETTING: try_reset(pair); break;
    case DRAINING: drain(pair); break;
    }
}

static void ready(struct source *source, uint32_t events)
{
    struct side *side = container_of(source, struct side, source);
    struct pair *pair = side->pair;

    if (pair->state == CONNECTING && side == &pair->server) {
        if (!(events & (EPOLLOUT | EPOLLERR))) return; /* a socket before its connect reports EPOLLHUP */
        int error = error_of(side);
        if (error == ECONNRESET) { /* it was connected, and bytes may be left; error_of has cleared the error */
            side->readable = true;
            if (!read_side(side, loop_clock())) return;
            flow_input_over(&side->flow, INPUT_RESET, loop_clock());
            connected(pair);
        } else if (error) {
            connect_failed(pair, error);
        } else if (events & EPOLLOUT && !(events & EPOLLHUP)) {
            connected(pair);
        }
        return;
    }
    if (events & EPOLLOUT) side->writable = true;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) side->readable = true;
    /* If a peer that has ended its side is reset later, no read is left to report the error. */
    if (events & EPOLLERR && side->flow.input == INPUT_ENDED && error_of(side)) {
        flow_input_over(&side->flow, INPUT_RESET, loop_clock());
    }
    advance(pair);
}

static void fire(struct timer *timer)
{
    struct pair *pair = container_of(timer, struct pair, timer);
    if (pair->state == CONNECTING) {
        try_connect(pair);
    } else {
        advance(pair);
    }
}

static void watch_idle(struct timer *timer)
{
    struct pair *pair = container_of(timer, struct pair, idle);
    uint64_t end = pair->last_move + pair->proxy->idle;
    if (loop_clock() < end) {
        if (timers_set(&pair->proxy->loop->timers, timer, end) == 0) return;
    }
    pair->proxy->stats.idle++;
    close_pair(pair);
}

static void begin_side(struct side *side, struct pair *pair, struct side *other, const struct shape *shape)
{
    *side = (struct side){
        .source = {.fd = -1, .ready = ready, .release = release}, .pair = pair, .other = other, .flow.shape = *shape};
}

/* From now on closing the side closes the descriptor, and releases the side. */
static int begin_watch(struct side *side, int fd)
{
    side->source.fd = fd;
    side->pair->sources++;
    return watch(side);
}

void proxy_open(struct proxy *proxy, int fd)
{
    struct pair *pair = calloc(1, sizeof *pair);
    if (!pair) {
        close(fd);
        return;
    }
    pair->proxy = proxy;
    begin_side(&pair->client, pair, &pair->server, &proxy->shaping.requests);
    begin_side(&pair->server, pair, &pair->client, &proxy->shaping.replies);
    timer_init(&pair->timer, fire);
    timer_init(&pair->idle, watch_idle);
    pair->last_move = loop_clock();
    pair->next = proxy->pairs;
    if (pair->next) pair->next->previous = pair;
    proxy->pairs = pair;
    proxy->stats.connections++;
    if (++proxy->stats.open > proxy->stats.most_open) proxy->stats.most_open = proxy->stats.open;

    pair->client.readable = pair->client.writable = true;
    int spare = proxy->spare;
    proxy->spare = -1;
    pair->address = proxy->spare_for;
    if (begin_watch(&pair->client, fd) < 0 ||
        (proxy->idle > 0 && timers_set(&proxy->loop->timers, &pair->idle, pair->last_move + proxy->idle) < 0)) {
        close(spare);
        reset_pair(pair);
    } else if (begin_watch(&pair->server, spare) < 0) {
        connect_failed(pair, errno);
    } else {
        try_connect(pair);
    }
}

void proxy_reshape(struct proxy *proxy, const struct shaping *shaping)
{
    proxy->shaping = *shaping;
    for (struct pair *pair = proxy->pairs, *next; pair; pair = next) {
        next = pair->next; /* pass may close this pair, and no other */
        flow_reshape(&pair->client.flow, &shaping->requests);
        flow_reshape(&pair->server.flow, &shaping->replies);
        if (pair->state == PASSING) pass(pair);
    }
}

void proxy_reset_all(struct proxy *proxy)
{
    while (proxy->pairs)
        reset_pair(proxy->pairs);
}

void proxy_close_all(struct proxy *proxy)
{
    while (proxy->pairs)
        close_pair(proxy->pairs);
    if (proxy->spare >= 0) close(proxy->spare);
    proxy->spare = -1;
}
