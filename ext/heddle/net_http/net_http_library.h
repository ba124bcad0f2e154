// What is known of one Net::HTTP: Ruby's own, or the copy that RubyGems carries (Gem::Net::HTTP). Each has classes, errors
// and defects of its own, and whether they are still what their library defined decides what may be done faster.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_LIBRARY_H
#define HEDDLE_NET_HTTP_NET_HTTP_LIBRARY_H

#include "heddle.h"

enum net_http_fallback {
    HTTP_FALLBACK_DISABLED,
    HTTP_FALLBACK_OVERRIDE,     // of a method, in a subclass, a singleton, or by reopening the class
    HTTP_FALLBACK_DEBUG_OUTPUT, // each step is to be seen
    HTTP_FALLBACK_IO,           // of a class that we do not know, or closed
    HTTP_FALLBACK_BUFFERED,     // somebody read ahead with the IO itself: its hidden buffer comes first
    HTTP_FALLBACK_ARGUMENTS,    // of a kind that only stock can judge
    HTTP_FALLBACKS
};

struct net_http_library {
    struct net_http_library *next;
    VALUE shadow;       // the class in place of BufferedIO
    VALUE http;         // Net::HTTP, the class that owns connect
    VALUE read_timeout; // errors
    VALUE write_timeout;
    VALUE open_timeout;
    VALUE bad_response;
    VALUE read_limit_exceeded; // 0 before net-protocol 0.3
    VALUE ssl_socket;          // OpenSSL::SSL::SSLSocket, 0 while it is not loaded
    VALUE ssl_error;
    VALUE code_to_object; // Net::HTTPResponse's tables
    VALUE code_class_to_object;
    VALUE unknown_response;
    VALUE response;          // Net::HTTPResponse
    VALUE known_responses;   // its subclasses as shipped, which are made without calling new
    VALUE request;           // Net::HTTPGenericRequest
    VALUE known_requests;    // it and its subclasses as shipped, which are sent without calling their methods
    VALUE response_template; // names and values of a new response's instance variables
    VALUE request_template;  // … of a new request's
    VALUE request_fields;    // names and values of the fields that each request has
    size_t segment;          // bytes that a block of read_body is given at most
    bool enabled;
    bool io_pristine;        // BufferedIO's methods are the library's own
    bool response_pristine;  // HTTPResponse's and HTTPHeader's
    bool request_pristine;   // HTTPGenericRequest's and HTTPHeader's
    bool transport_pristine; // Net::HTTP's
    bool upload_pristine;    // what sends a body_stream
    bool making_pristine;    // what a new Net::HTTP looks like
    bool blank_ends;         // a line of white space ends the head
    bool folds_skip_empty;   // a folded line without content adds nothing, not even the space
    bool inflates;           // a request without Accept-Encoding gets one, and its answer inflated
    uint64_t fast;
    uint64_t fallbacks[HTTP_FALLBACKS];
};

// That of the class, or NULL.
struct net_http_library *net_http_library_of_shadow(VALUE klass);

// Whether the request is of a class as shipped: not of a subclass or a singleton, which may have methods of its own.
bool net_http_library_knows_request(const struct net_http_library *library, VALUE request);

// That of the class or its superclasses, for a Net::HTTP or a request.
struct net_http_library *net_http_library_of_http(VALUE object);
struct net_http_library *net_http_library_of_request(VALUE object);

void Init_heddle_net_http_library(VALUE net_http);

#endif
