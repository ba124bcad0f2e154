#include "resolver/connect_race.h"

#include "resolver/hosts_file.h"
#include "os/connecting.h"
#include "os/poll_at_once.h"
#include "portable.h"
#include "scope/deadline_scope.h"
#include "shims.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MILLISECONDS 1000000LL

// RFC 8305, section 8
static const int64_t ATTEMPT_DELAY = 250 * MILLISECONDS;   // between two connects
static const int64_t SHORTEST_DELAY = 10 * MILLISECONDS;   // … when time is too short to try all addresses
static const int64_t RESOLUTION_DELAY = 50 * MILLISECONDS; // how long IPv4 waits for IPv6 addresses

enum { IPV6, IPV4 }; // sources

static const int families[LOOKUP_WAIT_MOST] = {[IPV6] = AF_INET6, [IPV4] = AF_INET};

// ---- names

static void keep_lookup_error(struct connect_race *race, int error, int system_error)
{
    if (race->failure != RACE_LOOKUP) return; // a connect's error says more
    // A name may have addresses of one family only: the error of the missing family does not replace another error.
    bool trifle = error == EAI_NONAME;
#ifdef EAI_NODATA
    trifle |= error == EAI_NODATA;
#endif
#ifdef EAI_ADDRFAMILY
    trifle |= error == EAI_ADDRFAMILY;
#endif
    if (trifle && race->error) return;
    race->error = error;
    race->system_error = system_error;
}

// Takes addresses that are known without a look-up, IPv6 first.
static void divide(struct connect_race *race, struct addresses *known)
{
    size_t ipv6 = 0;
    while (ipv6 < known->count && known->list[ipv6].any.sa_family == AF_INET6)
        ipv6++;
    race->known = known;
    race->sources[IPV6] = (struct source){.list = known->list, .count = ipv6, .ended = true};
    race->sources[IPV4] = (struct source){.list = known->list + ipv6, .count = known->count - ipv6, .ended = true};
}

static void find_addresses(struct connect_race *race)
{
    struct addresses *known = addresses_numeric(race->host);
    if (!known) known = hosts_file_addresses(race->host);
    if (known) {
        divide(race, known);
        return;
    }
    for (int i = 0; i < LOOKUP_WAIT_MOST; i++) {
        race->sources[i].lookup = lookup_name(race->host, families[i]);
        if (!race->sources[i].lookup) rb_memerror();
        lookup_wait_submit(&race->waiter, race->sources[i].lookup);
    }
}

static void take_answers(struct connect_race *race, deadline_t now)
{
    for (int i = 0; i < LOOKUP_WAIT_MOST; i++) {
        struct source *source = &race->sources[i];
        const struct answer *answer = source->ended ? NULL : lookup_answer(source->lookup);
        if (!answer) continue;
        source->ended = true; // the look-up stays: it owns the addresses
        if (answer->error) {
            keep_lookup_error(race, answer->error, answer->system_error);
        } else {
            source->list = answer->addresses->list;
            source->count = answer->addresses->count;
            if (i == IPV4) race->grace_until = now + RESOLUTION_DELAY;
        }
    }
    if (race->sources[IPV6].ended) race->grace_until = 0;
}

static bool looking_up(const struct connect_race *race)
{
    return !race->sources[IPV6].ended || !race->sources[IPV4].ended;
}

static size_t addresses_left(const struct connect_race *race)
{
    size_t count = 0;
    for (int i = 0; i < LOOKUP_WAIT_MOST; i++)
        count += race->sources[i].count - race->sources[i].next;
    return count;
}

// ---- connects

static void fail(struct connect_race *race, const char *call, const struct socket_address *address, int error)
{
    race->failure = RACE_CALL;
    race->call = call;
    race->address = *address;
    race->error = error;
    race->next_attempt_at = 0; // try the next address at once
}

static int new_socket(const struct connect_race *race, int family)
{
    int descriptor = portable_stream_socket(family);
    if (descriptor >= 0 || (errno != EMFILE && errno != ENFILE) || race->in_flight_count > 0) return descriptor;
    rb_gc(); // closes unreferenced IOs, as Ruby does here
    return portable_stream_socket(family);
}

// Families alternate (section 4).
static const struct socket_address *next_address(struct connect_race *race)
{
    struct source *source = &race->sources[race->turn];
    if (source->next == source->count) source = &race->sources[!race->turn];
    race->turn = source == &race->sources[IPV6] ? IPV4 : IPV6;
    return &source->list[source->next++];
}

static const struct socket_address *local_address(const struct connect_race *race, int family)
{
    for (size_t i = 0; i < race->local->count; i++) {
        if (race->local->list[i].any.sa_family == family) return &race->local->list[i];
    }
    return NULL;
}

// Shares short time among the addresses, so that the last one is tried, too.
static int64_t attempt_delay(const struct connect_race *race, deadline_t now)
{
    deadline_t until = race->bound < race->connect_until ? race->bound : race->connect_until;
    if (until == DEADLINE_NEVER) return ATTEMPT_DELAY;
    int64_t share = (until - now) / (int64_t)(addresses_left(race) + 1);
    return share > ATTEMPT_DELAY ? ATTEMPT_DELAY : share < SHORTEST_DELAY ? SHORTEST_DELAY : share;
}

static int64_t span_until(deadline_t until, deadline_t now)
{
    return until == DEADLINE_NEVER ? DEADLINE_NEVER : until > now ? until - now : 0;
}

static void start_attempt(struct connect_race *race, deadline_t *clock)
{
    struct socket_address address = *next_address(race);
    int family = address.any.sa_family;
    address_set_port(&address, race->port);
    if (race->resolve_span != DEADLINE_NEVER && race->connect_until == DEADLINE_NEVER)
        race->connect_until = deadline_after(*clock, race->connect_span);
    bool allowed = race->allows(race->caller, &address, span_until(race->connect_until, *clock));
    deadline_t now = *clock = deadline_now(); // a filter may have waited
    if (!allowed) {
        if (race->failure == RACE_LOOKUP) race->failure = RACE_REFUSED;
        return;
    }
    const struct socket_address *local = NULL;
    if (race->local && !(local = local_address(race, family))) {
        if (race->attempts == 0) race->failure = RACE_NO_LOCAL;
        return;
    }
    race->attempts++;
    int descriptor = new_socket(race, family);
    if (descriptor < 0) {
        fail(race, "socket(2)", &address, errno);
        return;
    }
    int yes = 1;
    if (local && race->reuse_local) setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (local && connecting_bind(descriptor, &local->any, local->length) < 0) {
        fail(race, "bind(2)", local, errno);
        close(descriptor);
    } else if (connecting_begin(descriptor, &address.any, address.length) == 0) {
        race->descriptor = descriptor;
    } else if (errno != EINPROGRESS && errno != EINTR) {
        fail(race, "connect(2)", &address, errno);
        close(descriptor);
    } else {
        race->in_flight[race->in_flight_count++] = (struct attempt){.descriptor = descriptor, .address = address};
        race->next_attempt_at = now + attempt_delay(race, now);
    }
}

static bool may_start(const struct connect_race *race, deadline_t now)
{
    if (addresses_left(race) == 0 || race->in_flight_count == RACE_IN_FLIGHT) return false;
    return now >= (race->attempts ? race->next_attempt_at : race->grace_until);
}

// Takes the results of connects that have ended.
static void harvest(struct connect_race *race)
{
    for (size_t i = race->in_flight_count; i-- > 0 && race->descriptor < 0;) {
        if (!race->polled[i].revents) continue;
        struct attempt ended = race->in_flight[i];
        race->in_flight[i] = race->in_flight[--race->in_flight_count];
        race->polled[i] = race->polled[race->in_flight_count];
        int error = connecting_error(ended.descriptor);
        if (error == 0) {
            race->descriptor = ended.descriptor;
        } else {
            close(ended.descriptor);
            fail(race, "connect(2)", &ended.address, error);
        }
    }
}

// A connect on loopback has ended by the time it returns. Returns whether any connect has ended.
static bool connect_race_look(struct connect_race *race)
{
    for (size_t i = 0; i < race->in_flight_count; i++)
        race->polled[i] = (struct pollfd){.fd = race->in_flight[i].descriptor, .events = POLLOUT};
    if (race->in_flight_count == 0 || poll_at_once(race->polled, race->in_flight_count) <= 0) return false;
    harvest(race);
    return true;
}

static void wait_for_next(struct connect_race *race, deadline_t now)
{
    deadline_t until = race->connect_until;
    if (looking_up(race) && race->resolve_until < until) until = race->resolve_until;
    if (addresses_left(race) > 0 && race->in_flight_count < RACE_IN_FLIGHT) {
        deadline_t next = race->attempts ? race->next_attempt_at : race->grace_until;
        if (next < until) until = next;
    }
    struct lookup *lookups[LOOKUP_WAIT_MOST];
    for (int i = 0; i < LOOKUP_WAIT_MOST; i++)
        lookups[i] = race->sources[i].ended ? NULL : race->sources[i].lookup;
    for (size_t i = 0; i < race->in_flight_count; i++)
        race->polled[i] = (struct pollfd){.fd = race->in_flight[i].descriptor, .events = POLLOUT};
    lookup_wait_any(&race->waiter, race->polled, race->in_flight_count, span_until(until, now), lookups);
    harvest(race);
}

static void stop_looking_up(struct connect_race *race)
{
    race->sources[IPV6].ended = race->sources[IPV4].ended = true;
    race->grace_until = 0;
}

static bool run(struct connect_race *race)
{
    deadline_t now = deadline_now();
    bool apart = race->resolve_span != DEADLINE_NEVER;
    race->resolve_until = deadline_after(now, race->resolve_span);
    race->connect_until = apart ? DEADLINE_NEVER : deadline_after(now, race->connect_span);
    find_addresses(race);
    for (;; now = deadline_now()) {
        if (looking_up(race)) take_answers(race, now);
        if (looking_up(race) && now >= race->resolve_until) {
            stop_looking_up(race);
            if (addresses_left(race) == 0 && race->in_flight_count == 0 && race->failure == RACE_LOOKUP) {
                race->failure = RACE_TIMEOUT;
                return false;
            }
        }
        while (race->descriptor < 0 && may_start(race, now))
            start_attempt(race, &now);
        if (race->descriptor < 0 && connect_race_look(race) && race->descriptor < 0) continue;
        if (race->descriptor >= 0) return true;
        if (!looking_up(race) && addresses_left(race) == 0 && race->in_flight_count == 0) {
            if (race->failure == RACE_REFUSED && now >= race->connect_until) race->failure = RACE_TIMEOUT;
            return false;
        }
        if (now >= race->connect_until) {
            race->failure = RACE_TIMEOUT;
            return false;
        }
        wait_for_next(race, now);
    }
}

bool connect_race_run(struct connect_race *race)
{
    race->descriptor = -1;
    race->failure = RACE_LOOKUP;
    race->bound = deadline_in_force();
    deadline_check();
    bool won = run(race);
    if (!won && race->failure == RACE_LOOKUP && race->error == 0) race->error = EAI_NONAME;
    return won;
}

void connect_race_end(struct connect_race *race)
{
    for (int i = 0; i < LOOKUP_WAIT_MOST; i++) {
        if (race->sources[i].lookup) lookup_end(race->sources[i].lookup);
        race->sources[i].lookup = NULL;
    }
    lookup_wait_close(&race->waiter);
    for (size_t i = 0; i < race->in_flight_count; i++)
        close(race->in_flight[i].descriptor);
    race->in_flight_count = 0;
    if (race->descriptor >= 0) close(race->descriptor);
    race->descriptor = -1;
    free(race->known);
    race->known = NULL;
}
