# frozen_string_literal: true

require_relative "build_definitions"

# Checks that the core compiles for other systems: without any of Linux's own features, and with another C library.
namespace :portability do
  # Headers and names that macOS, or one of the BSDs, lacks. Our code may use them only behind a probe of extconf.rb.
  linux_headers = %w[
    byteswap.h endian.h error.h features.h liburing.h malloc.h syscall.h values.h linux/errqueue.h linux/filter.h
    linux/futex.h
    linux/if_tun.h linux/io_uring.h linux/sockios.h linux/tcp.h linux/time_types.h sys/auxv.h sys/epoll.h sys/eventfd.h
    sys/inotify.h
    sys/pidfd.h sys/prctl.h sys/random.h sys/sendfile.h sys/signalfd.h sys/syscall.h sys/sysinfo.h sys/sysmacros.h
    sys/timerfd.h
  ]
  linux_names = %w[
    accept4 dup3 pipe2 ppoll epoll_create1 eventfd timerfd_create signalfd prctl syscall gettid sendfile sendmmsg
    recvmmsg mremap
    getrandom sched_getaffinity sched_getcpu memfd_create
    pthread_condattr_setclock pthread_cond_clockwait pthread_setname_np pthread_getname_np pthread_getattr_np
    pthread_timedjoin_np
    memrchr rawmemchr mempcpy strchrnul secure_getenv qsort_r program_invocation_name program_invocation_short_name
    htobe16 htobe32 htobe64 htole16 htole32 htole64 be16toh be32toh be64toh le16toh le32toh le64toh bswap_16 bswap_32
    bswap_64
    SOCK_CLOEXEC SOCK_NONBLOCK MSG_NOSIGNAL MSG_MORE MSG_ERRQUEUE MSG_ZEROCOPY MSG_CMSG_CLOEXEC MSG_FASTOPEN POLLRDHUP
    TCP_INFO TCP_QUICKACK TCP_CORK TCP_USER_TIMEOUT TCP_KEEPIDLE TCP_DEFER_ACCEPT TCP_FASTOPEN TCP_FASTOPEN_CONNECT
    TCP_ULP
    SO_PEERCRED SO_BINDTODEVICE SO_BUSY_POLL SO_DOMAIN SO_PROTOCOL SO_INCOMING_CPU SO_ATTACH_FILTER ucred
    O_PATH O_TMPFILE O_DIRECT O_NOATIME F_SETPIPE_SZ F_GETPIPE_SZ F_OFD_SETLK F_OFD_GETLK
    MAP_POPULATE MAP_NORESERVE MAP_STACK MAP_GROWSDOWN MADV_DONTNEED MADV_POPULATE_READ MADV_POPULATE_WRITE
    MADV_HUGEPAGE
    CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC_RAW CLOCK_REALTIME_COARSE CLOCK_BOOTTIME st_atim st_mtim st_ctim
    EBADFD ECOMM EHWPOISON EISNAM EKEYEXPIRED ELIBBAD ENOTUNIQ ERESTART ESTRPIPE EUNATCH
  ]
  # Our code may test these by #ifdef: constants of getaddrinfo that some systems lack, and the name of the C library.
  undefined = %w[EAI_NODATA EAI_ADDRFAMILY __GLIBC__]

  # Included before the names are forbidden, since these headers use the names. Every file includes all of them, which
  # also finds functions of ours that are named like a system's, such as wait() in macOS's <stdlib.h>.
  posix_headers = %w[
    arpa/inet.h ctype.h errno.h fcntl.h limits.h locale.h math.h net/if.h netdb.h netinet/in.h netinet/tcp.h poll.h
    pthread.h
    resolv.h sched.h signal.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h strings.h sys/ioctl.h
    sys/mman.h
    sys/resource.h sys/select.h sys/socket.h sys/stat.h sys/time.h sys/types.h sys/uio.h sys/un.h sys/wait.h time.h
    unistd.h
  ]
  ruby_headers = %w[ruby.h ruby/encoding.h ruby/io.h ruby/io/buffer.h ruby/thread.h ruby/version.h]

  folder = "tmp/portability"
  made = "#{folder}/headers"
  ruby_folders = RbConfig::CONFIG.values_at("rubyarchhdrdir", "rubyhdrdir")
  write = lambda do |name, text|
    path = "#{made}/#{name}"
    mkdir_p File.dirname(path), verbose: false
    File.write(path, text)
  end

  headers = "#{made}/elsewhere.h"
  file headers => __FILE__ do
    linux_headers.each do |name|
      write.call(name, <<~C)
        #ifdef HEDDLE_ELSEWHERE
        #error "<#{name}> is not everywhere: it belongs behind a probe of extconf.rb"
        #else
        #include_next <#{name}>
        #endif
      C
    end
    # Ruby's own definition enables everything in glibc.
    write.call("ruby/config.h", "#include_next <ruby/config.h>\n#undef _GNU_SOURCE\n#undef __USE_GNU\n")
    include_all = ->(names) { names.map { |name| "#include <#{name}>\n" }.join }
    write.call("elsewhere.h", <<~C)
      #define _DEFAULT_SOURCE 1
      #ifdef HEDDLE_WITH_RUBY
      #{include_all.call(ruby_headers)}
      #endif
      #{include_all.call(posix_headers)}
      void *memmem(const void *, size_t, const void *, size_t); // glibc has it with _GNU_SOURCE only, others always
      #define HEDDLE_ELSEWHERE 1
      #{(linux_names + undefined).map { |name| "#undef #{name}\n" }.join}
      #pragma GCC poison #{linux_names.join(" ")}
    C
  end

  compile = lambda do |kind, compiler, sources, needed, &options|
    needed += [*FileList["#{sources}/**/*.h"], "ext/heddle/extconf.rb", __FILE__]
    FileList["#{sources}/**/*.c"].map do |source|
      object = source.pathmap("#{folder}/#{kind}/#{RUBY_VERSION}/%X.o")
      file object => [source, *needed] do
        mkdir_p File.dirname(object), verbose: false
        sh compiler, "-std=gnu11", "-O0", "-MD", "-Wall", "-Wextra", "-Werror", *options.call(source),
          "-I#{sources}", "-c", source,
          "-o", object, verbose: false
      end
      object
    end
  end

  %w[gcc clang].each do |compiler|
    objects = compile.call("elsewhere-#{compiler}", compiler, "ext/heddle", [headers]) do |source|
      own = BuildDefinitions.of_this_ruby.grep(/-DHAVE_RB_/) # what Ruby has; of the system there is nothing
      own << "-DHEDDLE_WITH_RUBY" unless source.include?("/wire/")
      [*own, "-U__linux__", "-U__linux", "-Ulinux",
        *[made, *ruby_folders].flat_map { |path| ["-isystem", path] }, "-include", headers]
    end
    multitask "elsewhere_#{compiler}" => objects
  end

  desc "Compile without Linux's own features: their headers and names are errors"
  task elsewhere: %w[elsewhere_gcc elsewhere_clang]

  # The kernel's own headers, which every C library for Linux includes.
  kernel = "#{folder}/kernel"
  file kernel do
    mkdir_p kernel, verbose: false
    places = ["/usr/include", *Dir["/usr/include/*-linux-gnu"]]
    %w[linux asm asm-generic liburing liburing.h].each do |name|
      found = places.map { |place| "#{place}/#{name}" }.find { |path| File.exist?(path) }
      ln_sf found, "#{kernel}/#{name}", verbose: false if found
    end
  end

  core = compile.call("musl", "musl-gcc", "ext/heddle", [kernel]) do
    [*BuildDefinitions.of_this_ruby, *[*ruby_folders, kernel].flat_map { |path| ["-isystem", path] }]
  end
  load_server = compile.call("musl", "musl-gcc", "lab/ext/server", [kernel]) { ["-D_GNU_SOURCE", "-isystem", kernel] }
  desc "Compile with musl, as on Alpine Linux"
  multitask musl: core + load_server
end

desc "Compile for other systems: without Linux's own features, and with musl"
task portability: %w[portability:elsewhere portability:musl]
