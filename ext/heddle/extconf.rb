# frozen_string_literal: true

require_relative "../../lib/heddle/core/supported_ruby"
refusal = Heddle::SupportedRuby.refusal and abort refusal # before mkmf, whose own words would come behind
require "mkmf"

# The layers, each a folder of sources. CONTRIBUTING.md draws which layer may use which.
LAYERS = [
  ".", "os", "cancel", "loop", "scope", "task", "sync", "resolver", "scheduler", "insight", "stream", "wire/http",
  "wire/memcached", "wire/mysql", "wire/postgresql", "net_http", "memcached", "db", "db/mysql", "db/postgresql",
  "db/sqlite", "simulation"
].freeze
# Files of different layers may have one name: each object has the path of its source. What a build that was killed has
# left of its probes is no source.
$srcs = LAYERS.flat_map { |layer| Dir.glob("#{layer}/*.c", base: __dir__) }.sort - ["./conftest.c"]
$objs = $srcs.map { |source| source.sub(/c\z/, $OBJEXT) }
FileUtils.mkdir_p(LAYERS)
$INCFLAGS << " -I$(srcdir)"
$defs << "-D_GNU_SOURCE"
$defs << "-DHEDDLE_DEBUG=1" if ENV["HEDDLE_DEBUG"] == "1"

$CFLAGS << " -std=gnu11 -fvisibility=hidden -Wall -Wextra -Wshadow"
$CFLAGS << " -MD" if ENV["CCACHE_DEPEND"] # see use_ccache in script/setup.sh
# For builds that look for mistakes (rakelib/sanitize.rake): HEDDLE_SANITIZE=address,undefined or thread, and
# HEDDLE_COVERAGE=1.
if (sanitizers = ENV["HEDDLE_SANITIZE"])
  $CFLAGS << " -fsanitize=#{sanitizers} -fno-omit-frame-pointer -O1 -g"
  # A raise leaves frames of a fiber's stack. Their red zones would stay there, since ASAN only clears those of the
  # thread's own stack, and TSAN would take the functions for running.
  $CFLAGS << if sanitizers == "thread"
    " --param tsan-instrument-func-entry-exit=0"
  else
    " -fno-sanitize-recover=undefined --param asan-stack=0"
  end
  $DLDFLAGS << " -fsanitize=#{sanitizers}"
  # Ruby is linked with -z defs, and the sanitizers' symbols come from libraries that are loaded before.
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

# A library that lacks a function, as an old liburing in LD_LIBRARY_PATH, is an error of `require`: bound at its first
# call, the function would end the process.
append_ldflags("-Wl,-z,now")

have_struct_member("rb_io_t", "rbuf", "ruby/io.h") # hidden from Ruby 4.1 on
abort "heddle needs POSIX threads" unless have_library("pthread", "pthread_create", "pthread.h")

# What not every system has. Each is a capability of its own, so that a build without one still works. HEDDLE_PORTABLE=1
# looks for none of them: what is left is the floor (a pipe to wake up, poll, a thread that waits for children). The
# names are ours, HEDDLE_HAS_…, because Ruby's own config.h defines HAVE_… whatever we look for.
LINUX = {
  "EVENTFD" => ["sys/eventfd.h", "eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)"],
  "TIMERFD" => [%w[time.h sys/timerfd.h], "timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)"],
  "EPOLL" => ["sys/epoll.h", "epoll_create1(EPOLL_CLOEXEC)"],
  "PPOLL" => ["poll.h", "ppoll(0, 0, 0, 0)"], # without it timers of streams in threads round up to a millisecond
  "PIDFD" => [%w[sys/syscall.h unistd.h], "syscall(SYS_pidfd_open, 1, 0)"],
  "CLOEXEC_FLAGS" => [%w[fcntl.h sys/socket.h unistd.h],
    "int ends[2] = {accept4(0, 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK)}; pipe2(ends, O_CLOEXEC)"],
  "NOSIGNAL" => ["sys/socket.h", "send(0, 0, 0, MSG_NOSIGNAL)"],
  "POLLRDHUP" => ["poll.h", "struct pollfd asked = {.events = POLLRDHUP}; poll(&asked, 1, 0)"],
  # not that of macOS and the BSDs
  "SENDFILE" => [%w[stddef.h sys/types.h sys/sendfile.h], "sendfile(0, 0, NULL, 1)"],
  "COARSE_CLOCK" => ["time.h", "struct timespec now; clock_gettime(CLOCK_MONOTONIC_COARSE, &now)"],
  "CONDITION_CLOCK" => [%w[pthread.h time.h], "pthread_condattr_setclock(0, CLOCK_MONOTONIC)"],
  "THREAD_SIGNALS" => [%w[link.h sys/syscall.h unistd.h], "syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), 0)"],
  "PEER_CREDENTIALS" => ["sys/socket.h", "struct ucred peer; getsockopt(0, SOL_SOCKET, SO_PEERCRED, &peer, 0)"],
  "ST_MTIM" => ["sys/stat.h", "struct stat file; file.st_mtim.tv_nsec = 0"],
  # Elsewhere MADV_DONTNEED is a hint that frees nothing, and nothing populates pages.
  "LINUX_MADVISE" => ["sys/mman.h", "\n#ifndef __linux__\n#error\n#endif\nmadvise(0, 0, MADV_DONTNEED)"]
}.freeze
MACOS = {
  "GETPEEREID" => ["unistd.h", "uid_t user; gid_t group; getpeereid(0, &user, &group)"],
  "RELATIVE_CONDITIONS" => [%w[pthread.h time.h], "pthread_cond_timedwait_relative_np(0, 0, 0)"],
  "ST_MTIMESPEC" => ["sys/stat.h", "struct stat file; file.st_mtimespec.tv_nsec = 0"]
}.freeze

def links?(features)
  headers = features.flat_map(&:first).uniq
  statements = features.map { |_, statement| "{ #{statement}; }\n" }.join
  try_link("#define _GNU_SOURCE 1\n#{cpp_include(headers)}\nint main(void) { #{statements} return 0; }\n")
end

unless ENV["HEDDLE_PORTABLE"] == "1"
  # All at once first: each program that is compiled takes a quarter of a second.
  found = if checking_for("all that Linux has") { links?(LINUX.values) }
    LINUX
  else
    {**LINUX, **MACOS}.select { |name, feature| checking_for(name.downcase.tr("_", " ")) { links?([feature]) } }
  end
  found.each_key { |name| $defs << "-DHEDDLE_HAS_#{name}" }

  pkg_config("liburing")
  ring = have_library("uring", "io_uring_submit_and_get_events", "liburing.h") # >= 2.3
  $defs << "-DHEDDLE_HAS_LIBURING" if ring
  # A gem with compiled code is for all systems: each finds out when it runs what its kernel lacks.
  abort "this compiler or its libraries lack something" if ENV["HEDDLE_COMPLETE"] == "1" && !(ring && found == LINUX)
end

$CFLAGS << " -Werror" if ENV["HEDDLE_WERROR"] == "1" # rake compile; not where a user installs the gem
create_makefile("heddle/heddle")
