/* heddle-server: starts the load server or the shaping proxy; limits and signals. */
#include "body.h"
#include "connection.h"
#include "control.h"
#include "listener.h"
#include "loop.h"
#include "options.h"
#include "proxy.h"
#include "stats.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EXIT_UNAVAILABLE = 69 };

/* Either `http` or `proxy` takes the connections. */
struct server {
    struct loop loop;
    struct listener listener;
    struct source signals;
    bool proxying;
    struct http http;
    struct proxy proxy;
    struct control control;
};

static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void print_stats(const struct server *server)
{
    char json[STATS_SIZE];
    if (server->proxying) {
        proxy_stats_json(&server->proxy.stats, json, sizeof json);
    } else {
        stats_json(&server->http.stats, json, sizeof json);
    }
    fputs(json, stdout);
    fflush(stdout);
}

static void handle_signals(struct source *source, uint32_t events)
{
    struct server *server = container_of(source, struct server, signals);
    struct signalfd_siginfo signal;
    (void)events;
    while (read(source->fd, &signal, sizeof signal) == (ssize_t)sizeof signal) {
        if (signal.ssi_signo == SIGUSR1) {
            print_stats(server);
        } else {
            server->loop.stopped = true;
        }
    }
}

static int watch_signals(struct server *server)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) return -1;
    signal(SIGPIPE, SIG_IGN); /* the reader of stdout may be gone */
    server->signals = (struct source){.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), .ready = handle_signals};
    return server->signals.fd < 0 ? -1 : loop_watch(&server->loop, &server->signals, EPOLLIN);
}

static bool accepted_by_http(void *server, int fd)
{
    connection_open(&((struct server *)server)->http, fd);
    return true;
}

static bool accepted_by_proxy(void *owner, int fd)
{
    struct proxy *proxy = &((struct server *)owner)->proxy;
    proxy_open(proxy, fd);
    return proxy_prepare(proxy);
}

static int fail(const char *what)
{
    fprintf(stderr, "heddle-server: %s: %s\n", what, strerror(errno));
    return EXIT_UNAVAILABLE;
}

static int serve(struct server *server, const struct options *options)
{
    char address[INET_ADDRSTRLEN], place[64];
    struct loop *loop = &server->loop;

    if (loop_init(loop) < 0) return fail("cannot make an epoll instance");
    server->http = (struct http){.loop = loop, .listener = &server->listener};
    server->proxy.loop = loop;
    server->proxy.spare = -1;
    server->proxy.listener = &server->listener;
    server->listener.accepted = server->proxying ? accepted_by_proxy : accepted_by_http;
    server->listener.owner = server;

    inet_ntop(AF_INET, &options->address, address, sizeof address);
    snprintf(place, sizeof place, "cannot listen on %s:%u", address, options->port);
    if (listener_open(&server->listener, loop, options->address, options->port) < 0) return fail(place);
    if (server->proxying && !proxy_prepare(&server->proxy)) return fail("cannot make a socket");
    if (watch_signals(server) < 0) return fail("cannot watch signals");
    if (options->control && control_open(&server->control, &server->proxy) < 0) {
        return fail("cannot read control lines from stdin");
    }
    printf("listening on %s:%u\n", address, listener_port(&server->listener));
    fflush(stdout);

    int result = loop_run(loop);
    if (result < 0) fail("cannot wait for events");
    connection_close_all(&server->http);
    proxy_close_all(&server->proxy);
    listener_close(&server->listener);
    loop_close(loop, &server->signals);
    loop_free(loop);
    return result < 0 ? EXIT_UNAVAILABLE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static struct server server;
    pid_t parent = getppid();
    struct options options;

    options_read(&options, argc, argv);
    if (options.exit_with_parent) {
        prctl(PR_SET_PDEATHSIG, (unsigned long)SIGTERM, 0UL, 0UL, 0UL);
        if (getppid() != parent) return EXIT_SUCCESS; /* the parent ended before prctl */
    }
    raise_descriptor_limit();
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* the default adds up to 50 µs to every delay */
    body_make_pattern();

    if (options.proxy) {
        const char *wrong = upstream_parse(&server.proxy.upstream, options.proxy);
        if (wrong) {
            fprintf(stderr, "heddle-server: --proxy %s: %s\n", options.proxy, wrong);
            return EXIT_UNAVAILABLE;
        }
        server.proxying = true;
        server.proxy.shaping = options.shaping;
        server.proxy.idle = options.idle;
    }
    return serve(&server, &options);
}
