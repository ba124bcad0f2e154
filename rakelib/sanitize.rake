# frozen_string_literal: true

# Runs the tests on builds that detect errors. HEDDLE_NATIVE_DIR chooses a build; each has a folder under tmp/native.
# FILES=test/loop selects tests.
namespace :test do
  native = ->(build) { File.expand_path("tmp/native/#{build}/#{RUBY_VERSION}") }
  library = ->(name) { `#{ENV.fetch("CC", "gcc")} -print-file-name=#{name}`.strip }

  # The tests that find most errors of memory and undefined behaviour in little time; bin/test runs them by
  # `rake test:sanitizers`.
  short = %w[
    test/db/postgresql_hostile_answers_test.rb
    test/hazards/closed_behind_our_back_test.rb test/hazards/contract_io_test.rb test/hazards/interruptions_test.rb
    test/hazards/nested_fibers_test.rb test/loop/descriptor_reuse_test.rb test/loop/socket_methods_test.rb
    test/loop/timerfd_test.rb test/loop/two_fibers_on_one_descriptor_test.rb
  ].freeze
  shortest = %w[test/hazards/contract_io_test.rb test/loop/descriptor_reuse_test.rb].freeze
  # Where native threads without the GVL work beside Ruby's: look-ups of names, guards of sockets, wake-ups, ODBC's
  # sessions, and what runs on worker threads.
  threaded = %w[
    test/db/odbc_calls_test.rb test/db/odbc_sqlite_test.rb test/deadlines/helper_thread_test.rb
    test/hazards/background_threads_test.rb test/hazards/early_unblock_test.rb test/hazards/wake_ups_test.rb
    test/offload/mysql2_test.rb test/offload/offload_test.rb test/offload/socket_guard_test.rb
    test/offload/sqlite3_test.rb
    test/resolver/connect_test.rb test/resolver/other_ways_test.rb test/resolver/resolver_test.rb
    test/unmodified/sqlite3_giving_way_test.rb
  ].freeze
  # These settings exist because fibers switch stacks, and Ruby gives each thread a signal stack, and keeps memory that
  # ASAN would report as leaks. The kernel writes to io_uring's mappings, which neither ASAN nor valgrind sees: the
  # backend is epoll where HEDDLE_BACKEND names no other.
  # With verbosity=1 ASAN opens its report when a process starts. Later, tests that count descriptors would find one
  # more.
  settings = {
    sanitized: -> {
      {"LD_PRELOAD" => %w[libasan.so libubsan.so].map(&library).join(":"), "HEDDLE_BACKEND" => "epoll",
       "ASAN_OPTIONS" => "detect_leaks=0:detect_stack_use_after_return=0:use_sigaltstack=0:halt_on_error=1:" \
                         "verbosity=1:exitcode=99:log_path=#{native.call(:sanitized)}/report",
       "UBSAN_OPTIONS" => "print_stacktrace=1:halt_on_error=1"}
    },
    # Ruby itself is not compiled with it. The locks that it takes are known nevertheless, the GVL among them, since
    # libtsan takes the place of the C library's functions.
    threads: -> {
      {"LD_PRELOAD" => library.call("libtsan.so"), "HEDDLE_BACKEND" => "epoll",
       "TSAN_OPTIONS" => "suppressions=#{File.expand_path("test/support/tsan.supp")}:die_after_fork=0:exitcode=99:" \
                         "history_size=4:log_path=#{native.call(:threads)}/report"}
    },
    debug: -> { {} },
    portable: -> { {"HEDDLE_BACKEND" => "poll"} }
  }
  run = lambda do |build, files, backend = ENV["HEDDLE_BACKEND"]|
    slow = %i[sanitized threads].include?(build) ? {"HEDDLE_TEST_SLOWNESS" => "4"} : {}
    chosen = backend ? {"HEDDLE_BACKEND" => backend} : {}
    environment = {"HEDDLE_NATIVE_DIR" => native.call(build), **settings.fetch(build).call, **slow, **chosen}
    reports = FileList["#{native.call(build)}/report.*"]
    rm_f reports, verbose: false
    sh(environment, RbConfig.ruby, "test/support/driver.rb", *files, verbose: false) do |passed, status|
      texts = Dir["#{native.call(build)}/report.*"].map { |path| File.read(path) }
      found = texts.grep(/ERROR: |WARNING: ThreadSanitizer/)
      puts found
      raise "#{build}: the tests ended with #{status.exitstatus}" unless passed
      raise "#{build}: #{found.size} errors in child processes" unless found.empty?
    end
  end
  valgrind = lambda do |files|
    # Ruby scans its stacks for pointers, and so reads undefined values: only invalid reads and writes are reported. A
    # step of the stack pointer by more than 4 MiB is a switch to another fiber, since fibers' stacks are made larger
    # than that; a smaller step is a frame: a thread's first frame takes 1 MiB.
    command = %w[valgrind --quiet --undef-value-errors=no --error-exitcode=99 --max-stackframe=4194304
      --suppressions=test/support/valgrind.supp]
    environment = {"HEDDLE_BACKEND" => "epoll", "HEDDLE_TEST_SLOWNESS" => "10",
                   "HEDDLE_NATIVE_DIR" => native.call(:debug), "RUBY_FIBER_MACHINE_STACK_SIZE" => (8 << 20).to_s}
    sh environment, *command, RbConfig.ruby, "test/support/driver.rb", *files, verbose: false
  end
  chosen = -> { ENV.fetch("FILES", "test/loop test/hazards").split }
  # ASAN keeps freed memory for a while, so that memory grows.
  without_growth = -> {
    ENV.key?("FILES") ? chosen.call : FileList["test/{loop,hazards}/**/*_test.rb"].exclude(/growth_test/).to_a
  }

  {sanitized: "AddressSanitizer and UndefinedBehaviorSanitizer", debug: "assertions",
   portable: "nothing of Linux's own"}.each do |build, what|
    desc "Run the tests of the loop and the hazards, or FILES, with #{what}"
    task(build => "compile:#{build}") { run.call(build, (build == :sanitized) ? without_growth.call : chosen.call) }
  end

  desc "Run the tests of native threads, or FILES, with ThreadSanitizer"
  task(threads: "compile:threads") { run.call(:threads, ENV.key?("FILES") ? chosen.call : threaded) }

  desc "Run the tests of the loop and the hazards, or FILES, under valgrind"
  task(valgrind: "compile:debug") { valgrind.call(ENV.key?("FILES") ? chosen.call : short) }

  desc "Run a short choice of tests with the sanitizers and under valgrind"
  task sanitizers: %w[compile:sanitized compile:debug test:fuzz] do
    run.call(:sanitized, short)
    run.call(:sanitized, short, "") # undefined behaviour in the backend that Heddle chooses
    valgrind.call(shortest)
  end
end
