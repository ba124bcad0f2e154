# frozen_string_literal: true

require "tmpdir"

module Heddle
  module Lab
    class Bench
      # Clients of SQLite, on a file with a write-ahead log.
      class SQLite < Queries
        bench "sqlite",
          about: "clients of SQLite: one row by its key, new statements and their closes, rows, writes",
          kinds: {"heddle" => :none, "sqlite3" => :none, "extralite" => :none, "sequel" => :none,
                  "sequel_heddle" => :none},
          default_models: %w[heddle sqlite3 extralite sequel sequel_heddle],
          peers: %w[sqlite3 extralite sequel]

        OPERATIONS = {
          "kept" => ["one row by its key, a statement that is kept", 20_000],
          "query" => ["one row by its key, as text with an argument", 20_000],
          "new" => ["new SQL with an argument", 10_000],
          "prepared" => ["new SQL, prepared, executed, closed", 10_000],
          "rows" => ["1000 rows of int, text, float", 200],
          "written" => ["an insert of its own transaction", 2000]
        }.freeze
        MODELS = {"prepared" => %w[heddle sqlite3 extralite]}.freeze
        private_constant :OPERATIONS, :MODELS

        # @see Bench#open
        def open(_affinity)
          Dir.mktmpdir("heddle-bench") do |folder|
            @folder = folder
            yield
          end
        end

        # @see Bench#params
        def params(bench_case) = bench_case.params.merge("path" => File.join(@folder, "base.db"))

        # @see Bench#reference_for
        def reference_for(_, present) = present.include?("sqlite3") ? "sqlite3" : present.first

        # @see Bench#title
        def title = "Clients of SQLite"

        # @see Bench#tables
        def tables(summary)
          usual_tables(summary, ["the libraries of sqlite3 and extralite need not be of one version; " \
            "Heddle's is that of sqlite3",
            "sqlite3, extralite: the GVL is held, and no other task runs during a statement",
            "sequel: over sqlite3, sequel_heddle: over Heddle; values of texts are pasted into them; rows are " \
            "Hashes, of which the bench makes Arrays"])
        end

        private

        def operations = OPERATIONS

        def models_of = MODELS
      end
    end
  end
end
