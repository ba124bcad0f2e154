# frozen_string_literal: true

require "test_helper"
require "json"
require "support/loop_helpers"
require "support/dead_network"

# Hosts that do not answer and names that resolve slowly, with one second for each connect: the deadline holds, a
# working address behind a silent one is found, and other tasks of the thread are not held up.
class UnansweredTest < Minitest::Test
  include LoopHelpers
  include DeadNetworkHelpers

  ZONE = {
    "one.test" => {"a" => ["192.0.2.1"]},
    "two.test" => {"a" => %w[192.0.2.1 192.0.2.2]},
    "both.test" => {"a" => ["192.0.2.1"], "aaaa" => ["2001:db8::1"]},
    "six-dead.test" => {"a" => ["127.0.0.1"], "aaaa" => ["2001:db8::1"]},
    "six-late.test" => {"a" => ["192.0.2.1"], "aaaa" => ["2001:db8::1"], "aaaa_delay" => 2},
    "six-late-four-works.test" => {"a" => ["127.0.0.1"], "aaaa" => ["2001:db8::1"], "aaaa_delay" => 2},
    "four-late-six-works.test" => {"a" => ["192.0.2.1"], "aaaa" => ["::1"], "a_delay" => 2},
    "late.test" => {"a" => ["127.0.0.1"], "aaaa" => ["::1"], "delay" => 2},
    "silent.test" => {"failure" => "silent"},
    "ten.test" => {"a" => (1..10).map { |n| "192.0.2.#{n}" }},
    "eleventh-works.test" => {"a" => ["127.0.0.1"], "aaaa" => (1..3).map { |n| "2001:db8::#{n}" }}
  }.freeze

  # How long each takes at least and at most, in seconds, and whether it connects in the end.
  ROWS = {
    "192.0.2.1" => [0.9..1.5, false],
    "one.test" => [0.9..1.5, false],
    "two.test" => [0.9..1.5, false],
    "both.test" => [0.9..1.5, false],
    "six-dead.test" => [0.2..0.75, true],
    "six-late.test" => [0.9..1.5, false],
    "six-late-four-works.test" => [0.04..0.5, true],
    "four-late-six-works.test" => [0.0..0.5, true],
    "late.test" => [0.9..1.5, false],
    "silent.test" => [0.9..1.5, false],
    "ten.test" => [0.9..1.5, false],
    "eleventh-works.test" => [0.2..0.75, true]
  }.freeze

  # Ways to a connection within a second.
  WAYS = {
    "Net::HTTP" => "Net::HTTP.start(host, port, nil, nil, open_timeout: 1) { |http| http.get('/').body }",
    "TCPSocket" => "Heddle.deadline(1) { TCPSocket.new(host, port).close }",
    "Socket.tcp" => "Heddle.deadline(1) { Socket.tcp(host, port) { |socket| socket.remote_address.ip_address } }"
  }.freeze

  PROGRAM = <<~'RUBY'
    require "json"
    require "net/http"

    def now = Heddle::Clock.now

    servers = [TCPServer.new("127.0.0.1", 0)]
    PORT = servers[0].addr[1]
    servers << TCPServer.new("::1", PORT)
    ACCEPTED = Hash.new(0)
    servers.each do |server|
      Thread.new do
        loop do
          connection = server.accept
          Thread.new do
            head = +""
            head << (connection.readpartial(1000) rescue break) until head.end_with?("\r\n\r\n")
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok") unless head.empty?
          rescue SystemCallError, IOError
            nil
          ensure
            connection.close
          end
        end
      end
    end

    def try(host, way)
      port = PORT
      start = now
      outcome = begin
        eval(way)
        true
      rescue Timeout::Error, SystemCallError, IOError => error
        error.class.name
      end
      [outcome, now - start]
    end

    # The longest time that the fiber was late by.
    def beside_a_heartbeat
      longest = 0.0
      beating = true
      heart = Heddle.spawn do
        last = now
        while beating
          sleep 0.001
          longest = [longest, now - last].max
          last = now
        end
      end
      yield
      beating = false
      heart.wait
      longest
    end
  RUBY

  WAYS.each do |name, way|
    define_method("test_#{name.tr(":.", "_").downcase}_in_tasks") do
      check do
        run_rows(way, <<~RUBY)
          Heddle.run do
            gap = beside_a_heartbeat do
              rows.map { |host| [host, Heddle.spawn { try(host, way) }] }
                .each { |host, task| answers[host] = task.value }
            end
          end
        RUBY
      end
    end
  end

  def test_in_plain_threads_inside_a_deadline
    %w[TCPSocket Socket.tcp].map do |name|
      in_background do
        check do
          run_rows(WAYS[name], <<~RUBY)
            gap = 0
            rows.map { |host| [host, Thread.new { try(host, way) }] }
              .each { |host, thread| answers[host] = thread.value }
          RUBY
        end
      end
    end.each(&:value)
  end

  # The reason for the patch: without it, two addresses that do not answer stop every task on Ruby 3.4, or, before,
  # take the whole second; on Ruby 3.1.2, which gives the second address a second of its own, two.
  def test_without_the_patch_dead_addresses_stop_tasks_or_take_longer
    results = run_rows(WAYS["Net::HTTP"], <<~RUBY, hosts: ["two.test"], env: {"HEDDLE_RUBY_FIXES" => "off"})
      Heddle.run { gap = beside_a_heartbeat { answers["two.test"] = try("two.test", way) } }
    RUBY
    if ruby_at_least?("3.4")
      assert_operator results["gap"], :>, 1
    else
      assert_operator results["gap"], :<, stretched(1)
      assert_operator results["answers"]["two.test"].last, :>, (RUBY_VERSION == "3.1.2") ? 1.9 : 0.9
    end
  end

  def test_without_the_patch_a_working_address_is_found_late
    skip "Ruby 3.4 and later have that by themselves" if ruby_at_least?("3.4")

    results = run_rows(WAYS["Net::HTTP"], <<~RUBY, hosts: ["six-dead.test"], env: {"HEDDLE_RUBY_FIXES" => "off"})
      Heddle.run { gap = 0; answers["six-dead.test"] = try("six-dead.test", way) }
    RUBY
    assert_operator results["answers"]["six-dead.test"].last, :>, 0.9, results
  end

  # Each look-up takes a thread for each family, for as long as the C library asks, which is longer than any caller
  # waits.
  def test_unanswered_names_leave_threads_for_other_look_ups
    bursts = {
      "one name" => %w[silent.test Silent.test SILENT.TEST] * 100,
      "many names" => Array.new(40) { |number| "silent#{number}.test" }
    }
    zone = (0...40).to_h { |number| ["silent#{number}.test", {"failure" => "silent"}] }
    bursts.each do |what, names|
      took = assert_child(<<~RUBY, launcher: dead_network(zone: {**ZONE, **zone}).launcher, timeout: 50)
        def now = Heddle::Clock.now
        server = TCPServer.new("127.0.0.1", 0)
        port = server.addr[1]
        Heddle.run do
          tasks = #{names.inspect}
            .map { |name| Heddle.spawn { Heddle.deadline(20) { TCPSocket.new(name, port) } rescue nil } }
          sleep(0.1)
          start = now
          TCPSocket.new("eleventh-works.test", port).close
          puts now - start
          tasks.each(&:cancel)
        end
        exit!(0) # the threads at those names would go on
      RUBY
      assert_operator took.to_f, :<, stretched(3), what
    end
  end

  private

  def run_rows(way, code, hosts: ROWS.keys, env: {})
    network = dead_network(zone: ZONE)
    outcome = in_child(<<~RUBY, launcher: network.launcher, timeout: 50, env: {"RUBYOPT" => nil, **env})
      #{PROGRAM}
      rows = #{hosts.inspect}
      way = #{way.inspect}
      answers = {}
      gap = nil
      #{code}
      puts JSON.generate("gap" => gap, "answers" => answers)
    RUBY
    assert outcome.status.success?, outcome.out + outcome.err
    JSON.parse(outcome.out)
  end

  # The machine may have been busy: late results are measured again. Early ones, too: where the answer for IPv6 comes
  # some hundredths of a second after that for IPv4, the latter's address is tried first.
  def check
    faults = nil
    3.times { break if (faults = faults_of(yield)).empty? }
    assert_empty faults
  end

  def faults_of(results)
    faults = ROWS.filter_map do |host, (seconds, connects)|
      outcome, took = results["answers"][host]
      assert_equal connects, outcome == true, "#{host}: #{outcome} after #{took} s"
      "#{host}: #{outcome} after #{took} s" unless (seconds.begin..stretched(seconds.end)).cover?(took)
    end
    faults << "the other tasks had to wait for #{results["gap"]} s" if results["gap"] >= stretched(0.1)
    faults
  end
end
