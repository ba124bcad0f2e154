# frozen_string_literal: true

require "heddle/core/clock"
require "io/wait"
require "json"
require "tempfile"
require_relative "installed_ruby"

module Heddle
  module Lab
    # Runs one job in a fresh Ruby, within a time limit, and returns the result or the failure as a Hash.
    class Child
      MAIN = File.expand_path("child_main.rb", __dir__)
      LAB = File.expand_path("../..", __dir__)
      LIBRARY = File.expand_path("../../../../lib", __dir__)
      ODBC_LIBRARY = File.expand_path("../odbc/lib", LIBRARY)
      private_constant :MAIN, :LAB, :LIBRARY, :ODBC_LIBRARY

      # @param ruby [InstalledRuby] that runs the jobs
      # @param core [Integer, nil] the core to pin it to
      # @param deadline [Numeric] seconds a job may take
      # @param paths [Array<String>] further folders with workloads
      def initialize(ruby: InstalledRuby.current, core: nil, deadline: 60, paths: [])
        @ruby = ruby
        @core = core
        @deadline = deadline
        @paths = paths
      end

      # @param job [Hash] the job for child_main.rb; JSON
      # @param environment [Hash{String => String}]
      # @param launcher [Array<String>] a command that runs the child's command, in an environment of its own
      # @return [Hash{String => Object}] the child's answer, or `{"error" => what happened}`
      def run(job, environment: {}, launcher: [])
        reader, writer = IO.pipe
        Tempfile.create("heddle-child") do |log|
          pid = Process.spawn(clean_environment.merge(environment), *launcher, *command, JSON.generate(job),
            3 => writer, :in => File::NULL, [:out, :err] => log.fileno, :pgroup => true)
          writer.close
          begin
            answer = collect(reader)
          ensure
            status = finish(pid, killed: answer.nil?)
          end
          interpret(answer, status, log)
        end
      ensure
        [reader, writer].each { |io| io&.close }
      end

      private

      def command
        paths = [*@paths, LAB]
        paths << LIBRARY if File.exist?(File.join(LIBRARY, "heddle.rb"))
        paths << ODBC_LIBRARY if File.exist?(File.join(ODBC_LIBRARY, "heddle-odbc.rb"))
        [*Affinity.prefix(@core), @ruby.path, "--disable=did_you_mean,error_highlight",
          *paths.flat_map { |path| ["-I", path] }, MAIN]
      end

      # A child runs without Bundler, but finds the same gems.
      def clean_environment
        options = ENV.fetch("RUBYOPT", "").split.reject { |option| option.include?("bundler") }.join(" ")
        environment =
          ENV.keys.grep(/\ABUNDLER?_/).to_h { |name| [name, nil] } # newer RubyGems load Bundler for BUNDLER_SETUP
        environment.update("RUBYOPT" => options.empty? ? nil : options, "RUBYLIB" => nil, **@ruby.environment)
      end

      # @return [String, nil] all the child wrote; nil at the deadline
      def collect(reader)
        answer = +""
        limit = Clock.now + @deadline
        loop do
          left = limit - Clock.now
          return unless left.positive? && reader.wait_readable(left)

          answer << reader.readpartial(65536)
        end
      rescue EOFError
        answer
      end

      def finish(pid, killed:)
        limit = Clock.now + @deadline
        until killed
          _, status = Process.wait2(pid, Process::WNOHANG)
          return status if status

          killed = Clock.now > limit
          sleep 0.001
        end
        Process.kill(:KILL, -pid)
        Process.wait2(pid).last
      end

      def interpret(answer, status, log)
        return {"error" => "no answer after #{@deadline} s: stopped", "late" => true} unless answer

        JSON.parse(answer)
      rescue JSON::ParserError
        reason = if status.signaled?
          "killed by SIG#{Signal.signame(status.termsig)}"
        else
          "ended with status #{status.exitstatus}"
        end
        last = File.read(log.path).lines.map(&:strip).reject(&:empty?).first(3).join(" | ")
        {"error" => ["the process #{reason} without a result", last].reject(&:empty?).join(": ")}
      end
    end
  end
end
