# frozen_string_literal: true

require "heddle/lab/workload"
require "heddle/lab/workload/system_calls"
require "json"
require "socket"

module Heddle
  module Lab
    class Workload
      # Operations of a client of memcached.
      class Memcached < Workload
        for_bench "memcached"

        VALUE = ("0123456789abcdef" * 64).freeze
        KEYS = Array.new(100) { |n| "heddle:bench:#{n}".freeze }.freeze
        THREADS = 8
        FIBERS = 100
        SHARED = 16 # clients of those fibers, as many as Heddle's own pool has connections
        # The operations whose system calls are counted: one after another, with no other work.
        COUNTED = %w[mixed get set get_multi].freeze
        # The same work again, for strace: a job as JSON.
        AGAIN = <<~RUBY
          require "json"
          require "heddle/lab/workload"
          Heddle::Lab::Workload.run(JSON.parse(ARGV.first), nil)
        RUBY
        private_constant :VALUE, :KEYS, :THREADS, :FIBERS, :SHARED, :COUNTED, :AGAIN

        # dalli at its fastest: unserialized Strings, and the newer protocol.
        class Dalli
          def initialize(address, **options)
            options[:protocol] = :meta if ::Dalli::VERSION.to_i < 5 # dalli 5 has no other protocol
            @client = ::Dalli::Client.new(address, compress: false, **options)
          end

          def get(key) = @client.get(key, raw: true)
          def set(key, value) = @client.set(key, value, 0, raw: true)
          def add(key, value) = @client.add(key, value, 0, raw: true)
          def incr(key) = @client.incr(key, 1, 0, 1)
          def get_multi(keys) = @client.get_multi(*keys)
          def delete(key) = @client.delete(key)
        end

        # The same with Heddle.
        class Ours
          def initialize(address, **options)
            @client = Heddle::Memcached.new(address, serializer: :string, compress: false, **options)
          end

          def get(key) = @client.get(key)
          def set(key, value) = @client.set(key, value)
          def add(key, value) = @client.add(key, value)
          def incr(key) = @client.incr(key, 1, initial: 1)
          def get_multi(keys) = @client.get_multi(*keys)
          def delete(key) = @client.delete(key)
        end

        # A socket.
        class Raw
          def initialize(address, **)
            @socket = TCPSocket.new(*address.split(":"))
            @socket.setsockopt(:TCP, :NODELAY, true)
            @buffer = +""
          end

          def get(key)
            @socket.write("get #{key}\r\n")
            @socket.readpartial(4096, @buffer)
            @buffer.byteslice(@buffer.index("\r\n") + 2, VALUE.bytesize)
          end

          def set(key, value)
            @socket.write("set #{key} 0 0 #{value.bytesize}\r\n#{value}\r\n")
            @socket.readpartial(4096, @buffer) == "STORED\r\n"
          end
        end

        private_constant :Dalli, :Ours, :Raw

        # @see Workload#prepare
        def prepare
          require "timeout"
          versions = @kind.start_with?("dalli") ? [load_gem("dalli")] : []
          ::Dalli.logger.level = ::Logger::ERROR if versions.any?
          versions + load_heddle # all fibers run under Heddle's scheduler
        end

        # @see Workload#perform
        def perform(meter)
          @client = connect
          KEYS.each { |key| @client.set(key, VALUE) or raise "memcached does not store" }
          send(@params.fetch("operation"), meter)
          add_system_calls(meter) if @params["system_calls"] && COUNTED.include?(@params["operation"])
        end

        private

        def add_system_calls(meter)
          calls = SystemCalls.each_time do |count|
            job = {"bench" => "memcached", "kind" => @kind,
                   "params" => @params.merge("count" => count, "system_calls" => false, "cold" => true)}
            SystemCalls.ruby(AGAIN, JSON.generate(job))
          end
          meter.measures["system_calls"] = calls * @params.fetch("count") if calls
        end

        def connect
          address = "#{@params.fetch("host")}:#{@params.fetch("port")}"
          case @kind
          when "dalli", "dalli_timeout" then Dalli.new(address)
          when "dalli_untimed" then Dalli.new(address, socket_timeout: nil)
          when "heddle_timeout" then Ours.new(address, timeout: 1)
          when "raw" then Raw.new(address)
          else Ours.new(address, timeout: nil)
          end
        end

        def limited(&block)
          case @kind
          when "dalli_timeout" then ::Timeout.timeout(1, &block)
          when "heddle_deadline" then Heddle.deadline(1, &block)
          else yield
          end
        end

        def measured(meter, count, weight = 1)
          [count / 5, 1].max.times { |n| yield n } unless @params["cold"] # the heap grows meanwhile
          meter.measure do
            n = 0
            while n < count
              yield n
              n += 1
            end
            {"operations" => count * weight}
          end
        end

        def get(meter)
          measured(meter, @params.fetch("count")) { get_one(@client) }
        end

        def get_one(client)
          raise "a wrong value" unless limited { client.get(KEYS.first) } == VALUE
        end

        def set(meter)
          measured(meter, @params.fetch("count")) { limited { @client.set(KEYS.first, VALUE) } or raise "not stored" }
        end

        def get_multi(meter)
          measured(meter, @params.fetch("count")) do
            raise "values are missing" unless limited { @client.get_multi(KEYS) }.size == KEYS.size
          end
        end

        MIXED = 9 # operations a turn
        private_constant :MIXED

        def mixed(meter)
          @client.delete("heddle:added")
          measured(meter, @params.fetch("count"), MIXED) do |n|
            limited { @client.set("heddle:one", VALUE) }
            limited { @client.set(KEYS[n % 100], VALUE) }
            limited { @client.get("heddle:one") }
            limited { @client.get(KEYS[n % 100]) } == VALUE or raise "a wrong value"
            limited { @client.get("heddle:missing") }.nil? or raise "a value for a missing key"
            limited { @client.get_multi(KEYS.first(10)) }.size == 10 or raise "values are missing"
            limited { @client.add("heddle:added", VALUE) } or raise "not added"
            limited { @client.incr("heddle:count") }
            limited { @client.delete("heddle:added") } or raise "not deleted"
          end
        end

        def threads(meter)
          each = @params.fetch("count") / THREADS
          clients = Array.new(THREADS) { ours? ? @client : connect }
          clients.each { |client| get_one(client) }
          meter.measure do
            clients.map { |client| Thread.new { each.times { get_one(client) } } }.each(&:join)
            {"operations" => each * THREADS}
          end
        end

        def fibers(meter)
          each = @params.fetch("count") / FIBERS
          shared = Thread::Queue.new
          SHARED.times { shared << connect.tap { |client| get_one(client) } } unless ours?
          Heddle.run do
            Array.new(FIBERS) { Heddle.spawn { fiber_get(shared) } }.each(&:value)
            meter.measure do
              Array.new(FIBERS) { Heddle.spawn { each.times { fiber_get(shared) } } }.each(&:value)
              {"operations" => each * FIBERS}
            end
          end
        end

        def fiber_get(shared)
          return get_one(@client) if ours?

          client = shared.pop
          begin
            get_one(client)
          ensure
            shared << client
          end
        end

        def beside(meter)
          get_one(@client)
          done = false
          computing = Thread.new { nil until done }
          get_one(@client)
          meter.measure do
            count = 0
            ending = Clock.now + @params.fetch("seconds")
            (count += 1) && get_one(@client) while Clock.now < ending
            {"operations" => count, "beside" => 1}
          end
        ensure
          done = true
          computing&.join
        end

        def ours? = @kind.start_with?("heddle")
      end
    end
  end
end
