# frozen_string_literal: true

require "net/http"
require "heddle/lab/workload"

module Heddle
  module Lab
    class Workload
      # One request to a host that may not answer, beside a heart that beats.
      class Names < Workload
        for_bench "names"

        LIMIT = 1
        BEAT = 0.001
        private_constant :LIMIT, :BEAT

        # @see Workload#prepare
        def prepare
          versions = ["net-http #{Net::HTTP::VERSION}"]
          case @kind
          when "heddle", "heddle_deadline" then versions + load_heddle
          when "async" then versions + load_async
          when "async_without_fallback" then versions + load_async << without_fallback
          else versions
          end
        end

        # @see Workload#perform
        def perform(meter)
          start_server
          beside_a_heart { Net::HTTP.start("127.0.0.1", @port) { |http| http.get("/0") } }
          meter.measure do
            outcome = taken = nil
            gap = beside_a_heart { outcome, taken = request }
            {"operations" => 1, "errors" => 0, "gap" => gap, "taken" => taken,
             "outcome" => (outcome == :connected) ? "connected" : "nothing", "error" => outcome.to_s}
          end
        end

        private

        # A server in the network of the bench; it ends with this process.
        def start_server
          output, writer = IO.pipe
          Process.spawn(@params["server"], "--port", "0", "--exit-with-parent", in: File::NULL, out: writer)
          writer.close
          @port = Integer(output.gets[/\d+$/])
        end

        def without_fallback
          unless Socket.respond_to?(:tcp_fast_fallback=)
            raise LoadError, "Ruby #{RUBY_VERSION} has no fallback to switch off"
          end

          Socket.tcp_fast_fallback = false
          "Socket.tcp_fast_fallback = false"
        end

        def request
          start = Clock.now
          outcome = begin
            (@kind == "heddle_deadline") ? Heddle.deadline(LIMIT) { get(60) } : get(LIMIT)
            :connected
          rescue SystemCallError, IOError, SocketError, Timeout::Error => error
            "#{error.class}: #{error.message}"
          end
          [outcome, Clock.now - start]
        end

        def get(open_timeout)
          Net::HTTP.start(@params["host"], @port, open_timeout: open_timeout) { |http| http.get("/0") }
        end

        # Runs the block in a fiber or thread of its own, and another that sleeps a millisecond again and again.
        # @return [Float] seconds of its longest gap
        def beside_a_heart(&block)
          case @kind
          when "threads" then in_threads(block)
          when "async", "async_without_fallback"
            Sync { |task| measure_gap(->(&beat) { task.async(&beat) }, block) }
          else Heddle.run { measure_gap(->(&beat) { Heddle.spawn(&beat) }, block) }
          end
        end

        def in_threads(block) = measure_gap(->(&beat) { Thread.new(&beat) }, block)

        def measure_gap(spawn, block)
          longest, last, over = 0.0, Clock.now, false
          heart = spawn.call do
            until over
              sleep(BEAT)
              beaten = Clock.now
              longest, last = [longest, beaten - last].max, beaten
            end
          end
          sleep(BEAT * 5)
          block.call
          over = true
          heart.respond_to?(:wait) ? heart.wait : heart.join
          longest
        end
      end
    end
  end
end
