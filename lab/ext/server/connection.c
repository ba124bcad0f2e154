#include "connection.h"

#include "listener.h"
#include "request.h"
#include "response.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_SIZE = 65536,
    REQUESTS_A_TURN = 256,
    SENDS_A_TURN = 16,   /* of at most 1 MiB each */
    LINGER = 1000000000, /* ns: how long a refused client may continue to send */
};
static const uint32_t INPUT = EPOLLIN | EPOLLRDHUP | EPOLLET;

enum state { READING, UPLOADING, DELAYED, WRITING, DRAINING };
enum step { STEP_ON, STEP_WAIT, STEP_CLOSE };

struct connection {
    struct source source;
    struct timer timer;
    struct http *http;
    struct connection *next, *previous;
    enum state state;
    bool readable; /* edge-triggered: input may be there that no later event reports */
    bool ended;    /* the client has shut down its side: the end is still to be read */
    char *pending; /* unanswered input */
    size_t pending_length;
    struct upload upload;
    int span;      /* the span of the response's body that is being sent; -1: the head */
    uint64_t sent; /* bytes sent of the span or head */
    struct response response;
};

/* One thread, one read at a time: input is read here, and only input that must wait is copied. */
static char input[READ_SIZE + REQUEST_HEAD_LIMIT];

static void release(struct source *source)
{
    struct connection *connection = container_of(source, struct connection, source);
    free(connection->pending);
    free(connection);
}

static void close_connection(struct connection *connection)
{
    struct http *http = connection->http;
    timers_cancel(&http->loop->timers, &connection->timer);
    if (connection->previous) {
        connection->previous->next = connection->next;
    } else {
        http->connections = connection->next;
    }
    if (connection->next) connection->next->previous = connection->previous;
    http->stats.open--;
    loop_close(http->loop, &connection->source);
    listener_descriptor_is_free(http->listener);
}

static enum step wait_for(struct connection *connection, uint32_t events)
{
    return loop_watch(connection->http->loop, &connection->source, events) < 0 ? STEP_CLOSE : STEP_WAIT;
}

static enum step wait_for_input(struct connection *connection)
{
    return connection->source.watched ? STEP_WAIT : wait_for(connection, INPUT);
}

/* Lets other connections have their turn; the loop returns within the next round. */
static enum step yield_turn(struct connection *connection)
{
    int result = timers_set(&connection->http->loop->timers, &connection->timer, loop_clock() + 1);
    return result < 0 ? STEP_CLOSE : wait_for_input(connection);
}

/* Keeps `length` bytes for the next request. */
static enum step keep(struct connection *connection, const char *bytes, size_t length)
{
    free(connection->pending);
    connection->pending = NULL;
    connection->pending_length = length;
    if (length == 0) return STEP_ON;
    connection->pending = malloc(length);
    if (!connection->pending) return STEP_CLOSE;
    memcpy(connection->pending, bytes, length);
    return STEP_ON;
}

static enum step begin_response(struct connection *connection)
{
    struct loop *loop = connection->http->loop;
    connection->sent = 0;
    connection->span = -1;
    if (connection->response.delay == 0) {
        connection->state = WRITING;
        return STEP_ON;
    }
    connection->state = DELAYED;
    if (timers_set(&loop->timers, &connection->timer, loop_clock() + connection->response.delay) < 0) return STEP_CLOSE;
    return wait_for_input(connection); /* to notice when the client disconnects */
}

/* Reads once. STEP_ON: `length` has grown. */
static enum step receive(struct connection *connection, size_t *length)
{
    size_t room = sizeof input - *length;
    ssize_t got = connection->readable ? recv(connection->source.fd, input + *length, room, 0) : -1;
    if (got == 0) return STEP_CLOSE;
    if (got < 0) {
        bool empty = !connection->readable || errno == EAGAIN || errno == EINTR;
        connection->readable = connection->readable && errno == EINTR;
        return empty ? wait_for_input(connection) : STEP_CLOSE;
    }
    connection->readable = (size_t)got == room || connection->ended; /* a short read emptied the socket */
    *length += (size_t)got;
    return STEP_ON;
}

/* Answers a client that asks before it sends its body. Nothing else is in flight to the client. */
static bool send_continue(struct connection *connection)
{
    static const char reply[] = "HTTP/1.1 100 Continue\r\n\r\n";
    return send(connection->source.fd, reply, sizeof reply - 1, MSG_NOSIGNAL) == (ssize_t)(sizeof reply - 1);
}

static enum step read_upload(struct connection *connection)
{
    struct upload *upload = &connection->upload;
    size_t length = connection->pending_length, taken;

    if (length > 0) {
        memcpy(input, connection->pending, length);
    } else if (upload->place != UPLOAD_OVER) {
        enum step step = receive(connection, &length);
        if (step != STEP_ON) return step;
    }
    enum upload_result result = upload_take(upload, input, length, &taken);
    if (keep(connection, input + taken, length - taken) == STEP_CLOSE) return STEP_CLOSE;
    if (result == UPLOAD_MORE) return STEP_ON;
    response_to_upload(&connection->response, upload, result == UPLOAD_DONE, &connection->http->stats);
    return begin_response(connection);
}

static enum step read_request(struct connection *connection)
{
    struct http *http = connection->http;
    size_t length = connection->pending_length;
    if (length > 0) memcpy(input, connection->pending, length);

    for (;;) {
        struct request request;
        enum request_result result = length > 0 ? request_parse(input, input + length, &request) : REQUEST_MORE;
        if (result == REQUEST_MORE) {
            enum step step = receive(connection, &length);
            if (step == STEP_ON) continue;
            if (step == STEP_WAIT && length > connection->pending_length) {
                if (keep(connection, input, length) == STEP_CLOSE) return STEP_CLOSE;
            }
            return step;
        }

        http->stats.requests++;
        if (result == REQUEST_DONE && response_wants_upload(&request)) {
            upload_begin(&connection->upload, &request);
            bool told = !request.expect || length > request.length || send_continue(connection);
            if (!told || keep(connection, input + request.length, length - request.length) == STEP_CLOSE)
                return STEP_CLOSE;
            connection->state = UPLOADING;
            return STEP_ON;
        }
        if (result == REQUEST_DONE) {
            response_for(&connection->response, &request, &http->stats);
        } else {
            response_refuse(&connection->response, result, &http->stats);
            request.length = length;
        }
        if (keep(connection, input + request.length, length - request.length) == STEP_CLOSE) return STEP_CLOSE;
        return begin_response(connection);
    }
}

/* Sends once. STEP_ON: something was sent. */
static enum step send_some(struct connection *connection)
{
    const struct response *response = &connection->response;
    const struct span *span = connection->span < 0 ? NULL : &response->body.spans[connection->span];
    uint64_t whole = span ? span->length : response->length, left = whole - connection->sent;
    size_t at = (size_t)(span ? (span->start + connection->sent) % span->period : connection->sent);
    size_t length = (span ? span->period : response->length) - at;
    if (left < length) length = (size_t)left;

    int flags = MSG_NOSIGNAL | (connection->span + 1 < response->body.count ? MSG_MORE : 0);
    ssize_t sent = send(connection->source.fd, (span ? span->bytes : response->bytes) + at, length, flags);
    if (sent >= 0) {
        connection->sent += (uint64_t)sent;
        if (connection->sent == whole) {
            connection->span++;
            connection->sent = 0;
        }
        return STEP_ON;
    }
    if (errno == EINTR) return STEP_ON;
    if (errno == EAGAIN) return wait_for(connection, INPUT | EPOLLOUT);
    connection->http->stats.broken++;
    return STEP_CLOSE;
}

static enum step write_response(struct connection *connection)
{
    const struct response *response = &connection->response;

    for (int sends = 0; connection->span < response->body.count; sends++) {
        if (sends == SENDS_A_TURN) return yield_turn(connection);
        enum step step = send_some(connection);
        if (step != STEP_ON) return step;
    }
    if (response->keep_alive) {
        connection->state = READING;
        return STEP_ON;
    }
    if (!response->drain && connection->pending_length == 0 && !connection->readable) return STEP_CLOSE;

    /* A close with unread input would send a reset, and the client might lose the response. */
    shutdown(connection->source.fd, SHUT_WR);
    connection->state = DRAINING;
    if (timers_set(&connection->http->loop->timers, &connection->timer, loop_clock() + LINGER) < 0) return STEP_CLOSE;
    return STEP_ON;
}

static enum step drain(struct connection *connection)
{
    size_t length = 0;
    return receive(connection, &length);
}

static void advance(struct connection *connection)
{
    enum step step = STEP_ON;
    int turns = 0;

    while (step == STEP_ON) {
        switch (connection->state) {
        case READING: step = turns++ < REQUESTS_A_TURN ? read_request(connection) : yield_turn(connection); break;
        case UPLOADING: step = turns++ < REQUESTS_A_TURN ? read_upload(connection) : yield_turn(connection); break;
        case DELAYED: step = STEP_WAIT; break;
        case WRITING: step = write_response(connection); break;
        case DRAINING: step = turns++ < REQUESTS_A_TURN ? drain(connection) : STEP_CLOSE; break;
        }
    }
    if (step == STEP_CLOSE) close_connection(connection);
}

static void fire(struct timer *timer)
{
    struct connection *connection = container_of(timer, struct connection, timer);
    if (connection->state == DRAINING) {
        close_connection(connection);
        return;
    }
    if (connection->state == DELAYED) connection->state = WRITING;
    advance(connection);
}

static void ready(struct source *source, uint32_t events)
{
    struct connection *connection = container_of(source, struct connection, source);
    if (events & (EPOLLERR | EPOLLHUP)) {
        if (connection->state == DELAYED || connection->state == WRITING) connection->http->stats.broken++;
        close_connection(connection);
        return;
    }
    if (events & EPOLLRDHUP) connection->ended = true;
    if (events & (EPOLLIN | EPOLLRDHUP)) connection->readable = true;
    advance(connection);
}

void connection_open(struct http *http, int fd)
{
    struct connection *connection = malloc(sizeof *connection);
    if (!connection) {
        close(fd);
        return;
    }
    memset(connection, 0, offsetof(struct connection, response));
    connection->source = (struct source){.fd = fd, .ready = ready, .release = release};
    timer_init(&connection->timer, fire);
    connection->http = http;
    connection->readable = true; /* the request often comes with the connection */
    connection->next = http->connections;
    if (connection->next) connection->next->previous = connection;
    http->connections = connection;

    http->stats.connections++;
    if (++http->stats.open > http->stats.most_open) http->stats.most_open = http->stats.open;
    advance(connection);
}

void connection_close_all(struct http *http)
{
    while (http->connections)
        close_connection(http->connections);
}
