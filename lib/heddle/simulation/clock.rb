# frozen_string_literal: true

module Heddle
  class Simulation
    # Ruby's own readings of the clock.
    module Clock
      # The wall clock at the beginning of each simulation: 2030-01-01 00:00 UTC.
      EPOCH = 1_893_456_000_000_000_000
      START = 1_000_000_000_000
      private_constant :EPOCH

      # @return [Float] virtual seconds since the beginning
      def self.seconds = (Core.now - START) / 1e9

      BASES = %i[CLOCK_MONOTONIC CLOCK_MONOTONIC_RAW CLOCK_MONOTONIC_COARSE CLOCK_BOOTTIME].to_h { |name| [name, 0] }
        .merge(CLOCK_REALTIME: EPOCH - START, CLOCK_REALTIME_COARSE: EPOCH - START)
        .filter_map { |name, base| [Process.const_get(name), base] if Process.const_defined?(name) }.to_h.freeze
      UNITS = {
        float_second: ->(time) { time / 1e9 }, float_millisecond: ->(time) { time / 1e6 },
        float_microsecond: ->(time) { time / 1e3 }, second: ->(time) { time / 1_000_000_000 },
        millisecond: ->(time) { time / 1_000_000 }, microsecond: ->(time) { time / 1_000 }, nanosecond: :itself.to_proc
      }.freeze
      private_constant :BASES, :UNITS

      # Prepended to Process's singleton class.
      module ProcessMethods
        # @api private
        def clock_gettime(clock, unit = :float_second)
          base = Simulation.world && BASES[clock] or return super
          convert = UNITS[unit] or return super
          convert.call(base + Core.read)
        end
      end

      # Prepended to Time's singleton class.
      module TimeMethods
        # @api private
        def now(**options)
          Simulation.world ? at(0, EPOCH - START + Core.read, :nanosecond, **options) : super
        end

        # @api private
        def new(*arguments, **options)
          (Simulation.world && arguments.empty?) ? now(**options) : super
        end
      end

      # Of queues' methods that take a timeout: Ruby itself reads the real clock for these.
      module QueueMethods
        Over = Class.new(StandardError)
        private_constant :Over

        # @return [Module] to be prepended
        def self.of(*names)
          Module.new do
            names.each do |name|
              # @api private
              define_method(name) do |*arguments, timeout: nil|
                next super(*arguments) unless timeout
                unless Simulation.world && timeout.is_a?(Numeric) && timeout.positive?
                  next super(*arguments, timeout: timeout)
                end

                Timeout.timeout(timeout, Over) { super(*arguments) }
              rescue Over
                nil
              end
            end
          end
        end
      end

      if Thread::Queue.instance_method(:pop).parameters.include?(%i[key timeout]) # Ruby 3.2
        {Thread::Queue => %i[pop shift deq], Thread::SizedQueue => %i[pop shift deq push << enq]}
          .each { |queue, names| queue.prepend(QueueMethods.of(*names)) }
      end
      Process.singleton_class.prepend(ProcessMethods)
      Time.singleton_class.prepend(TimeMethods)
    end
    private_constant :Clock
  end
end
