# frozen_string_literal: true

module Heddle
  class Limit
    # The permits of one limit in this process, as its {Coordinator} sees them. Call all methods under the coordinator's
    # lock.
    #
    # @api private
    class WaitQueue
      # The most permits of a kind in one call of the script. Redis serves nobody else during a call.
      PART = 500
      private_constant :PART

      # @return [Limit] the latest one of this name: its numbers hold
      attr_reader :limit

      # @return [Numeric] seconds: the shortest lease of a permit
      attr_reader :lease

      # @return [Float, nil] of the monotonic clock: when Redis may have a permit, without a message to tell of it
      attr_accessor :due

      def initialize(limit)
        @limit = limit
        @lease = limit.lease
        @fresh = {} # permits that wait, and of which Redis has not been told; all by their names
        @waiting = {}
        @held = {}
        @released = {} # when they were released, by permits
      end

      def enter(permit)
        @limit = permit.limit
        @lease = [@lease, @limit.lease].min
        @fresh[permit.id] = permit
      end

      # Deletes the permit last: an interrupt in between must not lose the release.
      def leave(permit, now)
        id = permit.id
        @released[permit] = now if @held.key?(id) || @waiting.key?(id)
        [@held, @waiting, @fresh].each { |permits| permits.delete(id) }
      end

      def grant(permit)
        return unless @waiting.key?(permit.id)

        @held[permit.id] = permit
        @waiting.delete(permit.id)
        permit.granted
      end

      # Redis may know of them even if it did not answer. Releases are sent again, until the leases are over: then Redis
      # has forgotten the permits.
      #
      # @return [Array<String>] the names of those that waited
      def refuse_all(error, now)
        refused = [*@waiting.keys, *@fresh.keys]
        @waiting.each_value { |permit| @released[permit] = now }
        [@waiting, @fresh].each do |permits|
          permits.each_value { |permit| permit.refuse(error) }
          permits.clear
        end
        @due = nil
        @released.delete_if { |permit, since| now - since > permit.limit.lease }
        refused
      end

      # Redis has been told of these releases.
      def told(permits) = permits.each { |permit| @released.delete(permit) }

      def waiting? = @waiting.any? || @fresh.any?

      def released? = @released.any?

      def empty? = !waiting? && @held.empty? && @released.empty?

      # Whether Redis is to be asked.
      def pending?(now) = @fresh.any? || @released.any? || (@due ? @due <= now : false)

      # What to tell Redis, in the order of the calls. From now on the permits that wait are known, even if the answer
      # is lost.
      #
      # @param all [Boolean] whether also what Redis knows already
      # @return [Array<Array<Array<Permit>>>] for each call: permits to release, to renew, and that wait
      def requests(all)
        waiting = @fresh.values
        @waiting.update(@fresh)
        @fresh.clear
        @due = nil
        held, waiting = @held.values, @waiting.values if all
        parts(@released.keys, held || [], waiting)
      end

      private

      # What is held is renewed before a permit is asked for.
      def parts(released, held, waiting)
        calls = []
        loop do
          part = [released.shift(PART), held.shift(PART)]
          calls << (part << (held.empty? ? waiting.shift(PART) : []))
          return calls if [released, held, waiting].all?(&:empty?)
        end
      end
    end
    private_constant :WaitQueue
  end
end
