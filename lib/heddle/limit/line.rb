# frozen_string_literal: true

module Heddle
  class Limit
    # The places of one limit in this process, as its {Agent} sees them. Call all methods under the agent's lock.
    #
    # @api private
    class Line
      # The most places of a kind in one call of the script. Redis serves nobody else during a call.
      PART = 500
      private_constant :PART

      # @return [Limit] the latest one of this name: its numbers hold
      attr_reader :limit

      # @return [Numeric] seconds: the shortest lease of a place
      attr_reader :lease

      # @return [Float, nil] of the monotonic clock: when Redis may have a place, without a message to tell of it
      attr_accessor :due

      def initialize(limit)
        @limit = limit
        @lease = limit.lease
        @fresh = {} # places that wait, and of which Redis has not been told; all by their names
        @waiting = {}
        @held = {}
        @released = {} # when they were released, by places
      end

      def enter(place)
        @limit = place.limit
        @lease = [@lease, @limit.lease].min
        @fresh[place.id] = place
      end

      # Deletes the place last: a strike in between must not lose the release.
      def leave(place, now)
        id = place.id
        @released[place] = now if @held.key?(id) || @waiting.key?(id)
        [@held, @waiting, @fresh].each { |places| places.delete(id) }
      end

      def grant(place)
        return unless @waiting.key?(place.id)

        @held[place.id] = place
        @waiting.delete(place.id)
        place.granted
      end

      # Redis may know of them even if it did not answer. Releases are sent again, until the leases are over: then Redis
      # has forgotten the places.
      #
      # @return [Array<String>] the names of those that waited
      def refuse_all(error, now)
        refused = [*@waiting.keys, *@fresh.keys]
        @waiting.each_value { |place| @released[place] = now }
        [@waiting, @fresh].each do |places|
          places.each_value { |place| place.refuse(error) }
          places.clear
        end
        @due = nil
        @released.delete_if { |place, since| now - since > place.limit.lease }
        refused
      end

      # Redis has been told of these releases.
      def told(places) = places.each { |place| @released.delete(place) }

      def waiting? = @waiting.any? || @fresh.any?

      def released? = @released.any?

      def empty? = !waiting? && @held.empty? && @released.empty?

      # Whether Redis is to be asked.
      def pending?(now) = @fresh.any? || @released.any? || (@due ? @due <= now : false)

      # What to tell Redis, in the order of the calls. From now on the places that wait are known, even if the answer is
      # lost.
      #
      # @param all [Boolean] whether also what Redis knows already
      # @return [Array<Array<Array<Place>>>] for each call: places to release, to renew, and that wait
      def requests(all)
        waiting = @fresh.values
        @waiting.update(@fresh)
        @fresh.clear
        @due = nil
        held, waiting = @held.values, @waiting.values if all
        parts(@released.keys, held || [], waiting)
      end

      private

      # What is held is renewed before a place is asked for.
      def parts(released, held, waiting)
        calls = []
        loop do
          part = [released.shift(PART), held.shift(PART)]
          calls << (part << (held.empty? ? waiting.shift(PART) : []))
          return calls if [released, held, waiting].all?(&:empty?)
        end
      end
    end
    private_constant :Line
  end
end
