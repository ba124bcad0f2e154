#include "resolver/question.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <resolv.h>
#endif

static void find_addresses(const struct question *question, struct answer *answer)
{
    struct addrinfo hints = {.ai_family = question->family_or_flags, .ai_socktype = SOCK_STREAM}, *found = NULL;
    answer->error = getaddrinfo(question->host, NULL, &hints, &found);
    answer->system_error = errno;
    if (answer->error) return;
    answer->addresses = addresses_of(found);
    freeaddrinfo(found);
    if (!answer->addresses) answer->error = EAI_MEMORY;
}

static void find_name(const struct question *question, struct answer *answer)
{
    char host[NI_MAXHOST], service[NI_MAXSERV];
    answer->error = getnameinfo((const struct sockaddr *)&question->address, question->length, host, sizeof(host),
                                service, sizeof(service), question->family_or_flags);
    answer->system_error = errno;
    if (answer->error) return;
    answer->host = strdup(host);
    answer->service = strdup(service);
    if (!answer->host || !answer->service) answer->error = EAI_MEMORY;
}

void question_ask(const struct question *question, struct answer *answer)
{
    (question->length ? find_name : find_addresses)(question, answer);
}

// After fork, glibc reuses the stack of a thread that only the parent has for a new thread, and with it the state of
// that thread's resolver: the child would read answers from the parent's socket, and the parent would miss them. (The
// descriptor stays open in the child: the number may belong to another file by now.)
void question_discard_parents(void)
{
#ifdef __GLIBC__
    if (_res.options & RES_INIT) memset(&_res, 0, sizeof(_res)); // as in a new thread
#endif
}
