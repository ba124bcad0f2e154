# frozen_string_literal: true

require "tmpdir"
require "uri"

module Heddle
  module Lab
    class Bench
      # The case of Racket's client of 2009: the cost of a close in its own packet, by Nagle's algorithm and a delayed
      # ACK.
      class Stall < Bench
        OWN = %w[nagle_flushed nagle_riding nodelay_flushed nodelay_riding one_flight_flushed one_flight].freeze
        # The libraries beside Heddle, of each database.
        PEERS = {"mariadb" => %w[mysql2 mysql2_text racket], "postgresql" => %w[pg pg_text], "sqlite" => %w[sqlite3],
                 "odbc" => %w[ruby_odbc]}.freeze
        # PostgreSQL's statement of one flight has no name, and so no close. SQLite has no message at all, and the
        # socket of ODBC belongs to its driver, MariaDB's, which switches Nagle's algorithm off.
        MODELS = {"mariadb" => OWN, "postgresql" => OWN - %w[one_flight_flushed],
                  "sqlite" => %w[nodelay_flushed one_flight], "odbc" => %w[nodelay_flushed nodelay_riding one_flight]}
          .to_h { |database, own| [database, own + PEERS.fetch(database)] }.freeze
        REFERENCES = PEERS.values.map(&:first).freeze
        TITLES = {"mariadb" => "MariaDB", "postgresql" => "PostgreSQL", "sqlite" => "SQLite in memory",
                  "odbc" => "MariaDB by ODBC"}.freeze
        WIRE = %w[mariadb postgresql].freeze
        ODBC_DRIVERS = "/usr/lib/*/odbc/libmaodbc.so"
        NO_SQLITE = "SQLite: not measured, for the gem sqlite3 is not installed (gem install sqlite3)"
        NO_ODBC = "MariaDB by ODBC: not measured, for MariaDB's ODBC driver is not installed (Debian's packages " \
          "odbc-mariadb and unixodbc)"

        bench "stall",
          about: "one new statement after another: Nagle on and off, the close sent at once or riding, " \
          "one flight or two",
          kinds: (OWN + PEERS.values.flatten).to_h { |kind| [kind, :none] },
          default_models: OWN + PEERS.values.flatten,
          peers: PEERS.values.flatten
        private_constant :OWN, :PEERS, :MODELS, :REFERENCES, :TITLES, :WIRE, :ODBC_DRIVERS, :NO_SQLITE,
          :NO_ODBC

        per = ->(key, scale = 1) { ->(m) { m[key] && m[key] * scale / m["operations"] } }
        WALL = Metric.new(key: :wall, title: "Wall µs per query", better: :lower, value: per.call("wall", 1e6))
        COST = Metric.new(key: :cost, title: "CPU µs per query", better: :lower, value: per.call("cpu", 1e6))
        SEGMENTS = Metric.new(key: :segments, title: "Segments with data that the client sends, per query (TCP_INFO)",
          better: :lower, value: per.call("segments"))
        CALLS = Metric.new(key: :calls, title: "System calls that send, wait and receive, per query", better: :lower,
          value: per.call("system_calls"))
        private_constant :WALL, :COST, :SEGMENTS, :CALLS

        # @see Bench#define_options
        def define_options(parser)
          parser.on("--databases NAMES", Array, "which to measure (#{TITLES.keys.join(",")})") do |asked|
            @databases = known("database", asked, TITLES.keys)
          end
          scale_option(parser, "statements")
        end

        # @see Bench#options
        def options = {"databases" => @databases, "scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= TITLES.slice(*@databases || here).map do |database, title|
            Case.new(name: title, params: {"database" => database, "scale" => @scale || 1})
          end
        end

        # @see Bench#applies?
        def applies?(model, bench_case) = MODELS.fetch(bench_case.params["database"]).include?(model.kind)

        # @see Bench#open
        def open(affinity)
          @urls = {"sqlite" => "sqlite::memory:"}
          databases = cases.map { |one| one.params["database"] }
          with_url(affinity, :postgresql, needed: databases.include?("postgresql")) do
            with_url(affinity, :mariadb, needed: databases.intersect?(%w[mariadb odbc])) do
              databases.include?("odbc") ? with_odbc { yield } : yield
            end
          end
        end

        # @see Bench#params
        def params(bench_case)
          database = bench_case.params["database"]
          bench_case.params.merge("url" => @urls.fetch(database), "wire" => WIRE.include?(database),
            "environment" => (database == "odbc") ? @odbc : {})
        end

        # @see Bench#reference_for
        def reference_for(_, present) = REFERENCES.find { |name| present.include?(name) } || present.first

        # @see Bench#references
        def references(models) = models.select { |model| REFERENCES.include?(model.kind) }

        # @see Bench#title
        def title = "A statement's close behind Nagle's algorithm: new SQL on the loopback"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self)
          notes = ["flushed: the close is sent at once, as Racket's client did before 2010; riding: " \
            "it goes ahead of the next statement",
            "nagle, nodelay: prepare and execution in a flight each; one_flight: together, without Nagle, " \
            "as Heddle::DB does it; PostgreSQL's has nothing to close",
            "SQLite closes at once; by ODBC, riding: with the next call of the connection's thread; MariaDB's " \
            "driver switches Nagle's algorithm off",
            "mysql2, pg, sqlite3, ruby_odbc: prepare, execute, close; …_text: no parameters, values pasted into the " \
            "SQL; racket: its db library",
            "system calls: our stream counts its own; those of others are counted by strace, " \
            "in a run beside the one that is measured"]
          notes << NO_SQLITE unless sqlite_gem? || @databases
          notes << NO_ODBC unless odbc_driver || @databases
          [matrix.values(WALL).tap { |table| table.notes.concat(notes) }, matrix.ratios(WALL), matrix.values(COST),
            matrix.values(SEGMENTS), matrix.values(CALLS), matrix.troubles].compact
        end

        private

        # @return [Array<String>] the databases that can be measured here
        def here
          missing = []
          missing << "sqlite" unless sqlite_gem?
          missing << "odbc" unless odbc_driver
          TITLES.keys - missing
        end

        def sqlite_gem? = Gem::Specification.find_all_by_name("sqlite3").any?

        def odbc_driver = Dir[ODBC_DRIVERS].first

        def with_url(affinity, kind, needed:)
          return yield unless needed

          with_server(affinity, kind) do
            @urls[kind.to_s] = @server.url
            yield
          end
        end

        def with_odbc
          driver = odbc_driver or raise Error, NO_ODBC
          uri = URI(@urls.fetch("mariadb"))
          @urls["odbc"] = "odbc:Driver=MariaDB;Server=#{uri.host};Port=#{uri.port};User=#{uri.user};" \
            "Password=#{uri.password};Database=#{uri.path.delete_prefix("/")}"
          Dir.mktmpdir("heddle-bench") do |folder|
            File.write("#{folder}/odbcinst.ini", "[MariaDB]\nDriver = #{driver}\n")
            File.write("#{folder}/odbc.ini", "")
            @odbc = {"ODBCSYSINI" => folder, "ODBCINI" => "#{folder}/odbc.ini"}
            yield
          end
        end
      end
    end
  end
end
