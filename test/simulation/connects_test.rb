# frozen_string_literal: true

require "test_helper"
require "support/simulated"
require "socket"

runs_on rubies: :ends

# Connects to names with several addresses, of which some refuse, some hang, some are nobody's, and some accept.
class SimulatedConnectsTest < Minitest::Test
  include Simulated

  def test_one_address_that_accepts_is_enough
    ended = Hash.new(0)
    simulate(150) { |world| Model.new(world).run.each { |how| ended[how] += 1 } }
    warn ended if ENV["SHOW"]
    assert_empty %i[connected refused unreachable timeout unknown late cancelled] - ended.keys
  end

  # One world.
  class Model
    include TestHelpers

    PORT = 80
    NAME = "service.example"
    # How an address behaves, and the error of a connect to it.
    FATES = {accepts: nil, refuses: Errno::ECONNREFUSED, hangs: Errno::ETIMEDOUT, nobody: Errno::EHOSTUNREACH}.freeze
    LOOK_UP = 0.021  # the most seconds
    GRACE = 0.05     # that IPv4 waits for IPv6
    STAGGER = 0.25   # between two connects
    KERNEL = 127     # until it gives up
    TIMEOUTS = [Errno::ETIMEDOUT, *(IO::TimeoutError if defined?(IO::TimeoutError))].freeze

    def initialize(world)
      @world = world
      @open = Hash.new(0) # connections by their server's address
    end

    # @return [Array<Symbol>] how connects ended
    def run
      before = descriptor_count
      outcomes = Array.new(3) { |turn| one(turn) }
      sleep 2 * KERNEL # what was given up is over then
      raise "#{descriptor_count - before} descriptors are left" if descriptor_count > before

      outcomes
    end

    private

    def draw(...) = @world.draw(...)

    def one_of(list) = list.sample(random: @world.random)

    def one(turn)
      @fates = Array.new(draw(0..4)) { |number| address(turn, number) }.to_h
      @world.name(NAME, *@fates.keys.shuffle(random: @world.random))
      case draw
      when 0.0..0.15 then among_interrupts
      else alone
      end
    end

    # @return [(String, Array(Symbol, Float))] the address, its fate, and the seconds of a handshake
    def address(turn, number)
      address = (draw < 0.5) ? "10.1.#{turn}.#{number + 1}" : "fd00::#{turn + 1}:#{number + 1}"
      fate = one_of(FATES.keys)
      latency = draw(0.001..0.4)
      return [address, [fate, 0]] if fate == :nobody

      host = @world.host(address, address)
      @world.link(address, latency: latency)
      host.tcp(PORT) { |socket| serve(socket, address) } if fate == :accepts
      @world.part(address) if fate == :hangs
      [address, [fate, 2 * latency]]
    end

    def serve(socket, address)
      @open[address] += 1
      socket.write("#{address}\n")
      socket.read
    ensure
      @open[address] -= 1
    end

    # ---- with nobody who disturbs

    def alone
      limit = one_of([nil, nil, draw(0.05..6.0)])
      start = @world.now
      socket = connect(limit)
      check_connected(socket, @world.now - start, limit)
      :connected
    rescue SystemCallError, IOError, SocketError => error
      check_failed(error, @world.now - start, limit)
    end

    def connect(limit)
      case draw
      when 0.0..0.4 then TCPSocket.new(NAME, PORT, connect_timeout: limit)
      when 0.4..0.8 then Socket.tcp(NAME, PORT, connect_timeout: limit)
      else limit ? Socket.tcp(NAME, PORT, connect_timeout: limit) : TCPSocket.open(NAME, PORT)
      end
    end

    def fates = @fates.values.map(&:first)

    # The most seconds until an address has accepted that was tried last.
    def most
      quickest = @fates.values.filter_map { |fate, handshake| handshake if fate == :accepts }.min
      quickest && LOOK_UP + GRACE + (STAGGER * (@fates.size - 1)) + quickest
    end

    def check_connected(socket, seconds, limit)
      raise "nobody could connect" unless most
      raise "it took #{seconds} s instead of #{most}" if seconds > most + 0.001
      raise "it took #{seconds} s, and had #{limit}" if limit && seconds > limit + 0.001

      address = socket.gets.chomp
      raise "not #{address}'s" unless socket.remote_address.ip_address == address

      sleep 1 # others have closed
      open = @open.select { |_, count| count > 0 }
      raise "open: #{open}" unless open == {address => 1}
    ensure
      socket.close
    end

    def check_failed(error, seconds, limit)
      in_time = limit.nil? || (most && limit > most) || false
      raise error if most && in_time
      return unknown(error) if @fates.empty?

      if limit && seconds >= limit - 0.001 && TIMEOUTS.include?(error.class)
        raise "it took #{seconds} s, and had #{limit}" if seconds > limit + 0.001

        return :timeout
      end
      raise error if most # one was still to answer

      expected = fates.filter_map { |fate| FATES[fate] }
      expected.concat(TIMEOUTS) if fates.include?(:hangs)
      raise error unless expected.include?(error.class)
      raise "it took #{seconds} s" if fates.include?(:hangs) && seconds < KERNEL - 1

      {Errno::ECONNREFUSED => :refused, Errno::EHOSTUNREACH => :unreachable}.fetch(error.class, :given_up)
    end

    def unknown(error)
      raise error unless error.is_a?(SocketError)

      :unknown
    end

    # ---- cancelled, and out of time

    def among_interrupts
      if draw < 0.5
        late
      else
        task = Heddle.spawn { alone }
        sleep(draw(0.0..1.0))
        task.cancel.wait
        raise task.error if task.status == :failed

        (task.status == :cancelled) ? :cancelled : task.value
      end
    end

    def late
      seconds = draw(0.0..1.0)
      start = @world.now
      Heddle.deadline(seconds) { connect(nil).close }
      :connected
    rescue Heddle::DeadlineExceeded
      raise "it took #{@world.now - start} s, and had #{seconds}" if @world.now - start > seconds + 0.001

      :late
    rescue SystemCallError, IOError, SocketError
      :failed
    end
  end
end
