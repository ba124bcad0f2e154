# frozen_string_literal: true

module Heddle
  class Memcached
    class DalliCompatible
      # The result of {DalliCompatible#get_with_metadata_result}, with the methods of Dalli::CacheResult, for versions
      # of Dalli that lack the class.
      class Result
        # @return [Object, nil]
        attr_reader :value
        # @return [Integer]
        attr_reader :cas
        # @return [Boolean, nil]
        attr_reader :hit_before
        # @return [Integer, nil] seconds
        attr_reader :last_access, :ttl_remaining

        # @param found [Hash]
        def initialize(found)
          @value, @cas, @hit_before, @last_access, @ttl_remaining =
            found.values_at(:value, :cas, :hit_before, :last_access, :ttl_remaining)
          @miss, @stale, @won_recache, @lost_recache =
            found.values_at(:miss, :stale, :won_recache, :lost_recache).map { |said| said || false }
          freeze
        end

        def miss? = @miss
        def hit? = !@miss
        def stale? = @stale
        def won_recache? = @won_recache
        def lost_recache? = @lost_recache
      end
    end
  end
end
