// The names of instance variables, methods and constants by which this folder reads and calls Ruby code: iv_NAME for
// @NAME, id_NAME for NAME.
#ifndef HEDDLE_NET_HTTP_NAMES_H
#define HEDDLE_NET_HTTP_NAMES_H

#include <ruby.h>

// clang-format off
#define NET_HTTP_VARIABLES(IV) \
    IV(address) IV(body) IV(body_data) IV(body_stream) IV(close_on_empty_response) IV(code) IV(continue_timeout) \
    IV(debug_output) IV(decode_content) IV(header) IV(host) IV(http_version) IV(ignore_eof) IV(io) IV(ipaddr) \
    IV(keep_alive_timeout) IV(key) IV(last_communicated) IV(local_host) IV(local_port) IV(max_retries) IV(message) \
    IV(method) IV(objects) IV(path) IV(endpoint) IV(port) IV(proxy_address) IV(proxy_from_env) IV(proxy_uri) IV(rbuf) \
    IV(rbuf_empty) IV(rbuf_offset) IV(rbuffer) IV(read_timeout) IV(request_has_body) IV(response_has_body) \
    IV(session_class) IV(settings) IV(socket) IV(ssl_context) IV(uri) IV(use_ssl) IV(write_timeout)

#define NET_HTTP_METHODS(NAME) \
    NAME(add_field) NAME(addr_port) NAME(address) NAME(clear) NAME(clock_gettime) NAME(close) \
    NAME(compare_by_identity) NAME(connect) NAME(content_length) NAME(context) NAME(count) NAME(delete) NAME(discard) \
    NAME(keep_session) NAME(limit) NAME(new) NAME(on_connect) NAME(open_timeout) NAME(owner) NAME(pending) NAME(port) \
    NAME(proxy_uri) NAME(read_line) NAME(read_nonblock) NAME(source_location) NAME(sysread_nonblock) NAME(to_io) \
    NAME(update_uri) NAME(wait_for_continue) NAME(watch) NAME(write_nonblock)

// Variables without @ are hidden: `instance_variables` and `inspect` do not show them. Marshal does.
// NAME_without_heddle is the method that one of ours has replaced.
#define NET_HTTP_OTHERS(OTHER) \
    OTHER(id_allowed_p, "allowed?") OTHER(id_append, "<<") OTHER(id_aref, "[]") OTHER(id_aset, "[]=") \
    OTHER(id_at_home_p, "at_home?") OTHER(id_begin_transport, "begin_transport_without_heddle") \
    OTHER(id_body_permitted_p, "body_permitted?") OTHER(id_buffered_io, "BufferedIO") OTHER(id_chunked, "chunked?") \
    OTHER(id_env, "ENV") OTHER(id_exec, "exec_without_heddle") OTHER(id_include_p, "include?") \
    OTHER(id_initialize, "initialize_without_heddle") OTHER(id_max_field_length, "MAX_FIELD_LENGTH") \
    OTHER(id_max_key_length, "MAX_KEY_LENGTH") OTHER(id_max_response_header_length, "MAX_RESPONSE_HEADER_LENGTH") \
    OTHER(id_only_tickets_p, "only_tickets?") OTHER(id_original_proxy_uri, "proxy_uri_without_heddle") \
    OTHER(id_override_body_stream_chunk, "net_http_override_body_stream_chunk") OTHER(id_positive_p, "positive?") \
    OTHER(id_proxy_p, "proxy?") OTHER(id_read_body_0, "read_body_0_without_heddle") \
    OTHER(id_read_new, "read_new_without_heddle") OTHER(id_set_content_length, "content_length=") \
    OTHER(id_supply_content_type, "supply_default_content_type") OTHER(id_use_ssl, "use_ssl?") \
    OTHER(iv_choice, "heddle_choice") OTHER(iv_connection, "heddle_connection") \
    OTHER(iv_end_owed, "heddle_end_of_chunk_owed") OTHER(iv_foreign, "heddle_foreign") \
    OTHER(iv_implied, "heddle_implied") OTHER(iv_sent, "heddle_sent") OTHER(iv_told, "heddle_told") \
    OTHER(iv_transporting, "heddle_transporting")
// clang-format on

#define IV(name)          extern ID iv_##name;
#define NAME(name)        extern ID id_##name;
#define OTHER(name, text) extern ID name;
NET_HTTP_VARIABLES(IV)
NET_HTTP_METHODS(NAME)
NET_HTTP_OTHERS(OTHER)
#undef IV
#undef NAME
#undef OTHER

// A frozen String that is never freed.
VALUE net_http_constant(const char *text);

// Calls the method that the running one replaced (lib/heddle/net_http/method_replacement.rb), with its block. `id`:
// NAME_without_heddle.
VALUE net_http_call_original(VALUE self, ID id, int argc, const VALUE *argv, int keywords);

#endif
