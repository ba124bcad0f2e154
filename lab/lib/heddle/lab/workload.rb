# frozen_string_literal: true

require "heddle/core/clock"

module Heddle
  module Lab
    # The work of a cell's process, which alone loads it. A bench's workload is a subclass in workload/BENCH.rb.
    class Workload
      # Measures one block. The work calls it once, when everything is ready and warm.
      class Meter
        # @return [Hash{String => Numeric}, nil] seconds (wall, cpu, user, system, gc), KiB (peak_rss_kib), counts
        #   (gc_count, allocations) and what the block returned
        attr_reader :measures

        # @yieldreturn [Hash{String => Numeric}] "operations", and other figures of the bench
        def measure
          GC.start
          before = snapshot
          result = yield
          after = snapshot
          @measures = before.to_h { |key, value| [key, after[key] - value] }
            .merge("peak_rss_kib" => Workload.memory("VmHWM"), **result)
        end

        private

        def snapshot
          times = Process.times
          {"wall" => Clock.now,
           "cpu" => Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID),
           "user" => times.utime, "system" => times.stime,
           "gc" => GC.stat(:time) / 1000.0, "gc_count" => GC.count, "allocations" => GC.stat(:total_allocated_objects)}
        end
      end

      class << self
        # @param job [Hash{String => Object}] "bench", "kind", "argument", "params", "files" that are loaded first; with
        #   "probe" the libraries are loaded and nothing is measured
        # @param deliver [Proc] takes an answer and ends the process; for work that cannot end normally
        # @return [Hash{String => Object}] the answer: "versions" of a probe, else "measures"
        def run(job, deliver)
          require "heddle/lab/workload/#{job.fetch("bench")}"
          job.fetch("files", []).each { |path| require path }
          workload = @workloads.fetch(job.fetch("bench"))
            .new(kind: job.fetch("kind"), argument: job["argument"], params: job.fetch("params"), deliver: deliver)
          versions = workload.prepare
          return {"ruby" => RUBY_DESCRIPTION, "yjit" => yjit?, "versions" => versions} if job["probe"]

          meter = Meter.new
          workload.perform(meter)
          {"measures" => meter.measures}
        end

        # @param error [Exception]
        # @return [Hash{String => Object}] the answer that reports it
        def failure(error)
          {"error" => "#{error.class}: #{error.message.lines.first&.strip}", "backtrace" => error.backtrace&.first(5)}
        end

        # Names the bench whose work the subclass does.
        # @param bench [String]
        def for_bench(bench)
          (Workload.instance_variable_get(:@workloads) || Workload.instance_variable_set(:@workloads, {}))[bench] = self
        end

        # @param field [String] "VmRSS", "VmHWM"
        # @return [Integer, nil] KiB; nil if no more fibers can be made. Reads in a blocking fiber: the measured
        #   scheduler must not see it.
        def memory(field)
          Fiber.new(blocking: true) { File.read("/proc/self/status")[/^#{field}:\s*(\d+)/, 1].to_i }.resume
        rescue FiberError
          nil
        end

        private

        def yjit? = !!(defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?)
      end

      # @param kind [String] the model's
      # @param argument [Integer, nil] the model's
      # @param params [Hash{String => Object}] the case's, and the bench's own
      # @param deliver [Proc] see {.run}
      def initialize(kind:, argument:, params:, deliver:)
        @kind = kind
        @argument = argument
        @params = params
        @deliver = deliver
      end

      # Loads what the model needs.
      # @return [Array<String>] names and versions of it
      # @raise [LoadError] when it is not installed
      def prepare = raise(NotImplementedError)

      # Warms up, then does the work within one {Meter#measure}.
      # @param meter [Meter]
      def perform(meter) = raise(NotImplementedError)

      private

      # Loads a peer.
      # @return [String] its name and version
      def load_gem(name, feature = name)
        require feature
        specification = Gem.loaded_specs[name]
        specification ? "#{name} #{specification.version}" : name
      rescue LoadError => error
        raise unless error.path == feature

        raise LoadError, "the gem #{name} is not installed for Ruby #{RUBY_VERSION} (bin/setup --all installs it, " \
          "or gem install #{name})"
      end

      # Loads a peer that waits with io_uring or not at all. Another process tries if it starts: this one is measured.
      # @return [Array<String>] its name and version
      # @raise [LoadError] when it is not installed, or does not start
      def load_on_io_uring(name, *features)
        versions = [load_gem(name)]
        features.each { |feature| require feature }
        said, error = IO.pipe
        tried = fork do
          yield
          exit!(0)
        rescue => failure
          error.syswrite(failure.message)
          exit!(1)
        end
        error.close
        _, status = Process.wait2(tried)
        return versions if status.success?

        reason = said.read
        reason = status if reason.empty?
        raise LoadError, "#{name}, which takes io_uring, does not start here: #{reason}"
      ensure
        [said, error].compact.each(&:close)
      end

      def load_carbon_fiber = load_on_io_uring("carbon_fiber") { CarbonFiber::Scheduler.new }

      def load_uringmachine = load_on_io_uring("uringmachine", "uringmachine/fiber_scheduler") { UM.new }

      def load_async
        versions = [load_gem("async"), load_gem("io-event", "io/event")]
        selector = IO::Event::Selector.default
        ["#{versions.first} (#{selector.name.split("::").last})", versions.last]
      end

      def load_heddle
        require "heddle"
        refused = Heddle::Scheduler.refused_backends.map { |name, error| "; #{name} is refused: #{error.message}" }
        ["heddle #{Heddle::VERSION} (#{Heddle::Scheduler.new.backend}#{refused.join})"]
      end
    end
  end
end
