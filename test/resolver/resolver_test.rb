# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/dead_network"

# The look-ups themselves: shared, cached, abandoned, and which process asks the name server.
class ResolverTest < Minitest::Test
  include LoopHelpers
  include DeadNetworkHelpers

  ZONE = {
    "host.test" => {"a" => ["192.0.2.5"], "delay" => 0.2},
    "other.test" => {"a" => ["192.0.2.6"]},
    "nothing.test" => {},
    "failing.test" => {"failure" => "servfail"}
  }.freeze

  HELPERS = <<~RUBY
    def look_up(name)
      Fiber.scheduler.address_resolve(name)
    rescue SocketError => error
      error.message
    end
    def settle(milliseconds = 2000)
      milliseconds.times { yield ? break : sleep(0.001) }
    end
    def resolver_threads = Dir["/proc/self/task/*/comm"].size
  RUBY

  def test_simultaneous_look_ups_of_a_name_share_the_answer
    out, questions = inside(<<~RUBY)
      tasks = Array.new(100) { Heddle.spawn { look_up("host.test") } }
      puts tasks.map(&:value).uniq.inspect
    RUBY
    assert_equal "[[\"192.0.2.5\"]]\n", out
    assert_equal ["a host.test", "aaaa host.test"], questions.sort
  end

  def test_a_cancelled_look_up_does_not_harm_the_others
    out, questions = inside(<<~RUBY)
      tasks = Array.new(10) { Heddle.spawn { look_up("host.test") } }
      sleep 0.02
      tasks.each_with_index { |task, n| task.cancel if n.even? }
      puts tasks.each(&:wait).map(&:status).inspect
    RUBY
    assert_equal "#{(%i[cancelled completed] * 5).inspect}\n", out
    assert_equal 2, questions.size
  end

  def test_an_abandoned_look_up_is_not_begun
    names = Array.new(200) { |n| "silent-#{n}.test" }
    out, questions = inside(<<~RUBY, zone: ZONE.merge(names.to_h { |name| [name, {"failure" => "silent"}] }))
      tasks = #{names.inspect}.map { |name| Heddle.spawn { look_up(name) } }
      settle { resolver_threads > 32 } # a little later the names count as slow, and get more
      puts resolver_threads
      tasks.each(&:cancel).each(&:wait)
      puts tasks.map(&:status).uniq.inspect, Fiber.scheduler.statistics[:timers]
      exit!(0)
    RUBY
    lines = out.lines(chomp: true)
    assert_operator lines[0].to_i, :<, 40, "too many threads"
    assert_equal ["[:cancelled]", "0"], lines[1..]
    # On a slow machine the C library may have begun to repeat them, with what resolv.conf has it add.
    assert_operator questions.map { |question| question[/\A\S+ silent-\d+/] }.uniq.size, :<=, 64
  end

  def test_idle_threads_of_the_resolver_end
    skip "ThreadSanitizer begins a thread of its own with the first of the process" if ENV.key?("TSAN_OPTIONS")
    out, = inside(<<~RUBY)
      before = resolver_threads
      10.times.map { |n| Heddle.spawn { look_up("nobody-\#{n}.test") } }.each(&:value)
      puts resolver_threads > before
      settle(5000) { resolver_threads == before }
      puts resolver_threads == before, look_up("other.test").inspect
    RUBY
    assert_equal ["true", "true", '["192.0.2.6"]'], out.lines(chomp: true)
  end

  def test_a_deadline_covers_a_look_up
    out, = inside(<<~RUBY)
      began = Heddle::Clock.now
      begin
        Heddle.deadline(0.05) { look_up("host.test") }
      rescue Heddle::DeadlineExceeded
        puts Heddle::Clock.now - began < 0.15
      end
      puts look_up("host.test").inspect
    RUBY
    assert_equal "true\n[\"192.0.2.5\"]\n", out
  end

  def test_answers_are_cached_for_the_configured_time
    out, questions = inside(<<~RUBY)
      Heddle.resolver_cache = 60
      3.times { %w[host nothing nobody failing].each { |name| look_up("\#{name}.test") } }
      Heddle.resolver_cache = 0.05
      puts Heddle.resolver_cache
      2.times { look_up("other.test") && sleep(0.1) }
      Heddle.resolver_cache = nil
      p Heddle.resolver_cache, look_up("host.test"), look_up("nothing.test")
    RUBY
    assert_equal ["0.05", "nil", '["192.0.2.5"]', '"getaddrinfo: No address associated with hostname"'],
      out.lines(chomp: true)
    counts = questions.grep(/\Aa /).tally
    assert_equal [2, 2, 1, 2], counts.values_at("a host.test", "a nothing.test", "a nobody.test", "a other.test")
    assert_operator counts["a failing.test"], :>=, 3, "a failure to ask is not cached"
  end

  def test_nothing_is_cached_by_default
    _, questions = inside('3.times { look_up("other.test") }')
    assert_equal 3, questions.count("a other.test")
  end

  # Two thousand answers, of which 1024 are cached: the first are asked for again, the last are not.
  def test_the_cache_is_bounded
    _, questions = inside(<<~RUBY)
      Heddle.resolver_cache = 60
      1100.times { |n| look_up("nobody-\#{n}.test") }
      look_up("nobody-0.test")
      look_up("nobody-1099.test")
    RUBY
    assert_equal 2, questions.count("a nobody-0.test")
    assert_equal 1, questions.count("a nobody-1099.test")
  end

  def test_invalid_cache_times
    assert_raises(ArgumentError) { Heddle.resolver_cache = -1 }
    assert_raises(TypeError) { Heddle.resolver_cache = "long" }
    assert_nil Heddle.resolver_cache
  end

  # As getaddrinfo reads it: in any case, with every name of a line and no word of a comment, and again after a
  # change.
  def test_the_hosts_file
    network = {
      hosts: {
        "127.0.0.7" => ["seven", "Seven.Test"],
        "::7" => ["seven6", "# remark"],
        "127.0.0.8" => ["both"],
        "::8" => ["both"]
      }
    }
    program = <<~RUBY
      %w[seven SEVEN seven.test seven6 both localhost].each do |name|
        puts Addrinfo.getaddrinfo(name, 80, nil, :STREAM).map(&:ip_address).inspect
      end
      puts((Addrinfo.getaddrinfo("remark", 80).size rescue "none"))
    RUBY
    out, questions = inside(program, **network)
    stock = assert_child(program, launcher: dead_network(zone: ZONE, **network).launcher)
    assert_equal stock, out
    assert_equal 7, out.lines.size
    assert_empty questions.grep_v(/remark/)
  end

  def test_a_hosts_file_that_changes_is_read_again
    out, = inside(<<~RUBY, hosts: {"127.0.0.7" => ["seven"]})
      puts look_up("seven").inspect
      File.write("/etc/hosts", "127.0.0.77 seven\\n")
      puts look_up("seven").inspect
    RUBY
    assert_equal ['["127.0.0.7"]', '["127.0.0.77"]'], out.lines(chomp: true)
  end

  # Like a file that is truncated between the look at its size and the reading. Files of sysfs always are.
  def test_a_hosts_file_shorter_than_its_stated_size
    out, = inside(<<~RUBY)
      require #{File.expand_path("../support/native_calls", __dir__).dump}
      system("umount", "/etc/hosts", exception: true)
      system("mount", "--bind", "/sys/devices/system/cpu/online", "/etc/hosts", exception: true)
      puts File.size("/etc/hosts") > File.read("/etc/hosts").size
      NativeCalls.errno = Errno::EINTR::Errno # of a call that was interrupted before
      puts look_up("other.test").inspect
    RUBY
    assert_equal ["true", '["192.0.2.6"]'], out.lines(chomp: true)
  end

  def test_a_configuration_without_the_hosts_file_asks_the_name_server
    zone = {"seven" => {"a" => ["192.0.2.7"]}}
    out, questions = inside('puts look_up("seven").inspect',
      zone: zone, hosts: {"127.0.0.7" => ["seven"]}, nsswitch: "dns files")
    assert_equal "[\"192.0.2.7\"]\n", out
    refute_empty questions
  end

  # The threads, the lock, the answers and the C library's socket to the name server belong to the parent: a child
  # that also reads from that socket takes the answers away, and both have to ask again after five seconds.
  def test_in_a_child_of_fork_while_look_ups_go_on
    out, = inside(<<~RUBY)
      began = Heddle::Clock.now
      Heddle.resolver_cache = 60
      going_on = Array.new(5) { Heddle.spawn { look_up("host.test") } }
      reader, writer = IO.pipe
      sleep 0.01
      pid = fork do
        Heddle.run { writer.puts(look_up("other.test").inspect) }
        exit!(0)
      end
      writer.close
      puts reader.read, going_on.map(&:value).uniq.inspect
      Process.wait(pid)
      puts Heddle::Clock.now - began < 4.5
    RUBY
    assert_equal ['["192.0.2.6"]', '[["192.0.2.5"]]', "true"], out.lines(chomp: true)
  end

  # Reads, writes and compares what several threads look up at once.
  def test_several_threads_with_loops_of_their_own
    out, questions = inside(<<~RUBY)
      threads = Array.new(4) do
        Thread.new do
          Heddle.run do
            Array.new(50) { |n| Heddle.spawn { look_up(n.odd? ? "host.test" : "other.test") } }.map(&:value).uniq
          end
        end
      end
      puts threads.map(&:value).uniq.inspect
    RUBY
    assert_equal "[[[\"192.0.2.6\"], [\"192.0.2.5\"]]]\n", out
    assert_operator questions.count("a host.test"), :<=, 4
  end

  private

  # What the code prints inside a run, and what the name server was asked.
  def inside(code, zone: ZONE, **options)
    network = dead_network(zone: zone, **options)
    out = assert_child("#{HELPERS}Heddle.run do\n#{code}\nend", launcher: network.launcher)
    [out, network.questions]
  end
end
