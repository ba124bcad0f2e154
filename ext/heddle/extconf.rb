# frozen_string_literal: true

require "mkmf"

# Sources live in folders, one a layer (see the design: an arrow only points down).
LAYERS = ["", "loop"].freeze
root = __dir__
$srcs = LAYERS.flat_map { |layer| Dir[File.join(root, layer, "*.c")].map { |path| File.basename(path) } }.sort
$VPATH.concat(LAYERS.reject(&:empty?).map { |layer| "$(srcdir)/#{layer}" })
$INCFLAGS << " -I$(srcdir)"
$defs << "-D_GNU_SOURCE"
$defs << "-DHEDDLE_DEBUG=1" if ENV["HEDDLE_DEBUG"] == "1"

$CFLAGS << " -std=gnu11 -fvisibility=hidden -Wall -Wextra -Wshadow"
# Ruby's own headers are not held to our warnings.
$INCFLAGS.gsub!("-I$(hdrdir)", "-isystem $(hdrdir)")
$INCFLAGS.gsub!("-I$(arch_hdrdir)", "-isystem $(arch_hdrdir)")
$INCFLAGS.gsub!("-I$(hdrdir)/ruby/backward", "-isystem $(hdrdir)/ruby/backward")
# mkmf compiles with -Wno-… and -Wdeclaration-after-statement of Ruby's own build; C11 code declares where it needs.
$warnflags = $warnflags.to_s.gsub(/-Wdeclaration-after-statement|-Wunused-parameter|-Wno-unused-parameter/, "")

abort "heddle needs POSIX threads" unless have_library("pthread", "pthread_create", "pthread.h")

# Kernel features. Each is a capability of its own, so that a build without one still works.
have_header("sys/eventfd.h")
if have_header("sys/epoll.h")
  have_func("epoll_pwait2", "sys/epoll.h") # glibc >= 2.35; without it timers round up to a millisecond
end
have_header("sys/syscall.h")
if pkg_config("liburing") || have_library("uring", "io_uring_queue_init_params", "liburing.h")
  have_header("liburing.h") && have_func("io_uring_submit_and_get_events", "liburing.h") # liburing >= 2.3
end

create_makefile("heddle/heddle")
