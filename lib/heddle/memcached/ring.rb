# frozen_string_literal: true

module Heddle
  class Memcached
    # Which server has which keys: the points that each has on a circle of 32 bits, where dalli and libmemcached put them, so
    # that a cache is not cold after a change of clients.
    #
    # @api private
    module Ring
      POINTS = 160 # of a server, where all weigh the same

      class << self
        # @param addresses [Array<Address>]
        # @return [Array<Array(Integer, Integer)>] a point and whose it is, in order; none for a single server
        def points(addresses)
          return [] if addresses.size < 2

          require "digest/sha1"
          total = addresses.sum(&:weight)
          points = addresses.each_with_index.flat_map do |address, index|
            # The same arithmetic in floating point as dalli's, whose rounding decides how many points there are.
            count = (addresses.size * POINTS * address.weight / Float(total)).floor
            Array.new(count) { |i| [Digest::SHA1.hexdigest("#{address.name}:#{i}")[0, 8].hex, index] }
          end
          points.sort_by(&:first)
        end
      end
    end
  end
end
