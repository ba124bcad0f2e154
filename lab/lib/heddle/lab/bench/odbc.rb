# frozen_string_literal: true

require "tmpdir"

module Heddle
  module Lab
    class Bench
      # Clients of ODBC, on a file of SQLite: the database takes little time, so that the clients' own is seen.
      class ODBC < Queries
        bench "odbc",
          about: "clients of ODBC: one row by its key, new statements and their closes, rows",
          kinds: {"heddle" => :none, "ruby_odbc" => :none},
          default_models: %w[heddle ruby_odbc],
          peers: %w[ruby_odbc]

        OPERATIONS = {
          "kept" => ["one row by its key, a statement that is kept", 10_000],
          "query" => ["one row by its key, as text with an argument", 10_000],
          "prepared" => ["new SQL, prepared, executed, closed", 5000],
          "rows" => ["1000 rows of int, text, float", 100]
        }.freeze
        DRIVERS = "/usr/lib/*/odbc/libsqlite3odbc.so"
        private_constant :OPERATIONS, :DRIVERS

        # @see Bench#open
        def open(_affinity)
          Dir.mktmpdir("heddle-bench") do |folder|
            @folder = folder
            driver = Dir[DRIVERS].first or raise Servers::Unavailable, "SQLite's ODBC driver is the Debian package " \
              "libsqliteodbc: install it, and unixodbc"
            File.write("#{folder}/odbcinst.ini", "[SQLite]\nDriver = #{driver}\n")
            File.write("#{folder}/odbc.ini", "")
            yield
          end
        end

        # @see Bench#params
        def params(bench_case)
          bench_case.params.merge("string" => "Driver=SQLite;Database=#{@folder}/base.db",
            "environment" => {"ODBCSYSINI" => @folder, "ODBCINI" => "#{@folder}/odbc.ini"})
        end

        # @see Bench#reference_for
        def reference_for(_, present) = present.include?("ruby_odbc") ? "ruby_odbc" : present.first

        # @see Bench#title
        def title = "Clients of ODBC"

        # @see Bench#tables
        def tables(summary)
          usual_tables(summary, ["ruby-odbc fetches a row a call, and no other task of its thread runs during a call",
            "Heddle hands each statement to a native thread"])
        end

        private

        def operations = OPERATIONS

        def models_of = {}
      end
    end
  end
end
