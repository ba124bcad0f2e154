// A bounded number of resources (connections, say), each lent to one user at a time. A semaphore counts those that are
// lent or made; the others are idle, and the one used last is lent first. A resource that is given back becomes idle
// before its permit is released: so the waiter that is handed the permit finds it.
//
// Which Ruby methods a resource has, only its kind knows.
#ifndef HEDDLE_SYNC_RESOURCE_POOL_H
#define HEDDLE_SYNC_RESOURCE_POOL_H

#include "sync/semaphore.h"

struct resource {
    VALUE object;        // or nil
    deadline_t since;    // when it became idle
    deadline_t expires;  // the end of its lifetime
    unsigned generation; // of the pool when it was made
};

struct resource_pool {
    struct semaphore semaphore; // first: its `self` is the pool's
    const struct resource_kind *kind;
    VALUE discarded;       // Array of lent resources that are not to be used again, or nil
    struct resource *idle; // the one used last at the end
    long idle_count, idle_room;
    long open, least;    // resources that are idle, lent or being made; `least` of them stay, however long idle
    unsigned generation; // resources of an earlier one are not used again
    unsigned forks;
    unsigned made;
    int64_t wait_span, idle_span, lifetime; // nanoseconds
};

struct resource_lease {
    struct resource_pool *pool;
    struct resource resource;
    unsigned forks;
    bool permit;
    bool counted; // in the pool's `open`
    bool made;    // its resource was made for it
    bool ready;   // neither its check nor its making has failed, or was interrupted
};

struct resource_kind {
    // Makes the lease's resource. What it has stored there when it raises is disposed of.
    void (*make)(struct resource_lease *lease);
    // At a check-out: whether an idle one may be used; not if this raises. `handed_over`: it was in use a moment ago.
    bool (*check)(VALUE pool, VALUE object, bool handed_over);
    bool (*reset)(VALUE pool, VALUE object);   // at a check-in: whether it may be used again; or NULL
    void (*dispose)(VALUE pool, VALUE object); // one that will not be used again
    void (*detach)(VALUE pool, VALUE object);  // in a child of fork: one that is the parent's; or NULL
};

void resource_pool_init(struct resource_pool *pool, VALUE self, const struct resource_kind *kind);
void resource_pool_references(void *pool, reference_function *each);
void resource_pool_free(struct resource_pool *pool);
size_t resource_pool_memsize(const struct resource_pool *pool); // bytes allocated by the pool

// Called by each method of a pool first.
void resource_pool_enter(struct resource_pool *pool);

// Takes all idle resources out of the pool; the caller disposes of them. Resources that are lent now are not lent
// again.
VALUE resource_pool_take_all(struct resource_pool *pool);

// A lease begins with a permit, then has a resource, and must be ended. `lease` is empty but for its pool. Waits until
// `until`, but no longer than the pool's wait_span.
enum semaphore_answer resource_lease_permit(struct resource_lease *lease, deadline_t until);

// `handed_over`: the permit was waited for. Returns false in a child of a fork that was made meanwhile, in a hook or by
// a trap handler: the lease is empty again, and must begin with a permit of the child's.
bool resource_lease_fill(struct resource_lease *lease, bool handed_over);

// Gives the resource back, or disposes of it if it is not to be kept. Raises, at its end, what its kind has raised.
// Does nothing for a lease that has ended, or never began.
void resource_lease_end(struct resource_lease *lease, bool keep);

// Whether the resource may serve new users: its pool is open and was not cleared, and its lifetime is not over.
bool resource_lease_lasts(const struct resource_lease *lease);

// How many resources can be had without waiting for another user's; nobody waits for one then.
long resource_pool_room(struct resource_pool *pool);

// ---- for an object of the class ResourcePool: a lease that no block bounds

// Waits for a resource until `until`, but no longer than the pool's wait_span. Returns the lease, which lasts until it
// is given back; raises what ResourcePool#with does.
VALUE resource_pool_borrow(VALUE pool, deadline_t until);
struct resource_lease *resource_lease_of(VALUE lease);
void resource_lease_give_back(VALUE lease);

struct resource_pool *resource_pool_of(VALUE pool);

#endif
