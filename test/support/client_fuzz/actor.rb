# frozen_string_literal: true

require "zlib"
require_relative "operations/db"
require_relative "operations/memcached"
require_relative "operations/http"
require_relative "operations/gems"
require_relative "operations/shared"

module ClientFuzz
  # A task or a thread that runs one operation after another.
  class Actor
    # Raised by Thread#raise.
    class Interrupt < StandardError; end

    # Raised by Timeout.timeout.
    class LimitPassed < StandardError; end

    # Raised by an operation's own block.
    class OnPurpose < StandardError; end

    include Operations::DB
    include Operations::Memcached
    include Operations::HTTP
    include Operations::Gems
    include Operations::Shared

    LIMIT = 3.0 # seconds that an operation may take
    SHORT = 0.03 # the most seconds before an interrupt

    LOST = [Errno::ECONNRESET, Errno::EPIPE, Errno::ECONNREFUSED, Errno::ECONNABORTED, Errno::ENOTCONN,
      Errno::ETIMEDOUT, EOFError, OpenSSL::SSL::SSLError].freeze

    # @return [Array<Symbol>] the operations whose servers run on this machine
    def self.operations(clients, only)
      names = private_instance_methods.grep(/\Aoperation_/).sort
      names.reject! { |name| name.start_with?("operation_db") } unless clients.db
      names.reject! { |name| name.start_with?("operation_memcached") } unless clients.memcached
      names.reject! { |name| name.start_with?("operation_gem") } if clients.records.empty?
      names.reject! { |name| name.start_with?("operation_shared") } if clients.shared.empty?
      names.select! { |name| name.to_s.delete_prefix("operation_").start_with?(*only) } if only
      names
    end

    def initialize(session, number)
      @session = session
      @clients = session.clients
      @name = "actor #{number}"
      @random = Random.new(Zlib.crc32("#{session.seed}/#{number}"))
      @steps = 0
      @number = number
    end

    def to_s = @name

    def live
      step until @session.over?
    end

    private

    def step
      name = @session.choose(@random) or return sleep(SHORT)
      @steps += 1
      @token = "t#{@number}s#{@steps}x#{@random.rand(1 << 20).to_s(36)}."
      @session.operation(self, name, LIMIT) do
        Heddle.deadline(LIMIT) { limited { send(name) } }
      end
    rescue => error
      @session.count(error)
      return if ended?(error) || expected?(error)

      @session.fault("#{self} #{name} raised #{told(error)}")
    end

    # With its causes: the first tells where the interrupt came.
    def told(error)
      lines = ["#{error.class}: #{error.message}", *error.backtrace&.first(25)]
      "#{lines.join("\n    ")}#{"\n  cause: #{told(error.cause)}" if error.cause}"
    end

    # Runs the block under one of the ways in which programs interrupt what takes too long, or under none.
    def limited(&block)
      case @random.rand(10)
      when 0 then Heddle.deadline(moment, &block)
      when 1 then Timeout.timeout(moment, &block)
      when 2 then Timeout.timeout(moment, LimitPassed, &block)
      when 3 then Timeout.timeout(moment * 2, LimitPassed) { Heddle.deadline(moment, &block) }
      when 4, 5 then Fiber.current_scheduler ? cancelled(&block) : interrupted(&block)
      else yield
      end
    end

    def moment = @random.rand * SHORT

    def cancelled
      task = Heddle.spawn(name: "#{@name}'s") do
        yield
        nil
      rescue => error
        error # a raise would be printed if nobody asks for the value
      end
      begin
        sleep(moment)
      ensure
        task.cancel
        claim(task)
      end
      error = task.value
      raise error if error
    end

    # A task whose inherited deadline has passed fails even after a rescue. Its error would leave the run.
    def claim(task)
      Heddle.shield(LIMIT) { task.value }
    rescue Heddle::DeadlineExceeded, Heddle::TaskCancelled
      nil
    end

    def interrupted(&block)
      thread = Thread.new do
        Thread.current.report_on_exception = false
        block.call
      end
      sleep(moment)
      (@random.rand < 0.5) ? thread.raise(Interrupt) : thread.kill
      thread.value
    ensure
      thread&.kill
      thread&.join unless $!.is_a?(Interrupt) && $!.backtrace.nil?
    end

    # Whether the actor itself ended the operation.
    def ended?(error)
      case error
      when Interrupt, LimitPassed, OnPurpose, Timeout::Error, Heddle::TaskCancelled then true
      else false
      end
    end

    # Whether the error's cause is a proxy, a killed connection or an interrupt.
    def expected?(error)
      case error
      when Heddle::DB::ConnectionLost, Heddle::DB::PoolTimeout, Heddle::DB::ConnectTimeout then true
      when Heddle::DB::ServerError then error.retryable?
      when Heddle::DB::Error then error.is_a?(SystemCallError)
      when Heddle::Memcached::NoServerAvailable, Heddle::UnexpectedEnd, Heddle::StreamClosed then true
      when Heddle::Memcached::ProtocolError, Heddle::Memcached::DecodeError then false
      when *LOST then true
      else @clients.records.any? && gem_error?(error)
      end
    end

    def expect(condition, what)
      @session.fault("#{self}, token #{@token}: #{what}\n    #{caller.first(12).join("\n    ")}") unless condition
    end

    def chance(probability) = @random.rand < probability

    def roll(count) = @random.rand(count)
  end
end
