# frozen_string_literal: true

module Heddle
  class Memcached
    # Maps keys to servers: each server has points on a circle of 32 bits, the same points as in dalli and libmemcached,
    # so that a cache stays warm after a change of clients.
    #
    # @api private
    module Ring
      POINTS = 160 # of a server, where all weigh the same

      class << self
        # @param addresses [Array<Address>]
        # @return [Array<Array(Integer, Integer)>] points with their server's index, in order; empty for a single server
        def points(addresses)
          return [] if addresses.size < 2

          require "digest/sha1"
          total = addresses.sum(&:weight)
          points = addresses.each_with_index.flat_map do |address, index|
            # Uses the same floating-point arithmetic as dalli: its rounding decides the number of points.
            count = (addresses.size * POINTS * address.weight / Float(total)).floor
            Array.new(count) { |i| [Digest::SHA1.hexdigest("#{address.name}:#{i}")[0, 8].hex, index] }
          end
          points.sort_by(&:first)
        end
      end
    end
  end
end
