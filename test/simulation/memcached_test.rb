# frozen_string_literal: true

require "test_helper"
require "support/simulated"
require "support/simulated_memcached"
require "heddle/memcached"

runs_on rubies: :ends

# A ring of memcached servers that die, are parted, come back and answer slowly, among callers that are cancelled and
# run out of time.
class SimulatedMemcachedTest < Minitest::Test
  include Simulated

  def test_a_ring_that_falls_apart
    ended = Hash.new(0)
    simulate(80) do |world|
      stall = (world.draw < 0.5) ? 0.0 : world.draw(0.0..0.002)
      Model.new(world, **bad_link(world), stall: stall).run.each { |how, count| ended[how] += count }
    end
    warn ended if ENV["SHOW"]
    assert_operator ended[:done], :>, ended.values.sum / 4
    assert_empty %i[cancelled DeadlineExceeded NoServerAvailable] - ended.keys
  end

  # What callers do to themselves is no failure of a server.
  def test_servers_are_not_blamed_for_their_callers
    ended = Hash.new(0)
    simulate(40) do |world|
      Model.new(world, healthy: true).run.each { |how, count| ended[how] += count }
    end
    assert_empty %i[cancelled DeadlineExceeded done] - ended.keys
    assert_equal 3, ended.size
  end

  # One world.
  class Model
    include TestHelpers

    NAMES = %w[one.example two.example three.example].freeze
    PORT = 11_211
    TASKS = (4..24) # more than there are connections: they share these
    PLACES = (1..2)
    OPERATIONS = %i[get get get set set set_multi get_multi delete count count add append pipeline fetch].freeze
    KEYS = Array.new(8) { |n| "k#{n}" }.freeze
    LONG = "." * 40_000 # is sent without a copy

    def initialize(world, healthy: false, **link)
      @world, @healthy, @link = world, healthy, link
      @log = SimulatedMemcached::Log.new
      @servers = NAMES.to_h { |name| [name, SimulatedMemcached.new(world, @log)] }
      @servers.each_value { |server| server.slow = draw(0.0..0.3) }
      @servers.each_value { |server| server.silent = draw(0.0..0.05) } unless healthy
      @number = 0
      @making = Hash.new(0)
      @blamed = [] # a deadline would replace an error that is raised where the blame comes
    end

    # @return [Hash{Symbol => Integer}] how operations ended
    def run
      before = descriptor_count
      @cache = Heddle::Memcached.new(NAMES, pool: draw(PLACES), timeout: @healthy ? 60 : draw(0.3..3.0),
        failures: draw(1..3), failover: draw < 0.7, max_retry_after: 8)
      @hosts = NAMES.to_h { |name| [name, @world.host(name) { |host| start(host) }] }
      NAMES.each { |name| @world.link(name, **@link) }
      watch_blame if @healthy
      ended = among_interrupts
      come_back
      @cache.close
      sleep 3600
      check_descriptors(before) if @link.fetch(:stall, 0).zero?
      check_once
      ended
    end

    private

    def draw(...) = @world.draw(...)

    def one_of(list) = list.sample(random: @world.random)

    def equal(expected, value)
      raise "#{value.inspect} was the answer for #{expected.inspect}" unless value == expected
    end

    # The client's own view of its servers.
    def ring = @cache.instance_variable_get(:@servers)

    def watch_blame
      blamed = @blamed
      ring.each { |server| server.define_singleton_method(:failed) { |error| blamed << error } }
    end

    # ---- what goes wrong

    def start(host)
      host.tcp(PORT) { |socket| @servers[host.name].serve(socket) }
    end

    def among_interrupts
      ended = Hash.new(0)
      @tasks = Array.new(draw(TASKS)) { Heddle.spawn { turns(ended) } }
      interrupters = [Heddle.spawn { loop { sleep(draw(0.0..4.0)) && one_of(@tasks).cancel } }]
      interrupters << Heddle.spawn { loop { trouble } } unless @healthy
      @tasks.each(&:wait)
      interrupters.each(&:cancel).each(&:wait)
      @tasks.each { |task| raise task.error if task.status == :failed }
      ended[:cancelled] = @tasks.count { |task| task.status == :cancelled }
      ended
    end

    def trouble
      sleep(draw(0.5..5.0))
      name = one_of(NAMES)
      (draw < 0.5) ? crash(name) : part(name)
    end

    def crash(name)
      @hosts[name].close(PORT)
      @servers[name].die
      sleep(draw(0.0..2.0))
    ensure
      start(@hosts[name])
    end

    def part(name)
      @world.part(name)
      sleep(draw(0.0..2.0))
    ensure
      @world.heal(name)
    end

    # ---- what callers do

    def turns(ended)
      6.times do
        sleep(draw(0.0..1.0))
        ended[turn] += 1
      end
    end

    def turn
      Heddle.deadline((draw < 0.3) ? draw(0.0..0.5) : nil) { send(one_of(OPERATIONS)) }
      :done
    rescue Timeout::Error, IOError, SystemCallError => error
      error.class.name[/\w+\z/].to_sym
    end

    def value_for(key, long: false)
      "#{key} #{LONG if long && draw < 0.02}#{key}:#{@number += 1}"
    end

    # A value is what a server has answered for this key since the call began.
    def read(key)
      start = @world.now
      check_read(key, yield, start)
    end

    def check_read(key, value, start)
      return if @log.answers[key].any? { |time, answer| time >= start && answer == value }

      raise "#{value.inspect} is no answer for #{key} since #{start}"
    end

    # What is said to be stored was stored since the call began.
    def write(pairs)
      start = @world.now
      return unless yield

      pairs.each { |key, value| check_written(key, value, start) }
    end

    def check_written(key, value, start)
      return if @log.stores[key].any? { |time, stored| time >= start && stored == value }

      raise "#{value[-9..]} was not stored"
    end

    def get
      key = one_of(KEYS)
      read(key) { @cache.get(key) }
    end

    def set
      key = one_of(KEYS)
      value = value_for(key, long: true)
      write(key => value) { @cache.set(key, value, raw: true) }
    end

    def set_multi
      pairs = KEYS.sample(draw(1..8), random: @world.random).to_h { |key| [key, value_for(key)] }
      write(pairs) { @cache.set_multi(pairs, raw: true).nil? }
    end

    def get_multi
      keys = KEYS.sample(draw(1..8), random: @world.random)
      start = @world.now
      found = @cache.get_multi(*keys)
      keys.each { |key| check_read(key, found[key], start) }
    end

    def delete
      @cache.delete(one_of(KEYS), stale_for: one_of([nil, 30]))
    end

    # By a number that is used once.
    def count
      by = (@number += 1)
      key = "n#{draw(0..2)}"
      got = @cache.incr(key, by, initial: (draw < 0.5) ? 0 : nil)
      equal(1, @log.once["by #{by}"]) if got
    end

    def add
      key = one_of(KEYS)
      value = value_for(key)
      write(key => value) { @cache.add(key, value, raw: true) }
    end

    def append
      @cache.append(one_of(KEYS), " +#{@number += 1}")
    end

    def pipeline
      key, other, counter = one_of(KEYS), one_of(KEYS), "n#{draw(0..2)}"
      value = value_for(other)
      by = (@number += 1)
      start = @world.now
      counts = draw < 0.5
      results = @cache.pipelined do |batch|
        batch.get(key)
        batch.set(other, value)
        batch.incr(counter, by, initial: 5) if counts
      end
      check_read(key, results[0], start)
      check_written(other, value, start)
      equal(true, results[1])
      equal([Integer, 1], [results[2].class, @log.once["by #{by}"]]) if counts
    end

    # One caller at a time makes the value, while no server is lost.
    def fetch
      key = "f#{draw(0..1)}"
      value = @cache.fetch(key, ttl: 60) { make(key) }
      equal(key, value[/\Af\d/])
    end

    def make(key)
      @making[key] += 1
      raise "#{@making[key]} make #{key}" if @healthy && @making[key] > 1

      sleep(draw(0.0..2.0))
      value_for(key)
    ensure
      @making[key] -= 1
    end

    # ---- the end

    # Every key has its server again, and every server all its places.
    def come_back
      NAMES.each { |name| @world.link(name) }
      @servers.each_value { |server| server.slow = server.silent = 0.0 }
      sleep 60
      KEYS.each { |key| store_at_last(key) }
      ring.each { |server| equal(server.idle_connections, server.open_connections) }
    end

    def store_at_last(key)
      value = value_for(key)
      write(key => value) { @cache.set(key, value, raw: true) }
      equal(value, @cache.get(key))
    rescue Timeout::Error, IOError, SystemCallError
      sleep 0.5 # its connection has stalled, or the server is not tried again yet
      retry
    end

    # The GC may have closed some of an earlier world's, whose connections had stalled.
    def check_descriptors(before)
      raise "#{descriptor_count - before} descriptors are left" if descriptor_count > before
    end

    def check_once
      twice = @log.once.select { |what, count| count > 1 && what.match?(/\A(\+|by )/) }
      raise "ran more than once: #{twice}" unless twice.empty?
      raise "a server was blamed for #{@blamed}" unless @blamed.empty?
    end
  end
end
