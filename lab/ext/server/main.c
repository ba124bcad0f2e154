/* heddle-server: options, limits, signals. */
#include "listener.h"
#include "loop.h"
#include "response.h"
#include "stats.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EXIT_USAGE = 64, EXIT_UNAVAILABLE = 69 };

static const char usage[] = "Usage: heddle-server [--bind ADDRESS] [--port PORT] [--exit-with-parent]\n"
                            "\n"
                            "An HTTP/1.1 server that answers late on purpose:\n"
                            "  GET /MS        \"done\" after MS milliseconds\n"
                            "  GET /b/BYTES   a body of BYTES bytes: lines of 16 bytes, each its offset modulo 1 MiB\n"
                            "  GET /stats     what it has counted, as JSON; SIGUSR1 prints the same\n"
                            "\n"
                            "  --bind ADDRESS      IPv4 address to listen on (127.0.0.1)\n"
                            "  --port PORT         port to listen on (0: a free one, named on stdout)\n"
                            "  --exit-with-parent  end when the process that started it does\n";

struct options {
    struct in_addr address;
    uint16_t port;
    bool exit_with_parent;
};

struct signals {
    struct source source;
    struct loop *loop;
    const struct stats *stats;
};

static _Noreturn void refuse_usage(const char *what, const char *value)
{
    fprintf(stderr, "heddle-server: %s%s%s\n%s", what, value ? ": " : "", value ? value : "", usage);
    exit(EXIT_USAGE);
}

static uint16_t read_port(const char *text)
{
    char *end;
    errno = 0;
    long port = strtol(text, &end, 10);
    if (errno || end == text || *end || port < 0 || port > 65535) {
        refuse_usage("--port takes a number from 0 to 65535, not", text);
    }
    return (uint16_t)port;
}

static struct options read_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"bind", required_argument, NULL, 'b'},
        {"port", required_argument, NULL, 'p'},
        {"exit-with-parent", no_argument, NULL, 'e'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.address = {.s_addr = htonl(INADDR_LOOPBACK)}};

    for (int option; (option = getopt_long(argc, argv, "b:p:h", names, NULL)) != -1;) {
        switch (option) {
        case 'b':
            if (inet_pton(AF_INET, optarg, &options.address) != 1) {
                refuse_usage("--bind takes an IPv4 address, not", optarg);
            }
            break;
        case 'p':
            options.port = read_port(optarg);
            break;
        case 'e':
            options.exit_with_parent = true;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        default:
            fputs(usage, stderr);
            exit(EXIT_USAGE);
        }
    }
    if (optind < argc) refuse_usage("unexpected argument", argv[optind]);
    return options;
}

static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void print_stats(const struct stats *stats)
{
    char json[512];
    stats_json(stats, json, sizeof json);
    fputs(json, stdout);
    fflush(stdout);
}

static void handle_signals(struct source *source, uint32_t events)
{
    struct signals *signals = container_of(source, struct signals, source);
    struct signalfd_siginfo signal;
    (void)events;
    while (read(source->fd, &signal, sizeof signal) == (ssize_t)sizeof signal) {
        if (signal.ssi_signo == SIGUSR1) {
            print_stats(signals->stats);
        } else {
            signals->loop->stopped = true;
        }
    }
}

static int watch_signals(struct signals *signals, struct loop *loop, const struct stats *stats)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) return -1;
    *signals = (struct signals){
        .source = {.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), .ready = handle_signals},
        .loop = loop,
        .stats = stats,
    };
    return signals->source.fd < 0 ? -1 : loop_watch(loop, &signals->source, EPOLLIN);
}

static int fail(const char *what)
{
    fprintf(stderr, "heddle-server: %s: %s\n", what, strerror(errno));
    return EXIT_UNAVAILABLE;
}

int main(int argc, char **argv)
{
    pid_t parent = getppid();
    struct options options = read_options(argc, argv);
    struct loop loop;
    struct listener listener;
    struct signals signals;
    char address[INET_ADDRSTRLEN], place[64];

    raise_descriptor_limit();
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* the default adds up to 50 µs to every delay */
    response_make_pattern();
    if (loop_init(&loop) < 0) return fail("cannot make an epoll instance");

    inet_ntop(AF_INET, &options.address, address, sizeof address);
    snprintf(place, sizeof place, "cannot listen on %s:%u", address, options.port);
    if (listener_open(&listener, &loop, options.address, options.port) < 0) return fail(place);
    if (watch_signals(&signals, &loop, &listener.http.stats) < 0) return fail("cannot take signals");

    if (options.exit_with_parent) {
        prctl(PR_SET_PDEATHSIG, (unsigned long)SIGTERM, 0UL, 0UL, 0UL);
        if (getppid() != parent) return EXIT_SUCCESS; /* it went before we asked */
    }
    printf("listening on %s:%u\n", address, listener_port(&listener));
    fflush(stdout);

    int result = loop_run(&loop);
    if (result < 0) fail("cannot wait for events");
    listener_close(&listener);
    loop_close(&loop, &signals.source);
    loop_free(&loop);
    return result < 0 ? EXIT_UNAVAILABLE : EXIT_SUCCESS;
}
