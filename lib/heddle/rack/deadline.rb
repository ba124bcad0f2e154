# frozen_string_literal: true

require "heddle"

module Heddle
  # Middleware for Rack's servers: those that run a request in a fiber, as falcon, and in a thread, as Puma.
  module Rack
    # Ends requests that take too long, with status 503. A wait of the application raises {DeadlineExceeded} then: its
    # requests to other servers end, and queries of {Heddle::DB} are cancelled in their servers.
    #
    # The deadline covers what the application does until it returns its response, its tasks included. It does not cover
    # a body that the server reads, or a task writes, afterwards: an application that streams calls {Heddle.deadline}
    # there.
    #
    # @example config.ru
    #   require "heddle/rack/deadline"
    #   use Heddle::Rack::Deadline, 2
    class Deadline
      # @param app [#call] the application
      # @param seconds [Numeric] the most that a request may take, greater than 0
      # @raise [ArgumentError] if +seconds+ is not a positive number
      def initialize(app, seconds)
        unless seconds.is_a?(Numeric) && seconds.positive?
          raise ArgumentError, "Heddle::Rack::Deadline needs a number of seconds above 0, not #{seconds.inspect}"
        end

        @app = app
        @seconds = seconds
      end

      # @param env [Hash] Rack's environment
      # @return [Array] the application's response; or one with status 503, also where the application has rescued
      #   the error and returned something else
      # @raise [DeadlineExceeded] a shorter deadline of the application's own, which it did not rescue
      def call(env)
        late = Clock.now + @seconds
        response = nil
        Heddle.deadline_of_call(@seconds) { response = @app.call(env) }
      rescue DeadlineExceeded
        close(response)
        raise if Clock.now < late

        [503, {"content-type" => "text/plain"}, ["This request took longer than #{@seconds} s.\n"]]
      end

      private

      # Many libraries give back what a request holds when its body is closed.
      def close(response)
        body = response&.at(2)
        body.close if body.respond_to?(:close)
      end
    end
  end
end
