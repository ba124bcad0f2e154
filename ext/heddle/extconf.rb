# frozen_string_literal: true

require "mkmf"

# Sources live in folders, one a layer (see the design: an arrow only points down).
LAYERS = ["", "os", "loop", "scope", "task", "names", "scheduler", "stream", "wire", "net_http", "memcached", "mysql"].freeze
root = __dir__
$srcs = LAYERS.flat_map { |layer| Dir[File.join(root, layer, "*.c")].map { |path| File.basename(path) } }.sort
$VPATH.concat(LAYERS.reject(&:empty?).map { |layer| "$(srcdir)/#{layer}" })
$INCFLAGS << " -I$(srcdir)"
$defs << "-D_GNU_SOURCE"
$defs << "-DHEDDLE_DEBUG=1" if ENV["HEDDLE_DEBUG"] == "1"

$CFLAGS << " -std=gnu11 -fvisibility=hidden -Wall -Wextra -Wshadow"
# For builds that look for mistakes (rakelib/sanitize.rake): HEDDLE_SANITIZE=address or undefined, HEDDLE_COVERAGE=1.
if (sanitizer = ENV["HEDDLE_SANITIZE"])
  options = " -fsanitize=#{sanitizer} -fno-omit-frame-pointer -O1 -g"
  options << " -fno-sanitize-recover=undefined" if sanitizer == "undefined"
  # A raise that leaves frames of a fiber's stack leaves their red zones: ASAN only clears those of the thread's own.
  options << " --param asan-stack=0" if sanitizer == "address"
  $CFLAGS << options
  $DLDFLAGS << " -fsanitize=#{sanitizer}"
  # Ruby is linked with -z defs, and the sanitizer's symbols come from a library that is loaded before.
  $DLDFLAGS.gsub!("-Wl,-z,defs", "")
end
if ENV["HEDDLE_COVERAGE"] == "1"
  $CFLAGS << " --coverage -O0 -g"
  $DLDFLAGS << " --coverage"
end
# Ruby's own headers are not held to our warnings.
$INCFLAGS.gsub!("-I$(hdrdir)", "-isystem $(hdrdir)")
$INCFLAGS.gsub!("-I$(arch_hdrdir)", "-isystem $(arch_hdrdir)")
$INCFLAGS.gsub!("-I$(hdrdir)/ruby/backward", "-isystem $(hdrdir)/ruby/backward")
# mkmf compiles with -Wno-… and -Wdeclaration-after-statement of Ruby's own build; C11 code declares where it needs.
$warnflags = $warnflags.to_s.gsub(/-Wdeclaration-after-statement|-Wunused-parameter|-Wno-unused-parameter/, "")

have_struct_member("rb_io_t", "rbuf", "ruby/io.h") # hidden from Ruby 4.1 on
abort "heddle needs POSIX threads" unless have_library("pthread", "pthread_create", "pthread.h")

# Kernel features. Each is a capability of its own, so that a build without one still works. HEDDLE_PORTABLE=1 looks for
# none of them: what is left is the floor (a pipe to wake up, poll, a thread that waits for children).
unless ENV["HEDDLE_PORTABLE"] == "1"
  have_header("sys/eventfd.h")
  have_header("sys/timerfd.h")
  have_func("ppoll", "poll.h") # microseconds; without it timers of streams in threads round up to a millisecond
  if have_header("sys/epoll.h")
    have_func("epoll_pwait2", "sys/epoll.h") # glibc >= 2.35; without it timers round up to a millisecond
  end
  $defs << "-DHAVE_PIDFD=1" if have_macro("SYS_pidfd_open", "sys/syscall.h")
  # liburing >= 2.3, for io_uring_submit_and_get_events
  pkg_config("liburing")
  if have_library("uring", "io_uring_submit_and_get_events", "liburing.h")
    $defs << "-DHAVE_LIBURING=1"
  end
end

create_makefile("heddle/heddle")
