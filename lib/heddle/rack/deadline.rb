# frozen_string_literal: true

require "heddle"
require_relative "requested_time"

module Heddle
  # Middleware for Rack's servers: those that run a request in a fiber, as falcon, and in a thread, as Puma.
  module Rack
    # Ends requests that take too long, with status 503. A wait of the application raises {DeadlineExceeded} then: its
    # requests to other servers end, and queries of {Heddle::DB} are cancelled in their servers. A line for Rack's log
    # (+rack.logger+, else +rack.errors+) says which request it was, and where it waited.
    #
    # The deadline covers what the application does until it returns its response, its tasks included. It does not cover
    # a body that the server reads, or a task writes, afterwards: an application that streams calls {Heddle.deadline}
    # there. The gem rack-timeout beside it is named in the same log, once. Requests for another protocol (+Upgrade+, as
    # of WebSocket) and for a stream of events (<tt>Accept: text/event-stream</tt>) have no deadline.
    #
    # @example config.ru
    #   require "heddle/rack/deadline"
    #   use Heddle::Rack::Deadline, 2
    #
    # @example whoever asks may ask for less
    #   use Heddle::Rack::Deadline, 30, headers: true, except: ->(env) { env["PATH_INFO"].start_with?("/exports/") }
    class Deadline
      # What rack-timeout leaves in the environment of each request.
      RACK_TIMEOUT = "rack-timeout.info"
      private_constant :RACK_TIMEOUT

      # @param app [#call] the application
      # @param seconds [Numeric] the most that a request may take, greater than 0
      # @param headers [Boolean] whether a header of the request makes the time shorter: +Request-Timeout+ (seconds),
      #   +X-Request-Deadline+ (Unix time, seconds), +grpc-timeout+, +x-envoy-expected-rq-timeout-ms+. The shortest
      #   counts; malformed ones do not. {DeadlineHeader} sends the first
      # @param except [#call, nil] returns, for Rack's environment, whether a request has no deadline
      # @raise [ArgumentError] if +seconds+ is not a positive number, or +except+ has no method +call+
      def initialize(app, seconds, headers: false, except: nil)
        unless seconds.is_a?(Numeric) && seconds.positive?
          raise ArgumentError, "Heddle::Rack::Deadline needs a number of seconds above 0, not #{seconds.inspect}"
        end
        unless except.nil? || except.respond_to?(:call)
          raise ArgumentError, "except: must be something to call with Rack's environment, not #{except.inspect}"
        end

        @app = app
        @seconds = seconds
        @headers = headers
        @except = except
        @told = {} # Rack freezes the middleware itself, where config.ru says freeze_app
      end

      # @param env [Hash] Rack's environment
      # @return [Array] the application's response; or one with status 503, also where the application has rescued
      #   the error and returned something else
      # @raise [DeadlineExceeded] a shorter deadline of the application's own, which it did not rescue
      def call(env)
        unbounded?(env) ? @app.call(env) : call_within(env, [@seconds, (RequestedTime.of(env) if @headers)].compact.min)
      end

      private

      def unbounded?(env)
        env.key?("HTTP_UPGRADE") || env["HTTP_ACCEPT"]&.include?("text/event-stream") || @except&.call(env)
      end

      def call_within(env, seconds)
        late = Clock.now + seconds
        response = nil
        Heddle.deadline_of_call(seconds) do
          Heddle.refuse_late
          response = @app.call(env)
        end
      rescue DeadlineExceeded => error
        close(response)
        raise if Clock.now < late

        log(env, "#{env["REQUEST_METHOD"]} #{env["PATH_INFO"]} took longer than #{seconds} s: #{error.message} " \
          "(#{error.backtrace&.first})")
        [503, {"content-type" => "text/plain", "retry-after" => @seconds.ceil.to_s},
          ["This request took longer than #{seconds} s.\n"]]
      ensure
        warn_of_rack_timeout(env) if env.key?(RACK_TIMEOUT) && @told.empty?
      end

      # In a Rails application its checks say so at the boot.
      def warn_of_rack_timeout(env)
        @told[RACK_TIMEOUT] = true
        return if defined?(Heddle::Rails)

        log(env, "heddle: rack-timeout raises in a thread, wherever it is, and with it in all tasks of the thread: " \
          "remove it where Heddle::Rack::Deadline is used")
      end

      # Many libraries give back what a request holds when its body is closed.
      def close(response)
        body = response&.at(2)
        body.close if body.respond_to?(:close)
      end

      def log(env, line)
        if (logger = env["rack.logger"])
          logger.warn(line)
        else
          env["rack.errors"]&.puts(line)
        end
      end
    end
  end
end
