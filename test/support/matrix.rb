# frozen_string_literal: true

require "open3"
require "tempfile"
require "tmpdir"
require_relative "../../lib/heddle/core/clock"
require_relative "locale"
require_relative "placement"
require_relative "steps"
require_relative "summary"
require_relative "versions"

# What bin/test does once the machine is set up: it checks, builds, runs the suites on each Ruby and backend, and
# prints what ran where. Everything that it starts has a deadline. The rules here are of folders; what a file says
# itself, Placement knows.
class TestMatrix
  include Heddle::Clock

  ROOT = File.expand_path("../..", __dir__)
  FLOOR = "3.1"
  NEWER = %w[3.3 3.4 4.0].freeze
  BACKENDS = %w[uring epoll poll].freeze
  # The oldest and the newest Ruby run on every backend. Those between have the C API of one or the other, and so run
  # on one backend each.
  BACKENDS_BETWEEN = {"3.3" => %w[uring], "3.4" => %w[epoll]}.freeze
  # `poll` is the minimum that every system has: tests of the loop itself run on it on the oldest Ruby, whose hazards
  # run on it in the portable build, and the hazards on newer Rubies.
  ON_POLL = %w[loop].freeze
  ON_NEWER_POLL = %w[hazards].freeze
  # These test other things than the loop, or other programs: they run once on each Ruby, on the backend that
  # Heddle chooses.
  ONCE = %w[lab memcached db wire net_http stream insight unmodified rails neverblock processes offload jobs
    blocking_mode simulation documents].freeze
  # These depend on Ruby's version, and so run on newer Rubies too.
  ON_NEWER = %w[loop hazards insight resolver deadlines net_http stream neverblock faults simulation].freeze
  # The newest Ruby is the other end of the supported range, and has newer versions of the libraries.
  NEWEST = NEWER.last
  ON_NEWEST = [*ON_NEWER, "memcached", "db", "wire", "unmodified", "rails", "processes", "offload", "jobs",
    "blocking_mode", "documents"].freeze
  # This Ruby runs in the chroot of Debian unstable, with servers that are newer than this machine's. There run the
  # database tests for which the server's version matters.
  BESIDE_NEWER_SERVERS = "3.4"
  PRINT_VERSIONS = "puts %i[PostgreSQL MariaDB].map { |name| Heddle::Lab::Servers.const_get(name).new.version }"

  # Extra builds, on the oldest Ruby: one with assertions, and one as for a kernel without Linux's features. The build
  # with assertions, otherwise compiled as usual, takes the place of the usual one on the backend that Heddle chooses.
  BUILDS = {"debug" => nil, "portable" => "poll"}.freeze
  # The portable build runs the tests of all that waits; the build with assertions runs those of the loop, and of those
  # who read its records.
  ON_BUILDS = {"debug" => %w[loop hazards insight],
               "portable" => %w[loop hazards insight resolver deadlines stream net_http]}.freeze

  # Programs may have a newer Net::HTTP than their Ruby came with.
  NEWEST_NET_HTTP = %w[net-http net-protocol].freeze
  NET_HTTP_FOLDER = "tmp/net-http"
  ON_NEWEST_NET_HTTP = FLOOR # the farthest from its own

  GEM_INSTALL = %w[gem install --silent --no-document --ignore-dependencies --install-dir].freeze

  # YJIT's compiled Ruby is where Heddle's C meets unusual frames: fiber switches and exceptions that arrive inside a
  # method, methods that are prepended or replaced after their callers were compiled, and stacks that a GC scans and
  # compacts. The second call of a method compiles it; processes that a test starts have Ruby's own threshold.
  YJIT = {"RUBYOPT" => "--yjit --yjit-call-threshold=2", "RUBY_YJIT_ENABLE" => "1"}.freeze

  # Cells that run at once. They share the slots for test files (see slots.rb), so that the last long file of one does
  # not leave the processors idle.
  CELLS_AT_ONCE = 3
  # More than all of them take together: what hangs is a file, and each has a limit of its own (see driver.rb).
  CELL_SECONDS = 5400

  # The oldest versions of libraries on whose inside Heddle stands; the bundles have newer ones. The oldest Rails is in
  # the bundle of the oldest Ruby.
  OLDEST = {oldest_puma: %w[puma]}.freeze

  # What runs without options on the newest Ruby, and on other backends than the one that Heddle chooses. The newest
  # has another Rails.
  ON_NEWEST_IN_SHORT = %w[loop deadlines hazards rails].freeze

  USAGE = <<~TEXT
    usage: bin/test [--all] [--newest] [--ruby VERSION]... [--backend uring|epoll|poll]... [--no-checks] [PATH]...
      (nothing)   style, signatures and documents, the tests on this machine's Ruby, and those of the loop and
                  of Rails on Ruby #{NEWEST} where it is installed: some minutes
      --all       all checks, every Ruby, backend and build: half an hour
      --newest    with the newest versions of all gems, and says which differ from the tested ones
      --ruby      all tests on that Ruby, or the files of that name
      PATH        test files or folders, on each Ruby and backend that is asked for
    HEDDLE_TEST_SLOWNESS=3 triples all limits in seconds, of the steps and of the tests.
    HEDDLE_TEST_MINUTES=45 starts no file after that time, and tells which files did not run for it.
  TEXT

  # A run of test files on one Ruby with one backend (nil: the one that Heddle chooses), with other libraries than
  # Ruby's own if their folders are given; +servers+ names those that are not this machine's.
  Cell = Struct.new(:ruby, :backend, :files, :build, :libraries, :yjit, :servers) do
    def name
      "Ruby #{ruby}, #{backend || "default"} " \
        "backend#{", #{build} build" if build}#{", #{versions}" if versions}#{", YJIT" if yjit}"
    end

    def versions
      libraries&.map { |folder| folder[%r{([^/]+)/lib\z}, 1] }&.join(" ") || servers
    end
  end

  def initialize(arguments)
    @rubies = []
    @backends = []
    @paths = []
    @checks = true
    @later = []
    @all = @newest = false
    parse(arguments)
    @checks &&= @paths.empty?
    @until = now + 60 * Float(ENV["HEDDLE_TEST_MINUTES"]) if ENV["HEDDLE_TEST_MINUTES"]
    @record = Tempfile.new("heddle-record") # the object's end would delete its file
    @summary = TestSummary.new(@record.path)
  end

  def run
    Dir.chdir(ROOT)
    $stdout.sync = true # the processes that are started write to the same place
    ENV["HEDDLE_NEWEST"] = "1" if @newest
    @steps = TestSteps.new(expected_steps)
    step("load server", 200, "make", "--silent", "-C", "lab/ext/server")
    fetch_mysql unless short?
    beside = usable = nil
    run_cells do |cells| # while the next Ruby is set up, the tests of the last one run
      usable = rubies.select do |ruby|
        next unless prepare(ruby)

        beside = Thread.new { checks(ruby) } if ruby == ruby_of_checks && @checks
        all_cells(ruby).each { |cell| cells << cell }
        tell_changes(ruby) if @newest
        true
      end
      @later.each { |cell| cells << cell }
      beside&.join
    end
    newer = usable & NEWER
    if everything? && newer.any? && !@with_yjit
      @summary.not_run("YJIT", "no Ruby of #{newer.join(", ")} was built with it")
    end
    @steps.save
    @summary.print(seconds: @steps.seconds)
    @summary.passed?
  end

  private

  def parse(arguments)
    until arguments.empty?
      case argument = arguments.shift
      when "--ruby" then @rubies << arguments.shift
      when "--backend" then @backends << arguments.shift
      when "--no-checks" then @checks = false
      when "--all" then @all = true
      when "--newest" then @newest = @all = true
      when "--help", "-h"
        puts USAGE
        exit
      when /\A-/ then abort USAGE
      else @paths << argument.delete_suffix("/")
      end
    end
    missing = @paths.reject { |path| File.exist?(File.expand_path(path, ROOT)) }
    abort "bin/test: there is no #{missing.join(", no ")}" if missing.any?
  end

  # Whether no option limits which files run, and on which backends.
  def everything?
    @paths.empty? && @backends.empty? && !short?
  end

  # The run of somebody who has just cloned.
  def short?
    !@all && @rubies.empty? && @backends.empty? && @paths.empty?
  end

  def rubies
    return @rubies unless @rubies.empty?

    own = RUBY_VERSION[/\A\d+\.\d+/]
    @rubies_here ||= short? ? [own, (NEWEST if newest_here?)].compact.uniq : [FLOOR, NEWEST, *NEWER].uniq
  end

  def newest_here?
    return @newest_here unless @newest_here.nil?

    @newest_here = system("script/with-ruby", NEWEST, "true", %i[out err] => File::NULL)
  end

  # As far as they are known before anything is set up.
  def expected_steps
    names = ["load server", *rubies.flat_map { |ruby| ["gems for Ruby #{ruby}", "compile for Ruby #{ruby}"] }]
    names += BUILDS.keys.map { |build| "compile: #{build} build" } if everything? && rubies.include?(FLOOR)
    names += check_steps.map(&:first) if @checks && rubies.include?(ruby_of_checks)
    names + rubies.flat_map { |ruby| cells(ruby).map(&:name) }
  end

  def backends_for(ruby)
    return @backends if @backends.any?

    everything? ? BACKENDS_BETWEEN.fetch(ruby, BACKENDS) : BACKENDS
  end

  # Sets up gems and native code for one Ruby. Returns false if that Ruby is not available.
  def prepare(ruby)
    system("script/with-ruby", ruby, "true", err: [(errors = Tempfile.new("heddle-errors")).path, "w"])
    if $?.exitstatus == 69
      @summary.not_run("Ruby #{ruby}", File.read(errors.path).lines.last.to_s.strip)
      return false
    end
    $stderr.write(File.read(errors.path))
    gems = (everything? && BACKENDS_BETWEEN.key?(ruby)) ? "between" : "all"
    step("gems for Ruby #{ruby}", 2400, "script/install-gems", ruby, gems) &&
      step("compile for Ruby #{ruby}", 900, *with(ruby), "rake", "--quiet", "compile") &&
      (ruby != FLOOR || compile_builds)
  end

  # Its tests skip where it is not there.
  def fetch_mysql
    said, status = Open3.capture2e("script/mysql")
    @summary.not_run("MySQL itself", said.lines.last.to_s.strip) unless status.success?
  end

  # Before the checks begin, since one of them takes the build with assertions, too.
  def compile_builds
    return true unless everything?

    @builds = BUILDS.keys.select do |build|
      step("compile: #{build} build", 900, *with(FLOOR), "rake", "--quiet", "compile:#{build}")
    end
  end

  # Most of them take one processor, and the tests mostly wait: they run beside each other.
  def checks(ruby)
    check_steps.each do |name, task, without_locale|
      step(name, 1200, *with(ruby), "rake", "--quiet", task, environment: without_locale ? NO_LOCALE : {})
    end
  end

  # Containers have no locale; Ruby then takes files for US-ASCII.
  NO_LOCALE = {"LC_ALL" => "C", "LANG" => nil}.freeze

  def ruby_of_checks = short? ? rubies.first : FLOOR

  def check_steps
    short = [["style", "style", true], ["signatures", "rbs"], ["documentation", "doc", true]]
    return short unless everything?

    short + [%w[warnings warnings], %w[portability portability], %w[sanitizers test:sanitizers],
      %w[simulation test:simulation]]
  end

  # What runs once that Ruby is set up. Other builds and libraries of the oldest Ruby come behind the newest Ruby: a run
  # that has too little time for all has then tested both.
  def all_cells(ruby)
    usable = cells(ruby).select { |cell| usable?(ruby, cell.backend) }
    return usable unless everything?
    return usable.tap { @later = build_cells + net_http_cells + oldest_cells } if ruby == FLOOR

    usable += yjit_cells(ruby) + @later.slice!(0..)
    (ruby == BESIDE_NEWER_SERVERS) ? usable + server_cells : usable
  end

  # The longest first.
  def cells(ruby)
    files = files_for(ruby)
    files = files.reject { |file| of(file).rubies == :newest } if beside_newest?(ruby)
    once, each = files.partition { |file| once?(file) || (short? && ruby != rubies.first) }
    on_backends = backends_for(ruby).map { |backend| Cell.new(ruby, backend, for_backend(ruby, backend, each)) }
    [Cell.new(ruby, nil, once), *on_backends].reject { |cell| cell.files.empty? }
  end

  # On the backend that Heddle chooses, unless files and backends were both asked for by name.
  def once?(file)
    return false if @paths.any? && @backends.any?

    ONCE.include?(suite(file)) || of(file).one_backend?
  end

  def beside_newest?(ruby) = ruby != NEWEST && @paths.empty? && rubies.include?(NEWEST) && newest_here?

  # Everything that was asked for by name.
  def for_backend(ruby, backend, files)
    return files if @paths.any?
    return files.select { |file| suite(file) == "loop" } if short? && backend != BACKENDS.first
    if backend == "poll"
      suites = (ruby == FLOOR) ? ON_POLL : ON_NEWER_POLL
      return files.select { |file| suites.include?(suite(file)) || of(file).also?(:poll) }
    end

    with_assertions = ruby == FLOOR && backend == BACKENDS.first && everything?
    with_assertions ? files.reject { |file| ON_BUILDS.fetch("debug").include?(suite(file)) } : files
  end

  def server_cells
    version, mariadb = IO.popen([*with(BESIDE_NEWER_SERVERS), "ruby", "-Ilab/lib", "-r", "heddle/lab", "-e",
      PRINT_VERSIONS], err: %i[child out], &:readlines).map(&:strip)
    own = Dir["/usr/lib/postgresql/*"].map { |folder| File.basename(folder).to_i }.max.to_i
    return not_beside_newer_servers("Ruby #{BESIDE_NEWER_SERVERS} says: #{version}") unless $?.success?
    if version.to_i <= own
      return not_beside_newer_servers("Ruby #{BESIDE_NEWER_SERVERS} runs beside #{version}, this machine has #{own}")
    end

    [Cell.new(BESIDE_NEWER_SERVERS, nil, files_also(:newer_servers), nil, nil, nil,
      "PostgreSQL #{version}, MariaDB #{mariadb}")]
  end

  def not_beside_newer_servers(reason)
    @summary.not_run("newer servers", reason)
    []
  end

  def net_http_cells
    names = NEWEST_NET_HTTP.map { |name| GemVersions.named(name, "beside") }
    return [] unless step("the newest #{NEWEST_NET_HTTP.join(" and ")}", 600, *GEM_INSTALL, NET_HTTP_FOLDER, *names)

    libraries = NEWEST_NET_HTTP.map { |name| newest_library(NET_HTTP_FOLDER, name) }
    files = Dir["test/net_http/**/*_test.rb"].sort.reject { |file| of(file).except?(:newest_net_http) }
    [Cell.new(ON_NEWEST_NET_HTTP, nil, files, nil, libraries)]
  end

  def oldest_cells
    OLDEST.filter_map do |word, names|
      folder = "tmp/#{word.to_s.tr("_", "-")}"
      versions = names.map { |name| "#{name}:#{GemVersions.of("beside").fetch(name)}" }
      next unless step("the oldest #{names.first}", 600, *GEM_INSTALL, folder, *versions)

      Cell.new(FLOOR, nil, files_also(word), nil, names.map { |name| newest_library(folder, name) })
    end
  end

  def newest_library(folder, name)
    Dir["#{ROOT}/#{folder}/gems/#{name}-*/lib"].max_by { |path| Gem::Version.new(path[%r{-([\d.]+)/lib\z}, 1]) }
  end

  # On the first of the newer Rubies that was built with it.
  def yjit_cells(ruby)
    return [] if @with_yjit || !system("script/with-ruby", ruby, "ruby", "--yjit", "-e",
      "exit(RubyVM::YJIT.enabled?)", %i[out err] => File::NULL)

    @with_yjit = ruby
    [Cell.new(ruby, nil, files_also(:yjit), nil, nil, true)]
  end

  def build_cells
    @builds.map do |build|
      files = files_for(FLOOR).select do |file|
        ON_BUILDS.fetch(build).include?(suite(file)) && !of(file).except?(build.to_sym)
      end
      Cell.new(FLOOR, BUILDS.fetch(build), files, build)
    end
  end

  def files_for(ruby)
    return named_files unless @paths.empty?

    return short_files(ruby) if short?
    return all_files unless NEWER.include?(ruby)

    suites, rubies = (ruby == NEWEST) ? [ON_NEWEST, %i[all ends newest]] : [ON_NEWER, %i[all newest]]
    all_files.select { |file| suites.include?(suite(file)) && rubies.include?(of(file).rubies) }
  end

  def short_files(ruby)
    short = all_files.select { |file| of(file).short? }
    (ruby == rubies.first) ? short : short.select { |file| ON_NEWEST_IN_SHORT.include?(suite(file)) }
  end

  def all_files = Dir["test/**/*_test.rb"].sort

  def files_also(cell) = all_files.select { |file| of(file).also?(cell) }

  def named_files
    @paths.flat_map { |path| File.directory?(path) ? Dir["#{path}/**/*_test.rb"].sort : [path] }
  end

  def suite(file) = TestSummary.suite(file)

  def of(file) = (@placements ||= {})[file] ||= Placement.of(file)

  # If the kernel refuses io_uring, these do not run; if Heddle refuses it on a kernel that has it, that is a failure.
  def usable?(ruby, backend)
    return true unless backend == "uring"

    # io_uring_setup, which has this number on every architecture, with a null pointer: EFAULT means that the kernel
    # has io_uring.
    probe = "begin; syscall(425, 1, 0); rescue SystemCallError => error; puts error.class; end"
    refusal = IO.popen(["script/with-ruby", ruby, "ruby", "-W0", "-e", probe], &:read).strip
    return true if refusal == "Errno::EFAULT"

    @summary.not_run("Ruby #{ruby}, uring backend", "this kernel refuses io_uring (#{refusal})")
    false
  end

  # Yields a queue for the cells, which run from then on. Files that failed beside others run again alone when all
  # cells are done, and the block too.
  def run_cells
    Dir.mktmpdir("heddle-test") do |folder|
      waiting = Queue.new
      again = {}
      workers = Array.new(CELLS_AT_ONCE) do |worker|
        Thread.new do
          Thread.current.report_on_exception = false
          while (cell = waiting.pop)
            again[cell] = run_cell(cell, File.join(folder, "slots"), File.join(folder, "again-#{worker}"))
          end
        end
      end
      yield waiting
      waiting.close
      workers.each(&:join)
      again.each { |cell, files| run_again(cell, files) }
    end
  end

  # The files that failed.
  def run_cell(cell, slots, again)
    @steps.announce(cell.name) do
      run_driver(cell, cell.files, {"HEDDLE_TEST_SLOTS" => slots, "HEDDLE_TEST_AGAIN" => again})
    end
    File.exist?(again) ? File.readlines(again, chomp: true).tap { File.unlink(again) } : []
  end

  def run_again(cell, files)
    return if files.empty?

    @steps.announce("#{cell.name}: what failed beside others, alone") { run_driver(cell, ["--alone", *files], {}) }
  end

  def run_driver(cell, arguments, environment)
    environment = {"HEDDLE_TEST_RECORD" => @record.path, "HEDDLE_BACKEND" => cell.backend,
                   "HEDDLE_NATIVE_DIR" => native_dir(cell),
                   "HEDDLE_TEST_LIBRARIES" => cell.versions, "HEDDLE_TEST_UNTIL" => @until&.to_s, **environment}
    status = @steps.run(cell.name, CELL_SECONDS, *with(cell.ruby, libraries: cell.libraries, yjit: cell.yjit), "ruby",
      "test/support/driver.rb", *arguments,
      environment: environment)
    return if status.success? || status.exitstatus == 1 # the record has each file's own failures

    @summary.broken(cell.name,
      @steps.late?(status) ? "ended by its limit; #{TestSteps::MORE}" : "its driver ended: #{status.inspect}")
  end

  def native_dir(cell)
    if cell.build
      File.dirname(Dir["#{ROOT}/tmp/native/#{cell.build}/#{cell.ruby}.*/heddle.so"].max_by { |path| File.mtime(path) })
    end
  end

  def step(name, seconds, *command, environment: {})
    began = @steps.seconds
    status = @steps.announce(name) { @steps.run(name, seconds, *command, environment: environment) }
    what = @steps.late?(status) ? "#{name}, ended by its limit; #{TestSteps::MORE}" : name
    @summary.check(what, status.success?, @steps.seconds - began)
    status.success?
  end

  # What --newest has found.
  def tell_changes(ruby)
    found = GemVersions.locked("tmp/newest/#{ruby}/Gemfile.lock")
    GemVersions.changes(GemVersions.of(ruby), found).each { |change| @summary.newer("Ruby #{ruby}: #{change}") }
  end

  # Variables for Ruby come after with-ruby, which removes those that are meant for the machine's own Ruby.
  def with(ruby, libraries: nil, yjit: false)
    variables = {**(libraries ? {"RUBYLIB" => libraries.join(":")} : {}), **(yjit ? YJIT : {})}
    ["script/with-ruby", ruby, *(["env", *variables.map { |pair| pair.join("=") }] if variables.any?), "bundle", "exec"]
  end
end

exit TestMatrix.new(ARGV.dup).run if $PROGRAM_NAME == __FILE__
