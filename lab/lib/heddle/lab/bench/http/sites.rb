# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      class HTTP < Bench
        # Where bodies come from.
        module Sites
          # @!attribute name [String]
          # @!attribute delay [Float] seconds by which every reply is late
          # @!attribute rate [Integer, nil] bytes a second
          # @!attribute repeat [Integer] bodies fetched one after another, a new connection each
          Site = Struct.new(:name, :delay, :rate, :repeat, keyword_init: true) do
            # @return [String]
            def describe
              if rate
                "#{format("%g", delay * 1000)} ms away, #{rate / 1_000_000} MB a second"
              else
                "on this machine, at full speed, #{repeat} times, after as many to warm up"
              end
            end
          end

          # The five cities of 2008, seen from Dallas. Delays are those of light in fibre and of routers between the
          # cities. Speeds have the ratios of 2008, but are higher so that a run takes minutes.
          ALL = [
            Site.new(name: "local", delay: 0.0, rate: nil, repeat: 24),
            Site.new(name: "dallas", delay: 0.0005, rate: 100_000_000, repeat: 1),
            Site.new(name: "chicago", delay: 0.020, rate: 40_000_000, repeat: 1),
            Site.new(name: "washdc", delay: 0.032, rate: 30_000_000, repeat: 1),
            Site.new(name: "seattle", delay: 0.040, rate: 25_000_000, repeat: 1),
            Site.new(name: "london", delay: 0.080, rate: 12_000_000, repeat: 1)
          ].freeze
          private_constant :ALL

          # @return [Array<String>]
          def self.names = ALL.map(&:name)

          # @param names [Array<String>]
          # @return [Array<String>]
          # @raise [UsageError]
          def self.check(names)
            unknown = names - self.names
            if unknown.any?
              raise UsageError, "unknown site #{unknown.first.inspect}; choose from #{self.names.join(", ")}"
            end

            names.uniq
          end

          # @param names [Array<String>]
          # @return [Array<Site>]
          def self.all(names) = ALL.select { |site| names.include?(site.name) }
        end
      end
    end
  end
end
