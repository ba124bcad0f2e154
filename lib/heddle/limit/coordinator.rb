# frozen_string_literal: true

require "digest/sha1"
require "securerandom"
require_relative "wait_queue"
require_relative "messages"

module Heddle
  class Limit
    # Speaks to one Redis server for all limits of this process that are kept there: a thread with a loop, which runs
    # while permits are held or asked for.
    #
    # @api private
    class Coordinator
      SCRIPT = File.read(File.expand_path("advance.lua", __dir__)).freeze
      SHA = Digest::SHA1.hexdigest(SCRIPT).freeze
      IDLE_SECONDS = 10
      POLL_SECONDS = 0.5 # how often Redis is asked while no message could arrive
      PAUSE_SECONDS = 1 # the longest pause after Redis failed
      FLUSH_SECONDS = 1
      REGISTRY = Thread::Mutex.new
      private_constant :SCRIPT, :SHA, :IDLE_SECONDS, :POLL_SECONDS, :PAUSE_SECONDS, :FLUSH_SECONDS, :REGISTRY

      @coordinators = {}

      class << self
        # @return [Coordinator] the process's one for this server
        def of(redis)
          coordinator = @coordinators[redis]
          return coordinator if coordinator&.here?

          REGISTRY.synchronize do
            coordinator = @coordinators[redis]
            next coordinator if coordinator&.here?

            at_exit { flush } unless @flushes
            @flushes = true
            @coordinators = @coordinators.select { |_, known| known.used? }.merge(redis => coordinator = new(redis))
            coordinator
          end
        end

        private

        # Lets others have the permits of this process before their leases expire.
        def flush = @coordinators.each_value(&:flush)
      end

      def initialize(redis)
        redis = {url: redis} if redis.is_a?(String)
        @config = redis.is_a?(Hash) ? RedisClient.config(**redis) : redis
        @forks = Heddle.forks
        @token = SecureRandom.hex(8)
        @lock = Thread::Mutex.new
        @changed = EventCount.new
        @sent = EventCount.new
        @queues = {} # by limits' names: those with permits
        @permits = {} # that wait, by their names
        @number = @failures = 0
      end

      # A child of fork has neither the thread nor the permits.
      def here? = @forks == Heddle.forks

      # Whether it is to be kept: a program may name its server by another RedisClient::Config each time.
      def used? = here? && @lock.synchronize { @thread || @queues.any? }

      # Called by the caller that wants a permit.
      def enter(permit)
        @lock.synchronize do
          # First, so that no permit waits for a thread that could not start. Nothing in the mask waits.
          Thread.handle_interrupt(Object => :never) { @thread ||= start_thread }
          id = "#{@token}:#{@number += 1}"
          permit.entered(self, id)
          @permits[id] = permit
          queue_of(permit.limit).enter(permit)
        end
        @changed.advance
      end

      # Called by the caller at its end, whether it had its permit or not.
      def leave(permit)
        return unless here?

        @lock.synchronize do
          if (queue = @queues[permit.limit.name])
            queue.leave(permit, Clock.now)
            remove(queue)
          end
          @permits.delete(permit.id)
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

      # @param ids [Array<String>] permits that Redis granted; a permit that its caller has left is released anyway
      def granted(ids)
        @lock.synchronize do
          ids.each do |id|
            next unless (permit = @permits[id])

            @queues[permit.limit.name]&.grant(permit)
            @permits.delete(id)
          end
        end
      end

      # Asks Redis about all permits soon: messages may have been lost.
      def look
        @stale = true
        @changed.advance
      end

      private

      # Call this under the lock.
      def queue_of(limit) = @queues[limit.name] ||= WaitQueue.new(limit)

      # Removes a queue without permits. Call this under the lock. Another queue may have the name meanwhile.
      def remove(queue)
        @queues.delete(queue.limit.name) if queue.empty? && @queues[queue.limit.name].equal?(queue)
      end

      # A thread inherits the mask of the one that starts it: it can be interrupted, or killed, while it serves. An
      # interrupt before that, or at its end, must not leave callers waiting for a thread that has ended.
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

      # Another thread follows one that has spoken to Redis, since permits that are held must be renewed.
      def ended(error)
        @lock.synchronize do
          next unless @thread == Thread.current # unless another thread has taken over

          @thread = nil
          refuse_all(error || ThreadError.new("the thread of the limits was killed"))
          Thread.handle_interrupt(Object => :never) { @thread = start_thread } if @checked && @queues.any?
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

      # @return [Boolean] whether this thread is to end: under the lock, so that a permit that enters starts another
      def dismissed?
        @lock.synchronize do
          @queues.empty? && @thread == Thread.current && (@thread = nil).nil?
        end
      end

      # @return [Numeric, nil] seconds until the next round, if nothing changes before; nil if none is needed
      def round(redis, messages)
        check = check?(messages)
        refused = pending(check).reject { |queue| advance?(redis, queue, check) }
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
          next if @queues.empty?
          next 0 if @stale

          [[@checked + renewal(messages), *@queues.each_value.filter_map(&:due)].min - Clock.now, 0].max
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
        seconds = (@queues.each_value.map(&:lease).min || IDLE_SECONDS).fdiv(3)
        (messages.listening? || @queues.each_value.none?(&:waiting?)) ? seconds : [seconds, POLL_SECONDS].min
      end

      # @return [Array<WaitQueue>]
      def pending(check)
        @lock.synchronize do
          time = Clock.now
          @queues.values.select { |queue| check || queue.pending?(time) }
        end
      end

      def waiting? = @lock.synchronize { @queues.each_value.any?(&:waiting?) }

      def unsent? = @lock.synchronize { @thread && @queues.each_value.any?(&:released?) }

      # @return [Boolean] false if Redis refuses what concerns this limit: others may still be served
      def advance?(redis, queue, check)
        advance(redis, queue, check)
        true
      rescue RedisClient::CommandError => error
        @lock.synchronize { refuse(queue, error) }
        false
      end

      def advance(redis, queue, check)
        start = -1
        @lock.synchronize { queue.requests(check) }.each do |released, renewed, waiting|
          start, *granted = call(redis, queue.limit, released, renewed, waiting)
          @lock.synchronize { queue.told(released) }
          granted(granted)
        end
        @lock.synchronize do
          queue.due = Clock.now + start / 1e6 if start >= 0 && queue.waiting?
          remove(queue)
        end
      end

      # The script may be run twice with the same effect, so it is run again when the connection breaks: nobody's
      # request fails. The Redis behind the new connection may have lost its data.
      def call(redis, limit, *lists)
        attempts = 0
        keys = %w[held queue seen starts ticket clock].map { |key| "heddle:limit:{#{limit.name}}:#{key}" }
        arguments = [keys.size, *keys, @token, limit.concurrent.to_i, limit.per_second.to_i,
          (limit.lease * 1e6).round, *lists.flat_map { |permits| [permits.size, *permits.map(&:id)] }]
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
        @stale = true # a Redis that lost its data is told all permits
        [0.05 * 2**[@failures += 1, 10].min, PAUSE_SECONDS].min
      end

      # Those who wait get the error. Call this under the lock.
      def refuse_all(error)
        @queues.each_value.to_a.each { |queue| refuse(queue, error) }
      end

      # Call this under the lock.
      def refuse(queue, error)
        queue.refuse_all(error, Clock.now).each { |id| @permits.delete(id) }
        remove(queue)
      end
    end
    private_constant :Coordinator
  end
end
