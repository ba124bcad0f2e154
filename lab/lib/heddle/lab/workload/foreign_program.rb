# frozen_string_literal: true

require "digest"
require "json"
require "open3"
require "uri"
require "heddle/lab/load_server"
require "heddle/lab/servers"

module Heddle
  module Lab
    class Workload
      # A program of another language (lab/peers), in a process that measures itself: it prints its measures as JSON.
      # Each subclass is a language.
      class ForeignProgram
        FOLDER = File.expand_path("../peers", __dir__)
        # Requests before the measurement. V8 compiles what has run often; after fewer, a request takes thrice the time.
        WARM_UPS = 5000
        private_constant :FOLDER

        # @param model [String] with or without "-kept"
        # @return [ForeignProgram, nil] the program that does the model's work
        def self.of(model)
          case model.delete_suffix("-kept")
          when "go" then Go.new("http_requests.go")
          when "aiohttp" then Python.new("http_requests.py", "python3-aiohttp python3-uvloop")
          when "undici" then Node.new("http_requests.js", "undici", "6.29.1")
          when "asyncpg" then Python.new("postgresql_queries.py", "python3-asyncpg python3-uvloop")
          when "postgres.js" then Node.new("postgresql_queries.js", "postgres", "3.4.9")
          end
        end

        # @param name [String] the program's file
        def initialize(name)
          @path = File.join(FOLDER, name)
        end

        # Builds or installs what can be.
        # @return [Array<String>] of the library and its language
        # @raise [LoadError] when one of them is missing
        def versions = raise(NotImplementedError)

        # @param arguments [Array<#to_s>] the program's
        # @return [Hash{String => Object}] the measures
        # @raise [RuntimeError] when the program failed
        def run(*arguments)
          output, errors, status = Open3.capture3(environment, *command, *arguments.map(&:to_s))
          raise "#{File.basename(@path)}: #{reason(errors)}" unless status.success?

          measures = JSON.parse(output)
          {**measures, "cpu" => measures["user"] + measures["system"], "allocations" => nil}
        end

        # Makes requests by a program for HTTP, and counts the connections that it makes.
        # @param url [String] of the load server
        # @param requests [Integer]
        # @param at_once [Integer]
        # @param kept [Boolean] whether connections are used again
        # @param warm_up [Hash{String => Integer}] URLs of the requests before, and their numbers
        # @return [Hash{String => Object}] the measures
        def request(url, requests, at_once:, kept:, warm_up:)
          before = connections(url)
          measures = run(url, requests, at_once, kept ? "kept" : "fresh", *warm_up.flatten)
          made = connections(url) - before - 1 # which asked
          return measures if measures["first_error"] || (kept ? made <= at_once : made >= requests)

          measures.merge("errors" => 1,
            "first_error" => "#{made} connections for #{requests} requests, #{at_once} at once#{", kept" if kept}")
        end

        private

        # @return [Array<String>] what runs the program
        def command = raise(NotImplementedError)

        def environment = {}

        def connections(url)
          uri = URI(url)
          LoadServer.stats(uri.host, uri.port).fetch("connections")
        end

        # @return [String] the line that names the error: Go and Node print where it was after it, Python before
        def reason(errors)
          lines = errors.lines.map(&:strip)
          lines.reverse.find { |line| line.match?(/\A[\w.]*(Error|Exception|panic)\b/) } || lines.first || "no answer"
        end

        # @param command [Array<String>]
        # @param debian [String] Debian's packages for it
        # @return [String] what it prints
        # @raise [LoadError] when it is not installed, or fails
        def output_of(*command, debian:)
          output, status = Open3.capture2e(environment, *command)
          status.success? ? output.strip : missing(reason(output), debian)
        rescue Errno::ENOENT
          missing("no #{command.first}", debian)
        end

        def missing(what, debian)
          raise LoadError, "what #{File.basename(@path)} uses is not installed: #{what} (Debian: apt install #{debian})"
        end

        # A program in Go, which is compiled once.
        class Go < ForeignProgram
          # @see ForeignProgram#versions
          def versions = [output_of("go", "version", debian: "golang-go")[/go[\d.]+/]].tap { program }

          private

          def command = [program]

          # One thread runs goroutines, as one thread runs the fibers of the others.
          def environment = {"GOMAXPROCS" => "1", "CGO_ENABLED" => "0"}

          def program
            @program ||= begin
              folder = Servers.cached("go-#{Digest::SHA256.file(@path).hexdigest[0, 16]}") do |made|
                output_of("go", "build", "-o", File.join(made, "program"), @path, debian: "golang-go")
              end
              File.join(folder, "program")
            end
          end
        end

        # A program in Python: the system's, whose libraries Debian has.
        class Python < ForeignProgram
          # @param name [String]
          # @param debian [String] Debian's packages for it
          def initialize(name, debian)
            super(name)
            @debian = debian
          end

          # @see ForeignProgram#versions
          def versions = output_of(*command, "--version", debian: @debian).split(", ")

          private

          def command = ["/usr/bin/python3", "-B", @path] # -B: the folder of the gem stays as it is
        end

        # A program for Node.js, with a package that npm installs at its first use.
        class Node < ForeignProgram
          # @param name [String]
          # @param package [String]
          # @param version [String] of the package
          def initialize(name, package, version)
            super(name)
            @package = package
            @version = version
          end

          # @see ForeignProgram#versions
          def versions
            ["#{@package} #{@version}", "Node.js #{output_of("node", "--version", debian: "nodejs")}"]
          rescue Servers::Unavailable => error
            raise LoadError, error.message
          end

          private

          def command = ["node", @path]

          def environment
            @environment ||= {"NODE_PATH" => File.join(Servers.node_package(@package, @version), "node_modules")}
          end
        end
        private_constant :Go, :Python, :Node
      end
    end
  end
end
