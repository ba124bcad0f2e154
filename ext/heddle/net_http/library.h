// Describes one Net::HTTP: Ruby's own, or the copy inside RubyGems (Gem::Net::HTTP). Each has its own classes, errors
// and defects. Whether they are still as their library defined them decides which fast paths apply.
#ifndef HEDDLE_NET_HTTP_LIBRARY_H
#define HEDDLE_NET_HTTP_LIBRARY_H

#include "heddle.h"
#include "net_http/names.h"

enum net_http_fallback {
    HTTP_FALLBACK_DISABLED,
    HTTP_FALLBACK_OVERRIDE,     // of a method, in a subclass, a singleton class, or by reopening the class
    HTTP_FALLBACK_DEBUG_OUTPUT, // each step must be visible
    HTTP_FALLBACK_IO,           // of an unknown class, or closed
    HTTP_FALLBACK_BUFFERED,     // the IO itself has read ahead: its hidden buffer comes first
    HTTP_FALLBACK_ARGUMENTS,    // only stock can interpret them
    HTTP_FALLBACKS
};

// The limits of a field's name and value, as HTTPHeader has them unpatched, and of a head. Before net-http 0.10 a
// server could fill all memory with a head.
enum { HTTP_NAME = 1024, HTTP_VALUE = 65536, HTTP_HEAD = 1 << 20 };

// Groups of methods that are unpatched: what the Ruby class PatchDetector found last.
enum net_http_unpatched {
    HTTP_UNPATCHED_IO = 1 << 0,          // BufferedIO's methods
    HTTP_UNPATCHED_RESPONSE = 1 << 1,    // HTTPResponse's and HTTPHeader's
    HTTP_UNPATCHED_REQUEST = 1 << 2,     // HTTPGenericRequest's and HTTPHeader's
    HTTP_UNPATCHED_UPLOAD = 1 << 3,      // those that send a body_stream
    HTTP_UNPATCHED_TRANSPORT = 1 << 4,   // Net::HTTP's
    HTTP_UNPATCHED_NAMING = 1 << 5,      // those for a session's Host
    HTTP_UNPATCHED_WRAPPING = 1 << 6,    // those that set a new BufferedIO's variables
    HTTP_UNPATCHED_INITIALIZER = 1 << 7, // those that set a new Net::HTTP's variables
};

struct net_http_library {
    struct net_http_library *next;
    VALUE buffered;     // the class that replaces BufferedIO
    VALUE http;         // Net::HTTP, the class that owns connect
    VALUE read_timeout; // errors
    VALUE write_timeout;
    VALUE open_timeout;
    VALUE bad_response;
    VALUE read_limit_exceeded; // 0 before net-protocol 0.3
    VALUE ssl_socket;          // OpenSSL::SSL::SSLSocket; 0 until it is loaded
    VALUE ssl_error;
    VALUE code_to_object; // Net::HTTPResponse's tables
    VALUE code_class_to_object;
    VALUE unknown_response;
    VALUE idempotent_methods; // Net::HTTP's Array of the methods whose requests it makes again
    VALUE response;           // Net::HTTPResponse
    VALUE header;             // Net::HTTPHeader
    VALUE known_responses;    // its subclasses, unpatched, made without calling new
    VALUE request;            // Net::HTTPGenericRequest
    VALUE known_requests;     // it and its subclasses, unpatched, sent without calling their methods
    VALUE response_template;  // names and values of a new response's instance variables
    VALUE request_template;   // … of a new request's
    VALUE request_fields;     // names and values of the fields that each request has
    VALUE buffered_template;  // … of a new BufferedIO's instance variables; 0: unknown
    size_t segment;           // the most bytes per call of read_body's block
    bool enabled;
    unsigned unpatched; // bits of enum net_http_unpatched
    // What versions of the library do differently.
    bool blank_ends;       // a line of white space ends the head
    bool folds_skip_empty; // an empty continuation line adds nothing, not even the space
    bool limits_heads;     // bounds lines and heads of replies: net-http 0.10 and later
    bool limits_fields;    // bounds names and values of fields: later than net-http 0.2
    bool inflates;         // adds Accept-Encoding to a request without it, and inflates the response
    uint64_t fast;
    uint64_t fallbacks[HTTP_FALLBACKS];
};

// Whether the fast path may do the work of this group of methods.
static inline bool net_http_library_does(const struct net_http_library *library, enum net_http_unpatched group)
{
    return library && library->enabled && library->unpatched & group;
}

// The library of this subclass of BufferedIO, or NULL. This and the functions below find none outside the main Ractor.
struct net_http_library *net_http_library_of_buffered(VALUE klass);

// Returns whether the request's class is unpatched: not a subclass or a singleton class, which may override methods.
bool net_http_library_knows_request(const struct net_http_library *library, VALUE request);

// The same of a class of responses.
bool net_http_library_knows_responses(const struct net_http_library *library, VALUE klass);

// Finds the most bytes of a line of a reply, or of all header fields: what the library reads, or HTTP_HEAD if it has no
// limit. The program may have changed the constants on which this depends: call it for each reply. Returns false if
// only stock can interpret their values.
bool net_http_library_head_limit(const struct net_http_library *library, size_t *limit);

// Returns whether HTTPHeader takes all names and values of up to HTTP_NAME and HTTP_VALUE bytes. The program may have
// lowered its limits.
bool net_http_library_takes_fields(const struct net_http_library *library);

// Settings of a Net::HTTP for its BufferedIO. Ruby code reads them faster.
struct net_http_settings {
    VALUE read_timeout, write_timeout, continue_timeout;
};
struct net_http_settings net_http_settings_of(VALUE http);

// Makes the BufferedIO that the library itself would make for this socket.
VALUE net_http_library_buffered(const struct net_http_library *library, VALUE io,
                                const struct net_http_settings *settings, VALUE output);

// The library of a Net::HTTP or a request, by its class or superclasses; or NULL.
struct net_http_library *net_http_library_of_http(VALUE object);
struct net_http_library *net_http_library_of_http_class(VALUE klass);
struct net_http_library *net_http_library_of_request(VALUE object);

#endif
