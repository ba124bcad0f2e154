# frozen_string_literal: true

require "fileutils"
require "open3"
require_relative "affinity"
require_relative "error"
require_relative "version"

module Heddle
  module Lab
    # A running heddle-server (lab/ext/server), which is the load server or the proxy. The owner of this object starts
    # and ends it. It ends with the *thread* that started it, at the latest.
    class ServerProcess
      # The folder of its sources.
      SOURCE = File.expand_path("../../../ext/server", __dir__)
      NAME = "heddle-server"
      private_constant :NAME

      # @return [String] address it listens on
      attr_reader :host
      # @return [Integer]
      attr_reader :port
      # @return [Integer, nil] its process; nil once stopped
      attr_reader :pid

      # Starts a server; with a block, ends it afterwards. Arguments are those of the class's own `new`.
      # @return [ServerProcess, Object] the server, or the block's value
      # @raise [Error] when it cannot be built or cannot listen
      def self.start(...)
        server = new(...)
        return server unless block_given?

        begin
          yield server
        ensure
          server.stop
        end
      end

      # @return [String] path of the program. It is built first if its sources are newer, or if it does not run: a
      #   program that was built in a chroot may need a newer C library. If another user, such as root, has installed
      #   the gem, it is built in the user's cache.
      # @raise [Error] when it does not exist and cannot be built
      def self.program
        @program ||= begin
          folder = build_folder
          program = File.join(folder, NAME)
          File.open(folder) do |lock|
            lock.flock(File::LOCK_EX)
            make(folder)
            make(folder, "--always-make") unless system(program, "--help", out: File::NULL, err: File::NULL)
          end
          program
        end
      end

      def self.build_folder
        return SOURCE if File.writable?(SOURCE)

        File.join(ENV.fetch("XDG_CACHE_HOME") { File.join(Dir.home, ".cache") }, "heddle", "server-#{VERSION}")
          .tap { |folder| FileUtils.mkdir_p(folder) }
      rescue SystemCallError => error
        raise Error, "cannot build the load server: #{error.message}"
      end

      def self.make(folder, *options)
        output, status = Open3.capture2e("make", "-C", folder, "-f", File.join(SOURCE, "Makefile"), *options)
        unless status.success?
          raise Error, "cannot build the load server in #{folder} (is a C compiler installed?):\n#{output}"
        end
      rescue Errno::ENOENT
        unless File.executable?(File.join(folder, NAME))
          raise Error, "the load server is not built and make is not installed: install make and a C compiler"
        end
      end
      private_class_method :build_folder, :make

      # Ends the server and waits until it has ended.
      # @return [Process::Status, nil] nil if it was stopped before
      def stop
        return unless @pid

        Process.kill(:TERM, @pid)
        _, status = Process.wait2(@pid)
        @pid = nil
        [@output, @input].compact.each(&:close)
        status
      end

      private

      # Starts the program and waits until it listens.
      # @param what [String] the name of the server, for the error
      # @param core [Integer, nil] the core to pin it to
      # @param program [String, Array<String>] with arguments that come before all others
      # @param input [Boolean] whether the program gets a standard input, which @input writes to
      def launch(what, arguments, bind:, port:, core:, program:, input: false)
        command =
          [*Affinity.prefix(core), *program, "--bind", bind, "--port", port.to_s, "--exit-with-parent", *arguments]
        @output, output = IO.pipe
        errors, error = IO.pipe
        stdin, @input = IO.pipe if input
        @pid = Process.spawn(*command, in: stdin || File::NULL, out: output, err: error)
        [output, error, stdin].compact.each(&:close)
        line = @output.gets
        unless line
          Process.wait(@pid)
          raise Error, "the #{what} did not start: #{errors.read.lines.first.to_s.strip}"
        end
        @host, @port = line.split.last.split(":").then { |host, number| [host, Integer(number)] }
      ensure
        errors&.close
      end
    end
  end
end
