# frozen_string_literal: true

require "net/http"
require "socket"

module Heddle
  module Rails
    # Tries it: runs two queries on each database of the application, and two HTTP calls, in tasks at the same time,
    # beside a task that only counts the time. Prints what the checks find, and for each pair how long it took, and for
    # how long the other task was stopped.
    #
    # @api private
    class Doctor
      # What one query or call takes.
      SECONDS = 0.2
      # Whoever does not let other tasks run stops them for all of that time: a half of it is too much.
      STOPPED = 0.5
      # Other programs may take the processor in the middle: the best of so many tries counts.
      TRIES = 3
      # A query that takes that long, by the adapter; of SQLite, which has no sleep, one that counts.
      QUERIES = {
        "postgresql" => "SELECT pg_sleep(#{SECONDS})", "postgis" => "SELECT pg_sleep(#{SECONDS})",
        "mysql2" => "SELECT SLEEP(#{SECONDS})", "trilogy" => "SELECT SLEEP(#{SECONDS})",
        "sqlite3" => "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 2000000) " \
          "SELECT max(n) FROM c"
      }.freeze
      # Whose queries compute in this process: two of them take twice as long as one.
      COMPUTING = %w[sqlite3].freeze
      # Two that wait at the same time take at most so many times as long as one.
      OVERLAP = 1.6
      private_constant :SECONDS, :STOPPED, :TRIES, :QUERIES, :COMPUTING, :OVERLAP

      # @param app [Rails::Application]
      # @param out [IO]
      def initialize(app, out: $stdout)
        @app = app
        @out = out
      end

      # @return [Boolean] whether nothing was found
      def run
        found = Checks.new(@app).lines
        found.each { |line| @out.puts "!  #{line}" }
        [found.empty?, *databases, http].all?
      end

      private

      def databases
        return [] unless Object.const_defined?("ActiveRecord::Base")

        ::ActiveRecord::Base.connection_handler.connection_pool_list.map do |pool|
          name, adapter = pool.db_config.name, pool.db_config.adapter
          sql = QUERIES[adapter]
          next told(true, "#{name}: no query is known that takes some time by #{adapter}") unless sql

          try("two queries to #{name}", computes: COMPUTING.include?(adapter)) do
            pool.with_connection { |connection| connection.select_value(sql) }
          end
        end
      end

      # Of a server of our own, which answers late.
      def http
        server = TCPServer.new("127.0.0.1", 0)
        answering = Thread.new { serve(server) }
        try("two calls by Net::HTTP") { Net::HTTP.get("127.0.0.1", "/", server.local_address.ip_port) }
      ensure
        answering&.kill&.join
        server&.close
      end

      def serve(server)
        loop do
          Thread.new(server.accept) do |client|
            client.readpartial(1 << 12)
            sleep SECONDS
            client.write("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
          ensure
            client.close
          end
        end
      end

      def try(what, computes: false, &call)
        fine = one = two = stopped = nil
        TRIES.times do
          one, two, stopped = measure(&call)
          break if (fine = stopped < STOPPED * one && (computes || two < OVERLAP * one))
        end
        told(fine,
          format("%<what>s: one takes %<one>.0f ms, both %<two>.0f ms; other tasks stood still for %<stopped>.0f ms",
            what: what, one: one * 1e3, two: two * 1e3, stopped: stopped * 1e3))
      rescue => error
        told(false, "#{what}: #{error.class}: #{error.message.lines.first.to_s.chomp}")
      end

      def told(fine, line)
        @out.puts "#{fine ? "ok" : "! "} #{line}"
        fine
      end

      # @return [(Float, Float, Float)] seconds of one call, of two at the same time, and of the longest pause of a
      #   third task
      def measure(&call)
        Heddle.run do
          call.call # the first one opens the connection
          one = time { Heddle.spawn(&call).value }
          pauses = []
          watcher = Heddle.spawn { loop { pauses << time { sleep 0.001 } } }
          two = time { Array.new(2) { Heddle.spawn(&call) }.each(&:value) }
          sleep 0.002
          watcher.cancel
          [one, two, pauses.max]
        end
      end

      def time
        began = Clock.now
        yield
        Clock.now - began
      end
    end
  end
end
