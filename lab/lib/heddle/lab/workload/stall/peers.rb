# frozen_string_literal: true

require "heddle/lab/workload/system_calls"
require "socket"

module Heddle
  module Lab
    class Workload
      class Stall < Workload
        # The clients beside Heddle that are gems. Each prepares, executes and closes a statement with an argument, and
        # returns the argument; those whose kind ends in "_text" send one text instead.
        module Peers
          # The gem mysql2.
          class MySQL2
            def initialize(uri, text)
              require "mysql2"
              @text = text
              @client = Mysql2::Client.new(host: uri.host, port: uri.port, username: uri.user, password: uri.password,
                database: uri.path.delete_prefix("/"))
            end

            def socket = Socket.for_fd(@client.socket).tap { |io| io.autoclose = false }

            def one(number)
              return @client.query("select #{number} as a, #{number} as b", as: :array).to_a[0][1] if @text

              statement = @client.prepare("select #{number} as a, ? as b")
              statement.execute(number, as: :array).to_a[0][1].tap { statement.close }
            end
          end

          # The gem pg.
          class PG
            def initialize(uri, text)
              require "pg"
              @text = text
              @client = ::PG.connect(uri.to_s)
            end

            def socket = @client.socket_io

            def one(number)
              return @client.exec("select #{number} as a, #{number} as b").getvalue(0, 1).to_i if @text

              @client.prepare("s", "select #{number} as a, $1::int as b")
              value = @client.exec_prepared("s", [number]).getvalue(0, 1).to_i
              @client.exec("deallocate s")
              value
            end
          end

          # The gem sqlite3.
          class SQLite3
            def initialize(_uri, _text)
              require "sqlite3"
              @client = ::SQLite3::Database.new(":memory:")
            end

            def socket = nil

            def one(number)
              statement = @client.prepare("select #{number} as a, ? as b")
              statement.bind_param(1, number)
              statement.step[1].tap { statement.close }
            end
          end

          # The gem ruby-odbc.
          class RubyODBC
            def initialize(uri, _text)
              require "odbc"
              driver = ::ODBC::Driver.new
              driver.name = "bench"
              uri.delete_prefix("odbc:").split(";").each do |pair|
                name, value = pair.split("=", 2)
                driver.attrs[name] = value
              end
              @client = ::ODBC::Database.new.drvconnect(driver)
            end

            def socket = nil

            def one(number)
              statement = @client.prepare("select #{number} as a, ? as b")
              statement.execute(number)
              statement.fetch[1].to_i.tap { statement.drop }
            end
          end

          # Kinds of model: the gem, the library that it is loaded by, its class.
          OF = {"mysql2" => ["mysql2", "mysql2", :MySQL2], "mysql2_text" => ["mysql2", "mysql2", :MySQL2],
                "pg" => ["pg", "pg", :PG], "pg_text" => ["pg", "pg", :PG],
                "sqlite3" => ["sqlite3", "sqlite3", :SQLite3],
                "ruby_odbc" => ["ruby-odbc", "odbc", :RubyODBC]}.freeze
          # The same queries in a process of their own, for strace: this file, the kind, where, how many.
          PROGRAM = <<~RUBY
            require "uri"
            require "heddle/lab/workload"
            require "heddle/lab/workload/stall"
            kind, where, count = ARGV
            client = Heddle::Lab::Workload::Stall::Peers.open(kind, where)
            count.to_i.times { |n| client.one(n) }
          RUBY
          private_constant :PROGRAM

          module_function

          # @param kind [String]
          # @param where [String] the address of the database
          # @return [Object] a client
          def open(kind, where)
            uri = where.start_with?("odbc:") ? where : URI(where)
            const_get(OF.fetch(kind).last).new(uri, kind.end_with?("_text"))
          end

          # @param kind [String]
          # @param where [String] the address of the database
          # @param count [Integer] of queries
          # @return [Array<String>] a command for {SystemCalls}
          def command(kind, where, count) = SystemCalls.ruby(PROGRAM, kind, where, count.to_s)
        end
      end
    end
  end
end
