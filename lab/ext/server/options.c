#include "options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXIT_USAGE = 64 };
static const uint64_t SECOND = 1000000000;

static const char usage[] =
    "Usage: heddle-server [--bind ADDRESS] [--port PORT] [--exit-with-parent]\n"
    "       heddle-server [--bind ADDRESS] [--port PORT] [--exit-with-parent] --proxy HOST:PORT|unix:PATH [shape]\n"
    "\n"
    "An HTTP/1.1 server that answers late on purpose:\n"
    "  GET /MS        \"done\" after MS milliseconds\n"
    "  GET /b/BYTES   a body of BYTES bytes: lines of 16 bytes, each its offset modulo 1 MiB\n"
    "  GET /c/BYTES   the same in chunks of 16 KiB\n"
    "  GET /z/BYTES   the same compressed with gzip, whatever the client accepts\n"
    "  PUT /u         takes a body (POST, too); answers how many bytes came, and whether they equal those of /b/BYTES\n"
    "  GET /stats     its counts as JSON; SIGUSR1 prints the same\n"
    "\n"
    "  --bind ADDRESS      IPv4 address to listen on (127.0.0.1)\n"
    "  --port PORT         port to listen on (0: a free one, named on stdout)\n"
    "  --exit-with-parent  end with the process that started the server\n"
    "\n"
    "With --proxy, a proxy in front of any server, which passes on the server's replies late, slowly or in part:\n"
    "  --delay MS          pass on each byte MS milliseconds after it came: a round trip takes that much longer\n"
    "  --jitter MS         up to MS more, drawn at random for each piece; bytes keep their order\n"
    "  --rate BYTES        at most BYTES a second on each connection\n"
    "  --drip MS           one byte every MS milliseconds\n"
    "  --stall-at BYTE     pass on BYTE bytes on each connection, then nothing more, not even an end\n"
    "  --reset-at BYTE     reset both sides instead of passing on the byte at that offset\n"
    "  --close-at BYTE     close both sides instead of passing on the byte at that offset\n"
    "  --direction WHICH   which bytes are shaped: replies (the default), requests or both\n"
    "  --idle SECONDS      close connections after SECONDS without traffic (600; 0: never)\n"
    "  --control           read lines from stdin, each a new shape, such as: delay 200 stall-at 7\n"
    "                      The shape applies to open connections, too, whose bytes are then counted from 0.\n"
    "                      \"pass\": pass everything on; \"reset\": reset all connections; \"stats\": counts as JSON.\n"
    "Connecting is not shaped. Ends and resets are passed on in order with the bytes.\n";

static _Noreturn void refuse(const char *what, const char *value)
{
    fprintf(stderr, "heddle-server: %s%s%s\n%s", what, value ? ": " : "", value ? value : "", usage);
    exit(EXIT_USAGE);
}

static unsigned long read_number(const char *text, unsigned long most, const char *wrong)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < 0 || (unsigned long)number > most) refuse(wrong, text);
    return (unsigned long)number;
}

void options_read(struct options *options, int argc, char **argv)
{
    enum { PROXY = 256, IDLE, CONTROL, SHAPE };
    static const struct option names[] = {
        {"bind", required_argument, NULL, 'b'},        {"port", required_argument, NULL, 'p'},
        {"exit-with-parent", no_argument, NULL, 'e'},  {"help", no_argument, NULL, 'h'},
        {"proxy", required_argument, NULL, PROXY},     {"idle", required_argument, NULL, IDLE},
        {"control", no_argument, NULL, CONTROL},       {"delay", required_argument, NULL, SHAPE},
        {"jitter", required_argument, NULL, SHAPE},    {"rate", required_argument, NULL, SHAPE},
        {"drip", required_argument, NULL, SHAPE},      {"stall-at", required_argument, NULL, SHAPE},
        {"reset-at", required_argument, NULL, SHAPE},  {"close-at", required_argument, NULL, SHAPE},
        {"direction", required_argument, NULL, SHAPE}, {NULL, 0, NULL, 0},
    };
    struct shape_reader reader;
    const char *proxy_only = NULL, *wrong;

    *options = (struct options){.address = {.s_addr = htonl(INADDR_LOOPBACK)}, .idle = 600 * SECOND};
    shape_begin(&reader);
    for (int option, place; (option = getopt_long(argc, argv, "b:p:h", names, &place)) != -1;) {
        if (option >= IDLE) proxy_only = names[place].name;
        switch (option) {
        case 'b':
            if (inet_pton(AF_INET, optarg, &options->address) != 1) {
                refuse("--bind takes an IPv4 address, not", optarg);
            }
            break;
        case 'p':
            options->port = (uint16_t)read_number(optarg, 65535, "--port takes a number from 0 to 65535, not");
            break;
        case 'e': options->exit_with_parent = true; break;
        case PROXY: options->proxy = optarg; break;
        case IDLE:
            options->idle = read_number(optarg, 86400, "--idle takes seconds from 0 to 86400, not") * SECOND;
            break;
        case CONTROL: options->control = true; break;
        case SHAPE:
            if ((wrong = shape_read(&reader, names[place].name, optarg))) refuse(wrong, optarg);
            break;
        case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
        default: fputs(usage, stderr); exit(EXIT_USAGE);
        }
    }
    if (optind < argc) refuse("unexpected argument", argv[optind]);
    if (proxy_only && !options->proxy) refuse("this option needs --proxy HOST:PORT", proxy_only);
    shape_finish(&reader, &options->shaping);
}
