# frozen_string_literal: true

require "digest/sha1"
require "securerandom"
require_relative "line"
require_relative "messages"

module Heddle
  class Limit
    # Speaks to one Redis server for all limits of this process that are kept there: a thread with a loop, which runs
    # while places are held or asked for.
    #
    # @api private
    class Agent
      SCRIPT = File.read(File.expand_path("advance.lua", __dir__)).freeze
      SHA = Digest::SHA1.hexdigest(SCRIPT).freeze
      IDLE_SECONDS = 10
      POLL_SECONDS = 0.5 # how often Redis is asked while no message could arrive
      PAUSE_SECONDS = 1 # the longest pause after Redis failed
      FLUSH_SECONDS = 1
      REGISTRY = Thread::Mutex.new
      private_constant :SCRIPT, :SHA, :IDLE_SECONDS, :POLL_SECONDS, :PAUSE_SECONDS, :FLUSH_SECONDS, :REGISTRY

      @agents = {}

      class << self
        # @return [Agent] the process's one for this server
        def of(redis)
          agent = @agents[redis]
          return agent if agent&.here?

          REGISTRY.synchronize do
            agent = @agents[redis]
            next agent if agent&.here?

            at_exit { flush } unless @flushes
            @flushes = true
            @agents = @agents.select { |_, known| known.used? }.merge(redis => agent = new(redis))
            agent
          end
        end

        private

        # Lets others have the places of this process before their leases expire.
        def flush = @agents.each_value(&:flush)
      end

      def initialize(redis)
        redis = {url: redis} if redis.is_a?(String)
        @config = redis.is_a?(Hash) ? RedisClient.config(**redis) : redis
        @forks = Heddle.forks
        @token = SecureRandom.hex(8)
        @lock = Thread::Mutex.new
        @changed = EventCount.new
        @sent = EventCount.new
        @lines = {} # by limits' names: those with places
        @places = {} # that wait, by their names
        @number = @failures = 0
      end

      # A child of fork has neither the thread nor the places.
      def here? = @forks == Heddle.forks

      # Whether it is to be kept: a program may name its server by another RedisClient::Config each time.
      def used? = here? && @lock.synchronize { @thread || @lines.any? }

      # Called by the caller that wants a place.
      def enter(place)
        @lock.synchronize do
          # First, so that no place waits for a thread that could not start. Nothing in the mask waits.
          Thread.handle_interrupt(Object => :never) { @thread ||= start_thread }
          id = "#{@token}:#{@number += 1}"
          place.entered(self, id)
          @places[id] = place
          line_of(place.limit).enter(place)
        end
        @changed.advance
      end

      # Called by the caller at its end, whether it had its place or not.
      def leave(place)
        return unless here?

        @lock.synchronize do
          if (line = @lines[place.limit.name])
            line.leave(place, Clock.now)
            forget(line)
          end
          @places.delete(place.id)
        end
        @changed.advance
      end

      # Waits until Redis knows all releases, but no longer than a second.
      def flush
        deadline = Clock.now + FLUSH_SECONDS
        while here? && (seen = @sent.count) && unsent? && (left = deadline - Clock.now) > 0
          @sent.wait(seen, left)
        end
      end

      # @param ids [Array<String>] places that Redis granted; a place that its caller has left is released anyway
      def granted(ids)
        @lock.synchronize do
          ids.each do |id|
            next unless (place = @places[id])

            @lines[place.limit.name]&.grant(place)
            @places.delete(id)
          end
        end
      end

      # Asks Redis about all places soon: messages may have been lost.
      def look
        @stale = true
        @changed.advance
      end

      private

      # Call this under the lock.
      def line_of(limit) = @lines[limit.name] ||= Line.new(limit)

      # Forgets a line without places. Call this under the lock. Another line may have the name meanwhile.
      def forget(line)
        @lines.delete(line.limit.name) if line.empty? && @lines[line.limit.name].equal?(line)
      end

      # A thread inherits the mask of the one that starts it: it can be struck, or killed, while it serves. A strike
      # before that, or at its end, must not leave callers waiting for a thread that has ended.
      def start_thread
        thread = Thread.new do
          Heddle.background_thread { Heddle.run { work } }
        rescue Exception => error # rubocop:disable Lint/RescueException -- it is the callers'
          nil
        ensure
          ended(error)
        end
        thread.name = "heddle limits"
        thread.report_on_exception = false
        thread
      end

      # Another thread follows one that has spoken to Redis, since places that are held must be renewed.
      def ended(error)
        @lock.synchronize do
          next unless @thread == Thread.current # it may have made room for another

          @thread = nil
          refuse_all(error || ThreadError.new("the thread of the limits was killed"))
          Thread.handle_interrupt(Object => :never) { @thread = start_thread } if @checked && @lines.any?
        end
      rescue ThreadError
        nil # the process ends, and no thread starts any more
      ensure
        @sent.advance
      end

      def work
        redis = @config.new_client
        messages = Messages.new(@config, @token, self)
        @checked = nil
        @stale = true
        loop do
          seen = @changed.count
          pause = round(redis, messages)
          @changed.wait(seen, pause || IDLE_SECONDS)
          break if pause.nil? && seen == @changed.count && dismissed?
        end
      ensure
        messages&.stop
        redis&.close
      end

      # @return [Boolean] whether this thread is to end: under the lock, so that a place that enters starts another
      def dismissed?
        @lock.synchronize do
          @lines.empty? && @thread == Thread.current && (@thread = nil).nil?
        end
      end

      # @return [Numeric, nil] seconds until the next round, if nothing changes before; nil if none is needed
      def round(redis, messages)
        check = check?(messages)
        refused = pending(check).reject { |line| advance?(redis, line, check) }
        @checked = Clock.now if check
        messages.listen if waiting?
        return [pause(messages), failed].compact.min if refused.any?

        @failures = 0
        pause(messages)
      rescue RedisClient::Error => error
        @lock.synchronize { refuse_all(error) }
        failed
      ensure
        @sent.advance
      end

      def pause(messages)
        @lock.synchronize do
          next if @lines.empty?
          next 0 if @stale

          [[@checked + renewal(messages), *@lines.each_value.filter_map(&:due)].min - Clock.now, 0].max
        end
      end

      # Whether it is time to renew what is held and what waits.
      def check?(messages)
        stale, @stale = @stale, false
        stale || @lock.synchronize { Clock.now - @checked >= renewal(messages) }
      end

      # Call this under the lock.
      #
      # @return [Float] seconds between two checks
      def renewal(messages)
        seconds = (@lines.each_value.map(&:lease).min || IDLE_SECONDS).fdiv(3)
        (messages.listening? || @lines.each_value.none?(&:waiting?)) ? seconds : [seconds, POLL_SECONDS].min
      end

      # @return [Array<Line>]
      def pending(check)
        @lock.synchronize do
          time = Clock.now
          @lines.values.select { |line| check || line.pending?(time) }
        end
      end

      def waiting? = @lock.synchronize { @lines.each_value.any?(&:waiting?) }

      def unsent? = @lock.synchronize { @thread && @lines.each_value.any?(&:released?) }

      # @return [Boolean] false if Redis refuses what concerns this limit: others may still be served
      def advance?(redis, line, check)
        advance(redis, line, check)
        true
      rescue RedisClient::CommandError => error
        @lock.synchronize { refuse(line, error) }
        false
      end

      def advance(redis, line, check)
        start = -1
        @lock.synchronize { line.requests(check) }.each do |released, renewed, waiting|
          start, *granted = call(redis, line.limit, released, renewed, waiting)
          @lock.synchronize { line.told(released) }
          granted(granted)
        end
        @lock.synchronize do
          line.due = Clock.now + start / 1e6 if start >= 0 && line.waiting?
          forget(line)
        end
      end

      # All that the script does may be done twice. So a connection that broke meanwhile fails nobody. Behind the new
      # connection may be a Redis that lost its data.
      def call(redis, limit, *lists)
        attempts = 0
        keys = %w[held queue seen starts ticket clock].map { |key| "heddle:limit:{#{limit.name}}:#{key}" }
        arguments = [keys.size, *keys, @token, limit.concurrent.to_i, limit.per_second.to_i,
          (limit.lease * 1e6).round, *lists.flat_map { |places| [places.size, *places.map(&:id)] }]
        begin
          run_script(redis, arguments)
        rescue RedisClient::TimeoutError
          raise
        rescue RedisClient::ConnectionError
          @stale = true
          retry if (attempts += 1) == 1
          raise
        end
      end

      def run_script(redis, arguments)
        redis.call("EVALSHA", SHA, *arguments)
      rescue RedisClient::CommandError => error
        raise unless error.message.start_with?("NOSCRIPT")

        redis.call("EVAL", SCRIPT, *arguments)
      end

      # @return [Numeric] seconds until the next attempt
      def failed
        @stale = true # a Redis that lost its data is told all places
        [0.05 * 2**[@failures += 1, 10].min, PAUSE_SECONDS].min
      end

      # Those who wait get the error. Call this under the lock.
      def refuse_all(error)
        @lines.each_value.to_a.each { |line| refuse(line, error) }
      end

      # Call this under the lock.
      def refuse(line, error)
        line.refuse_all(error, Clock.now).each { |id| @places.delete(id) }
        forget(line)
      end
    end
    private_constant :Agent
  end
end
