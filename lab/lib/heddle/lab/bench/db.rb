# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # Clients of MySQL and MariaDB on the loopback.
      class DB < Queries
        bench "db",
          about: "clients of MariaDB or MySQL: new statements, kept ones, rows, pipelines, pools shared by tasks",
          kinds: {"raw" => :none, "heddle" => :none, "heddle_multiplexed" => :none, "mysql2" => :none,
                  "mysql2_text" => :none, "trilogy" => :none, "sequel_heddle" => :none, "sequel_mysql2" => :none,
                  "sequel_trilogy" => :none},
          default_models: %w[raw heddle heddle_multiplexed mysql2 mysql2_text trilogy sequel_heddle sequel_mysql2
            sequel_trilogy],
          peers: %w[mysql2 mysql2_text trilogy sequel_mysql2 sequel_trilogy]

        OPERATIONS = {
          "new" => ["new SQL with an argument", 5000],
          "kept" => ["a statement that is kept", 5000],
          "rows" => ["1000 rows of int, varchar, datetime", 200],
          "pipeline" => ["100 queries at once, each", 10_000],
          "pool" => ["50 tasks, a pool of 50, sleep(0.01)", 500],
          "pool_tasks" => ["100 tasks, one query each, a pool of 10", 10_000],
          "pool_far" => ["100 tasks, one query each, 10 ms away", 3000]
        }.freeze
        # The models that can run these cases.
        MODELS = {"new" => %w[heddle mysql2 mysql2_text trilogy sequel_heddle sequel_mysql2 sequel_trilogy],
                  "kept" => %w[raw heddle mysql2 sequel_heddle sequel_mysql2 sequel_trilogy],
                  "rows" => %w[raw heddle mysql2 mysql2_text trilogy sequel_heddle sequel_mysql2 sequel_trilogy],
                  "pipeline" => %w[heddle], "pool" => %w[raw heddle],
                  "pool_tasks" => %w[heddle heddle_multiplexed], "pool_far" => %w[heddle heddle_multiplexed]}.freeze
        # Only for the case whose ideal time is known.
        SLOWNESS = Metric.new(key: :slowness, title: "Wall as a multiple of the ideal, 10 ms for 50 queries at once",
          better: :lower, value: ->(m) { m["ideal"] && m["wall"] / m["operations"] / m["ideal"] })
        SERVERS = {mariadb: "MariaDB", mysql: "MySQL"}.freeze
        private_constant :OPERATIONS, :MODELS, :SLOWNESS, :SERVERS

        # @see Bench#reference_for
        def reference_for(_, present) = %w[mysql2 mysql2_text].find { |name| present.include?(name) } || present.first

        # @see Bench#title
        def title = "Clients of #{SERVERS.fetch(server_kind)} on the loopback"

        # @see Bench#define_options
        def define_options(parser)
          super
          parser.on("--server NAME", "mariadb (the default) or mysql, which script/mysql fetches") do |name|
            @server_kind = known("server", [name], SERVERS.keys.map(&:to_s)).first.to_sym
          end
        end

        # @see Bench#options
        def options = {**super, "server" => @server_kind&.to_s}.compact

        # @see Bench#open
        def open(affinity)
          super do
            log_in_once if server_kind == :mysql
            yield
          end
        end

        # @see Bench#applies?
        def applies?(model, bench_case)
          return super unless server_kind == :mysql

          super && model.kind != "heddle_multiplexed" &&
            !(model.kind == "raw" && bench_case.params["operation"] != "kept")
        end

        # @see Bench#tables
        def tables(summary)
          usual_tables(summary, ["mysql2: prepare, execute, close, as for each new statement with arguments; " \
            "mysql2_text, trilogy: the values pasted into the SQL",
            "heddle_multiplexed: the statements of all tasks in flight at once; 10 ms away, behind a proxy, on 2 " \
            "connections instead of 10",
            "raw, the floor: Heddle's own bytes over plain sockets, by write, select and read alone, " \
            "and nothing is understood of the answers; of rows, the same objects made by a few lines of C" \
            "#{"; new SQL in one packet, which raw sends, is MariaDB's alone" if server_kind == :mysql}",
            "sequel_…: Sequel over Heddle, mysql2 and trilogy; values of new SQL are pasted into it; rows are " \
            "Hashes; over trilogy, a kept statement is text, too"],
            slowness(summary))
        end

        private

        def operations = OPERATIONS

        def models_of = MODELS

        def server_kind = @server_kind || :mariadb

        # The first full log-in of a user to MySQL takes TLS or the server's public key, which not all clients ask for.
        # Then the server has the password in its cache, and all clients log in the same way. In a child, so that no
        # model's process has Heddle loaded that does not use it.
        def log_in_once
          pid = fork do
            require "heddle"
            Heddle::DB.connect(@server.url).close
            exit!(true) # without this process's at_exit handlers
          rescue => error
            warn error.full_message
            exit!(false)
          end
          raise Error, "Heddle cannot log in to MySQL" unless Process.wait2(pid).last.success?
        end

        def slowness(summary)
          name = OPERATIONS.fetch("pool").first
          if summary.cases.include?(name)
            Report::Matrix.new(summary, self, models_down: false, cases: [name]).values(SLOWNESS)
          end
        end
      end
    end
  end
end
