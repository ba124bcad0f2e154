#include "control.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static void obey(struct proxy *proxy, char *line)
{
    struct shape_reader reader;
    struct shaping shaping;
    char json[STATS_SIZE];

    if (strcmp(line, "stats") == 0) {
        proxy_stats_json(&proxy->stats, json, sizeof json);
        fputs(json, stdout);
        return;
    }
    if (strcmp(line, "reset") == 0) {
        proxy_reset_all(proxy);
        puts("ok");
        return;
    }
    if (strcmp(line, "pass") == 0) *line = 0;
    const char *wrong = shape_read_line(&reader, line);
    if (wrong) {
        printf("error: %s; or pass, reset, stats alone\n", wrong);
        return;
    }
    shape_finish(&reader, &shaping);
    proxy_reshape(proxy, &shaping);
    puts("ok");
}

/* Obeys the complete lines, and keeps the rest. */
static void obey_lines(struct control *control)
{
    char *line = control->line, *end = control->line + control->length, *newline;
    while ((newline = memchr(line, '\n', (size_t)(end - line)))) {
        *newline = 0;
        if (newline > line && newline[-1] == '\r') newline[-1] = 0;
        if (control->overlong) {
            puts("error: a line can have at most 511 bytes");
        } else {
            obey(control->proxy, line);
        }
        control->overlong = false;
        line = newline + 1;
    }
    control->length = (size_t)(end - line);
    memmove(control->line, line, control->length);
    if (control->length == sizeof control->line) {
        control->overlong = true;
        control->length = 0;
    }
    fflush(stdout);
}

/* Standard input may be a terminal that is shared with other programs: it stays blocking, and is read once per
   event. */
static void ready(struct source *source, uint32_t events)
{
    struct control *control = container_of(source, struct control, source);
    (void)events;
    ssize_t got = read(source->fd, control->line + control->length, sizeof control->line - control->length);
    if (got <= 0) {
        loop_close(control->proxy->loop, source);
        return;
    }
    control->length += (size_t)got;
    obey_lines(control);
}

int control_open(struct control *control, struct proxy *proxy)
{
    *control = (struct control){.source = {.fd = STDIN_FILENO, .ready = ready}, .proxy = proxy};
    return loop_watch(proxy->loop, &control->source, EPOLLIN);
}
