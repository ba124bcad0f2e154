# frozen_string_literal: true

require "heddle/lab/workload"

module Heddle
  module Lab
    class Workload
      class Deadlines < Workload
        # Unmodified clients, each with three values to read. Each value has its own length and letter, which reveals
        # the answer to another request.
        module Clients
          # The gem, and the file that is required.
          GEMS = {"dalli" => %w[dalli], "redis-client" => %w[redis-client redis_client],
                  "pg" => %w[pg], "mysql2" => %w[mysql2], "trilogy" => %w[trilogy],
                  "Net::HTTP" => %w[net-http net/http]}.freeze

          # @param name [String]
          # @return [Class]
          def self.fetch(name)
            {"dalli" => Memcached, "redis-client" => Redis, "pg" => PostgreSQL, "mysql2" => MySQL2,
             "trilogy" => TrilogyClient, "Net::HTTP" => HTTP}.fetch(name)
          end

          # The base of all clients.
          class Client
            # @param i [Integer]
            # @return [String]
            def self.value(i) = "abc"[i] * (10_000 + i)

            # Stores the values on the server. Databases compute theirs.
            def self.store(params)
            end

            # Connects and logs in.
            # @param params [Hash{String => Object}] host, port, and the account
            # @param timeout [Numeric] the client's own, in seconds
            def initialize(params, timeout)
              @host, @port, @username, @password, @database =
                params.values_at("host", "port", "username", "password", "database")
              @timeout = timeout
              connect
            end

            # @return [Boolean] whether the answer was right
            def read(i) = fetch(i) == Client.value(i)

            # Logs in again.
            def reconnect
              connect
              nil
            end
          end

          class Memcached < Client
            def self.store(params)
              cache = Dalli::Client.new("#{params["host"]}:#{params["port"]}", raw: true)
              3.times { |i| cache.set("deadlines:#{i}", value(i)) }
              cache.close
            end

            private

            def connect
              @cache = Dalli::Client.new("#{@host}:#{@port}", socket_timeout: @timeout, protocol: :meta, raw: true)
            end

            def fetch(i) = @cache.get("deadlines:#{i}")
          end

          class Redis < Client
            def self.store(params)
              redis = RedisClient.new(host: params["host"], port: params["port"])
              3.times { |i| redis.call("SET", "deadlines:#{i}", value(i)) }
              redis.close
            end

            private

            def connect = @redis = RedisClient.new(host: @host, port: @port, timeout: @timeout)

            def fetch(i) = @redis.call("GET", "deadlines:#{i}")
          end

          # Databases compute the value.
          class Database < Client
            private

            def statement(i) = "select repeat('#{"abc"[i]}', #{10_000 + i}) as value"

            def account = {host: @host, port: @port, username: @username, password: @password, database: @database}
          end

          class PostgreSQL < Database
            private

            def connect
              @db = PG.connect(host: @host, port: @port, user: @username, password: @password, dbname: @database)
            end

            def fetch(i) = @db.exec(statement(i)).getvalue(0, 0)
          end

          class MySQL2 < Database
            private

            def connect
              @db = Mysql2::Client.new(**account, connect_timeout: @timeout, read_timeout: @timeout,
                write_timeout: @timeout)
            end

            def fetch(i) = @db.query(statement(i)).first.fetch("value")
          end

          class TrilogyClient < Database
            private

            def connect
              @db = ::Trilogy.new(**account, connect_timeout: @timeout, read_timeout: @timeout, write_timeout: @timeout)
            end

            def fetch(i) = @db.query(statement(i)).to_a.first.first
          end

          class HTTP < Client
            # @see Client#read
            def read(i)
              body = @http.get("/b/#{10_000 + i}").body
              body.bytesize == 10_000 + i && body.start_with?("0")
            end

            private

            def connect
              @http = Net::HTTP.new(@host, @port)
              @http.open_timeout = @http.read_timeout = @http.write_timeout = @timeout
              @http.start
            end
          end
        end
      end
    end
  end
end
