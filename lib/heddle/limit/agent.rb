# frozen_string_literal: true

require "digest/sha1"
require "securerandom"
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
      POLL_SECONDS = 0.05 # how often Redis is asked while no message could arrive
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
            @agents = @agents.merge(redis => agent = new(redis))
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
        @changed = Gate.new
        @sent = Gate.new
        @waiting = {} # places by their names
        @held = {}
        @released = {} # when they were released, by places
        @due = {} # when a limit lets the next block start, by limits' names
        @number = @failures = 0
      end

      # A child of fork has neither the thread nor the places.
      def here? = @forks == Heddle.forks

      # Called by the caller that wants a place.
      def enter(place)
        @lock.synchronize do
          # First, so that no place waits for a thread that could not start. Nothing in the mask waits.
          Thread.handle_interrupt(Object => :never) { @thread ||= start_thread }
          id = "#{@token}:#{@number += 1}"
          place.entered(self, id)
          @waiting[id] = place
        end
        @changed.open
      end

      # Called by the caller at its end, whether it had its place or not.
      def leave(place)
        return unless here?

        @lock.synchronize do
          # Deleted afterwards: a strike in between must not lose the release.
          @released[place] = now if @held.key?(place.id) || @waiting[place.id]&.known
          @held.delete(place.id)
          @waiting.delete(place.id)
        end
        @changed.open
      end

      # Waits until Redis knows all releases, but no longer than a second.
      def flush
        deadline = now + FLUSH_SECONDS
        while here? && (seen = @sent.openings) && @thread && !@released.empty? && (left = deadline - now) > 0
          @sent.wait(seen, left)
        end
      end

      # @param ids [Array<String>] places that Redis granted; a place that its caller has left is released anyway
      def granted(ids)
        @lock.synchronize do
          ids.each do |id|
            next unless (place = @waiting.delete(id))

            @held[id] = place
            place.granted
          end
        end
      end

      # Asks Redis about all places soon: messages may have been lost.
      def look
        @checked = nil
        @changed.open
      end

      private

      # A thread inherits the mask of the one that starts it: it can be struck, or killed, while it serves. A strike
      # before that, or at its end, must not leave callers waiting for a thread that has ended.
      def start_thread
        thread = Thread.new do
          Thread.handle_interrupt(Object => :immediate) { serve }
        rescue Exception => error # rubocop:disable Lint/RescueException -- it is the callers'
          nil
        ensure
          ended(error)
        end
        thread.name = "heddle limits"
        thread.report_on_exception = false
        thread
      end

      def serve
        Scheduler.root_fiber_begin(nil)
        Heddle.run { work }
      end

      def ended(error)
        @lock.synchronize do
          next unless @thread == Thread.current # it may have made room for another

          @thread = nil
          refuse_all(error || ThreadError.new("the thread of the limits was killed"))
        end
        @sent.open
      end

      def work
        redis = @config.new_client
        messages = Messages.new(@config, @token, self)
        @checked = nil
        loop do
          seen = @changed.openings
          pause = round(redis, messages)
          @changed.wait(seen, pause || IDLE_SECONDS)
          break if pause.nil? && seen == @changed.openings && dismissed?
        end
      ensure
        messages&.stop
        redis&.close
      end

      # @return [Boolean] whether this thread is to end: under the lock, so that a place that enters starts another
      def dismissed?
        @lock.synchronize do
          idle? && @thread == Thread.current && (@thread = nil).nil?
        end
      end

      def idle? = @waiting.empty? && @held.empty? && @released.empty?

      # @return [Numeric, nil] seconds until the next round, if nothing changes before; nil if none is needed
      def round(redis, messages)
        check = check?
        pending(check).each { |limit| advance(redis, limit, check) }
        @checked = now if check
        @failures = 0
        messages.listen if @waiting.any?
        pause(messages)
      rescue RedisClient::Error => error
        failed(error)
      ensure
        @sent.open
      end

      def pause(messages)
        @lock.synchronize do
          next if idle?

          pauses = [@checked ? @checked + renewal - now : 0, *@due.values.map { |time| time - now }]
          pauses << POLL_SECONDS if @waiting.any? && !messages.listening?
          [pauses.min, 0].max
        end
      end

      # Whether it is time to renew what is held and what waits.
      def check? = @lock.synchronize { @checked.nil? || now - @checked >= renewal }

      # Call this under the lock.
      def renewal = (@held.values + @waiting.values).map { |place| place.limit.lease }.min.to_f / 3

      # @return [Array<Limit>] one for each name
      def pending(check)
        @lock.synchronize do
          time = now
          due = @due.select { |_, start| start <= time }
          places = @released.keys + @waiting.values.select { |place| check || !place.known || due[place.limit.name] }
          places += @held.values if check
          places.map(&:limit).uniq(&:name)
        end
      end

      def advance(redis, limit, check)
        released, renewed, waiting = @lock.synchronize { lists(limit, check) }
        start, *granted = call(redis, limit, released, renewed, waiting)
        @lock.synchronize do
          released.each { |place| @released.delete(place) }
          @due.delete(limit.name)
        end
        granted(granted)
        waited = @waiting.each_value.any? { |place| place.limit.name == limit.name }
        @due[limit.name] = now + start / 1e6 if start >= 0 && waited
      end

      # Call this under the lock. What waits is known from now on, even if the answer is lost.
      def lists(limit, check)
        released, held, waiting = [@released.keys, @held.values, @waiting.values].map do |places|
          places.select { |place| place.limit.name == limit.name }
        end
        waiting.reject!(&:known) unless check
        waiting.each { |place| place.known = true }
        [released, check ? held : [], waiting]
      end

      # All that the script does may be done twice. So a connection that broke meanwhile fails nobody.
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

      # Those who wait get the error. Releases are sent again, until the leases are over.
      #
      # @return [Numeric] seconds until the next attempt
      def failed(error)
        @lock.synchronize do
          refuse_all(error)
          @released.delete_if { |place, since| now - since > place.limit.lease }
        end
        @checked = nil # a Redis that lost its data is told all places
        [0.05 * 2**(@failures += 1), PAUSE_SECONDS].min
      end

      # Call this under the lock. Redis may know of them, even if it did not answer.
      def refuse_all(error)
        @waiting.each_value do |place|
          place.refuse(error)
          @released[place] = now if place.known
        end
        @waiting.clear
        @due.clear
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
    private_constant :Agent
  end
end
