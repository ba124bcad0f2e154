# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on backends: :one, also: %i[yjit], except: %i[portable]

# Each patch of heddle/ruby_fixes: the program works with it, and the running Ruby has the defect without it. A Ruby
# without the defect must not load the patch.
class RubyFixesTest < Minitest::Test
  include LoopHelpers

  # One program a patch; it prints "right" where the defect is absent.
  PROGRAMS = {
    "io_select" => <<~RUBY,
      reader, writer = IO.pipe
      Heddle.run do
        Heddle.spawn { 4.times { sleep(0.002) } && writer << "x" }
        puts IO.select([reader], nil, nil, 1) ? "right" : "the thread stood still"
      end
    RUBY
    "abandoned_waiters" => <<~RUBY,
      Heddle.run do
        lock = Mutex.new
        Heddle.spawn { lock.synchronize { sleep(0.3) } }
        Heddle.spawn { lock.synchronize {} }
        status = Process.wait2(fork { $stderr.reopen(File::NULL) && exit(7) })[1]
        puts status.exitstatus == 7 ? "right" : "the child ended by \#{status}"
      end
    RUBY
    "kernel_select" => <<~RUBY,
      reader, writer = IO.pipe
      Heddle.run do
        Heddle.spawn { 4.times { sleep(0.002) } && writer << "x" }
        puts select([reader], nil, nil, 1) ? "right" : "the thread stood still"
      end
    RUBY
    "timeout_class" => <<~RUBY,
      require "timeout"
      Heddle.run do
        tries = 0
        Timeout.timeout(0.02) do
          sleep(0.1)
        rescue Timeout::Error
          retry if (tries += 1) < 3
        end
        puts "it could be rescued inside, and came \#{tries} times"
      rescue Timeout::Error
        puts "right"
      end
    RUBY
    "sysread" => <<~RUBY,
      reader, writer = IO.pipe
      Heddle.run do
        Heddle.spawn { sleep(0.002) && writer << "x" }
        puts reader.sysread(1) == "x" ? "right" : "other bytes"
      end
    RUBY
    "thread_join" => <<~RUBY,
      thread = Thread.new { sleep }
      Heddle.run do
        joiner = Heddle.spawn { thread.join(0.02); :timed_out }
        100.times { sleep(0.01) unless joiner.ended? }
        puts joiner.ended? ? "right" : "it waits for ever"
        exit!(0)
      end
    RUBY
    "buffer_pwrite" => <<~'RUBY',
      require "tempfile"
      file = Tempfile.new
      Heddle.run { IO::Buffer.for(+"x").pwrite(file, *(RUBY_VERSION < "3.2" ? [1, 3] : [3, 1])) }
      puts File.size(file.path) == 4 ? "right" : "written to #{File.size(file.path) - 1}"
    RUBY
    "buffer_warning" => <<~RUBY,
      Warning[:experimental] = true
      warnings = []
      Warning.singleton_class.prepend(Module.new { define_method(:warn) { |text, **| warnings << text } })
      reader, writer = IO.pipe
      Heddle.run do
        Heddle.spawn { writer << "x" }
        reader.readpartial(1)
      end
      puts warnings.empty? ? "right" : warnings.inspect
    RUBY
    "mutex_sleep" => <<~RUBY,
      mutex = Thread::Mutex.new
      Heddle.run do
        task = Heddle.spawn { mutex.synchronize { Thread::ConditionVariable.new.wait(mutex) } }
        task.cancel.wait
        puts task.error ? task.error.class : "right"
      ensure
        exit!(0)
      end
    RUBY
    "mutex_reacquire" => <<~RUBY,
      mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
      Heddle.run do
        task = Heddle.spawn { mutex.synchronize { condition.wait(mutex, 0.01) } }
        Heddle.spawn { mutex.synchronize { sleep(0.1) } }
        sleep(0.05)
        task.cancel.wait
        puts task.status == :cancelled ? "right" : "it continued after its wait: \#{task.status}"
      end
    RUBY
    "thread_pass" => <<~RUBY,
      went_on = false
      Heddle.run do
        Heddle.spawn { sleep(0) && went_on = true }
        100.times { Thread.pass }
        puts went_on ? "right" : "no task had its turn"
      end
    RUBY
    "io_close" => <<~RUBY,
      pairs = Array.new(2) { UNIXSocket.pair }
      Heddle.run do
        # One wait of Ruby's own, and one that Ruby does not know of.
        waiters = [pairs[0][0], Heddle::Stream.new(pairs[1][0])].map do |reader|
          Heddle.spawn do
            reader.gets
          rescue IOError
            :closed
          end
        end
        Thread.new { sleep(2); puts "one waits for ever"; exit!(0) }
        pairs.each { |reader, _| reader.close }
        waiters.each { |waiter| waiter.wait(1) }
        puts waiters.all? { |waiter| waiter.ended? && waiter.value == :closed } ? "right" : "one was not woken"
        exit!(0)
      end
    RUBY
    "fork" => <<~'RUBY',
      Heddle.run do
        out, into = IO.pipe
        pid = fork { into << Fiber.scheduler.inspect; exit!(0) }
        Process.wait(pid)
        into.close
        text = out.read
        puts text == "nil" ? "right" : "the child has #{text}"
      end
    RUBY
    "fiber_kill" => <<~RUBY,
      (puts("right") || exit!(0)) unless Fiber.method_defined?(:kill)
      Heddle.run do
        fiber = nil
        Heddle.spawn { (fiber = Fiber.current) && sleep }
        killer = Heddle.spawn { fiber.kill && :went_on }
        Thread.new { sleep(2); puts "the killer never came back"; exit!(0) }
        puts killer.wait(1) ? "right" : "the killer never came back"
        exit!(0)
      end
    RUBY
    "fiber_transfer" => <<~RUBY,
      Heddle.run do
        fiber = nil
        Heddle.spawn { (fiber = Fiber.current) && sleep }
        caller = Heddle.spawn do
          fiber.transfer
        rescue FiberError
          :went_on
        end
        Thread.new { sleep(2); puts "the caller never came back"; exit!(0) }
        puts caller.wait(1) ? "right" : "the caller never came back"
        exit!(0)
      end
    RUBY
    "fiber_raise" => <<~RUBY
      Heddle.run do
        fiber = nil
        task = Heddle.spawn { (fiber = Fiber.current) && sleep }
        went_on = false
        caller = Heddle.spawn do
          fiber.raise(IOError, "raised")
        ensure
          went_on = true
        end
        Thread.new { sleep(2); puts(went_on ? "right" : "the caller never came back"); exit!(0) }
        $stderr.reopen(File::NULL)
        caller.wait(1)
        task.wait(0.5)
        puts went_on ? "right" : "the caller never came back"
        exit!(0)
      end
    RUBY
  }.freeze

  # Other tests show these defects.
  ELSEWHERE = {"interrupt_proxy" => "hazards/contract_hooks_test.rb"}.freeze

  PROGRAMS.each do |patch, program|
    define_method("test_#{patch}_is_mended") do
      assert_equal "right", assert_child(program).lines.last.chomp
    end

    define_method("test_#{patch}_is_loaded_where_the_defect_shows") do
      text = in_child(program, env: {"HEDDLE_RUBY_FIXES" => "off"}).out.lines.last.to_s.chomp
      if loaded?(patch)
        refute_equal "right", text,
          "Ruby #{RUBY_VERSION} p#{RUBY_PATCHLEVEL} does not have the defect: the patch need not be loaded"
      else
        assert_equal "right", text,
          "Ruby #{RUBY_VERSION} p#{RUBY_PATCHLEVEL} has the defect, and the patch is not loaded"
      end
    end
  end

  def test_every_patch_has_its_program
    patches = Dir["#{ROOT}/lib/heddle/ruby_fixes/*.rb"].map { |path| File.basename(path, ".rb") }
    assert_equal patches.sort, (PROGRAMS.keys + ELSEWHERE.keys).sort
    ELSEWHERE.each_value { |file| assert File.exist?("#{ROOT}/test/#{file}"), file }
  end

  # The table of doc/ruby.md has them all, and on the Rubies on which they are loaded.
  def test_the_table_of_all_patches
    rows = File.read("#{ROOT}/doc/ruby.md").scan(/^\| (`.*?`) \| (.*?) \|/)
    told = rows.flat_map { |files, rubies| files.scan(/\w+/).map { |file| [file, rubies] } }.to_h
    assert_equal (PROGRAMS.keys + ELSEWHERE.keys + %w[address_names connect look_ups]).sort, told.keys.sort
    PROGRAMS.each_key { |patch| assert_equal loaded?(patch), told_of?(told[patch]), patch }
  end

  # Where Heddle is not in charge, a patch keeps Ruby's behaviour.
  def test_patches_leave_other_code_alone
    out = assert_child(<<~RUBY)
      thread = Thread.new { sleep }
      puts thread.join(0.01).inspect
      reader, writer = IO.pipe
      puts IO.select([reader], nil, nil, 0.01).inspect
      mutex = Mutex.new
      mutex.synchronize { [mutex.sleep(0.001), puts(mutex.owned?)] }
      waiter = Thread.new { reader.read(1) rescue $!.class }
      Thread.pass until waiter.stop?
      reader.close
      puts waiter.value
      fiber = Fiber.new { Fiber.yield rescue $!.message }
      fiber.resume
      puts fiber.raise(IOError, "plain")
      puts Process.wait2(fork { exit!(3) }).last.exitstatus
    RUBY
    assert_equal ["nil", "nil", "true", "IOError", "plain", "3"], out.lines(chomp: true)
  end

  private

  def told_of?(rubies)
    gem, edge, version = rubies.match(/\A(timeout )?(before|from) ([\d.]+)\z/)&.captures
    return rubies == "all" unless edge

    running = gem ? assert_child("puts Timeout::VERSION") : RUBY_VERSION
    (Gem::Version.new(running) < Gem::Version.new(version)) == (edge == "before")
  end

  def loaded?(patch)
    # In a child, like the programs: the gems of this process may be newer than Ruby's own.
    @@loaded ||= assert_child("puts $LOADED_FEATURES.grep(%r{/heddle/ruby_fixes/})").lines
      .map { |line| File.basename(line.chomp, ".rb") }
    @@loaded.include?(patch)
  end
end
