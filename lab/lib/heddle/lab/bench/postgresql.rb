# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # Clients of PostgreSQL on the loopback.
      class PostgreSQL < Queries
        bench "postgresql",
          about: "clients of PostgreSQL: new statements, kept ones, rows, pipelines, COPY, a pool shared by tasks",
          kinds: {"heddle" => :none, "heddle_multiplexed" => :none, "pg" => :none, "sequel" => :none,
                  "sequel_heddle" => :none, "racket" => :none, "asyncpg" => :none, "postgres.js" => :none},
          default_models: %w[heddle heddle_multiplexed pg sequel sequel_heddle racket],
          peers: %w[pg sequel racket asyncpg postgres.js]

        OPERATIONS = {
          "new" => ["new SQL with an argument", 5000],
          "prepared" => ["prepare, execute, deallocate", 3000],
          "kept" => ["a statement that is kept", 5000],
          "rows" => ["1000 rows of int, text, timestamp", 200],
          "single" => ["1000 such rows, one after another", 200],
          "pipeline" => ["100 queries at once, each", 10_000],
          "copy" => ["COPY in, each row of int, text, float", 1_000_000],
          "copy_raw" => ["COPY in, such a row as ready-made text", 1_000_000],
          "copy_binary" => ["COPY in, binary, each such row", 1_000_000],
          "copy_raw_binary" => ["COPY in, binary, such a row ready-made", 1_000_000],
          "pool" => ["100 tasks, one query each, a pool of 10", 10_000],
          "pool_far" => ["100 tasks, one query each, 10 ms away", 3000]
        }.freeze
        EVERYWHERE = %w[heddle pg sequel sequel_heddle racket].freeze
        LANGUAGES = %w[asyncpg postgres.js].freeze
        MODELS = {"new" => EVERYWHERE, "kept" => EVERYWHERE + LANGUAGES, "rows" => EVERYWHERE + LANGUAGES,
                  "prepared" => %w[heddle pg],
                  "single" => %w[heddle pg], "pipeline" => %w[heddle pg], "copy" => %w[heddle pg],
                  "copy_raw" => %w[heddle pg], "copy_binary" => %w[heddle pg], "copy_raw_binary" => %w[heddle pg],
                  "pool" => %w[heddle heddle_multiplexed pg sequel sequel_heddle] + LANGUAGES,
                  "pool_far" => %w[heddle heddle_multiplexed]}.freeze
        private_constant :OPERATIONS, :EVERYWHERE, :LANGUAGES, :MODELS

        # @see Bench#params
        def params(bench_case) = super.merge("socket" => File.join(@server.socket_dir, ".s.PGSQL.#{@server.port}"))

        # @see Bench#reference_for
        def reference_for(_, present) = present.include?("pg") ? "pg" : present.first

        # @see Bench#title
        def title = "Clients of PostgreSQL on the loopback"

        # @see Bench#tables
        def tables(summary)
          notes = ["pg: exec_params, prepare with exec_prepared and DEALLOCATE, and its pipeline mode; rows one " \
            "after another by its single row mode, in Heddle by each_row, a cursor; values are converted by its " \
            "BasicTypeMapForResults, as Heddle's are typed; COPY by put_copy_data with its encoders; ready-made " \
            "rows, by copy.write and put_copy_data, show what the server takes by itself; its " \
            "pool is the gem connection_pool, with the tasks in Heddle's loop",
            "heddle_multiplexed: the statements of all tasks in flight at once; 10 ms away, behind a proxy, on 2 " \
            "connections instead of 10",
            "sequel: over pg, sequel_heddle: over Heddle; values of new SQL are pasted into it, a kept statement is " \
            "prepared; rows are Hashes; its own pool, with heddle/sequel",
            "racket: its db library over the UNIX socket (its SCRAM and OpenSSL 3 do not fit), in a process that " \
            "measures itself, as do asyncpg with uvloop, whose pool resets each connection that it takes back, and " \
            "postgres.js, which pipelines the pool's queries"]
          usual_tables(summary, notes)
        end

        private

        def operations = OPERATIONS

        def models_of = MODELS

        def server_kind = :postgresql
      end
    end
  end
end
