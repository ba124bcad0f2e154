# frozen_string_literal: true

require "heddle/lab/workload"
require "heddle/lab/workload/system_calls"
require "socket"
require "uri"

module Heddle
  module Lab
    class Workload
      # New SQL with an argument, one statement after another.
      class Stall < Workload
        for_bench "stall"

        # Numbers of queries: a query that stalls takes 44 ms.
        MANY = 3000
        FEW = 40
        # The offset in struct tcp_info of the number of data segments that were sent.
        SEGMENTS_SENT = 156
        private_constant :MANY, :FEW, :SEGMENTS_SENT

        # @see Workload#prepare
        def prepare
          case @kind
          when "mysql2", "mysql2_text" then [load_gem("mysql2")]
          when "racket" then [RacketProgram.version]
          else load_heddle
          end
        end

        # @see Workload#perform
        def perform(meter)
          @uri = URI(@params.fetch("url"))
          case @kind
          when "mysql2", "mysql2_text" then mysql2(meter)
          when "racket" then racket(meter)
          else heddle(meter)
          end
        end

        private

        def count = (((@kind == "nagle_flushed") ? FEW : MANY) * @params.fetch("scale")).ceil

        def repeated(meter, segments:, calls: -> {})
          (count / 10).times { |n| check(yield(-n), -n) }
          segments_before, calls_before = segments.call, calls.call
          meter.measure do
            (1..count).each { |n| check(yield(n), n) }
            {"operations" => count}
          end
          meter.measures["segments"] = segments.call - segments_before
          meter.measures["system_calls"] = calls.call - calls_before if calls_before
        end

        def check(value, expected)
          raise "#{value.inspect} instead of #{expected}" unless value == expected
        end

        def sql(number) = "select #{number} as a, ? as b"

        def segments_of(socket)
          -> { socket.getsockopt(Socket::IPPROTO_TCP, Socket::TCP_INFO).data.unpack1("@#{SEGMENTS_SENT}L") }
        end

        def heddle(meter)
          db = Heddle::DB.connect(@params.fetch("url"), timeout: 30)
          stream = db.driver.stream
          stream.to_io.setsockopt(:TCP, :NODELAY, !@kind.start_with?("nagle"))
          flushed = @kind.end_with?("flushed")
          one_flight = @kind.start_with?("one_flight")
          repeated(meter, segments: segments_of(stream.to_io), calls: -> { stream.statistics[:system_calls] }) do |n|
            if one_flight
              value = db.query(sql(n), n)[0][1]
            else
              statement = db.prepare(sql(n))
              value = statement.query(n)[0][1]
              statement.close
            end
            db.flush_closes if flushed
            value
          end
        end

        def mysql2(meter)
          client = Mysql2::Client.new(host: @uri.host, port: @uri.port, username: @uri.user, password: @uri.password,
            database: @uri.path.delete_prefix("/"))
          socket = Socket.for_fd(client.socket).tap { |io| io.autoclose = false }
          repeated(meter, segments: segments_of(socket)) do |n|
            next client.query("select #{n} as a, #{n} as b", as: :array).to_a[0][1] if @kind == "mysql2_text"

            statement = client.prepare(sql(n))
            statement.execute(n, as: :array).to_a[0][1].tap { statement.close }
          end
          add_system_calls(meter) { |many| mysql2_command(many) }
        end

        # The same queries by mysql2, for strace: host, port, user, password, base, text or not, how many.
        MYSQL2 = <<~RUBY
          require "mysql2"
          host, port, user, password, base, kind, count = ARGV
          client = Mysql2::Client.new(host: host, port: port.to_i, username: user, password: password, database: base)
          count.to_i.times do |n|
            next client.query("select \#{n} as a, \#{n} as b", as: :array).to_a if kind == "mysql2_text"

            statement = client.prepare("select \#{n} as a, ? as b")
            statement.execute(n, as: :array).to_a
            statement.close
          end
        RUBY
        private_constant :MYSQL2

        def mysql2_command(count)
          SystemCalls.ruby(MYSQL2, @uri.host, @uri.port.to_s, @uri.user, @uri.password,
            @uri.path.delete_prefix("/"), @kind, count.to_s)
        end

        def racket(meter)
          client = Racket.new(@uri)
          measures = client.run(count) { |socket| socket && segments_of(socket).call }
          meter.measure { {"operations" => count} }
          meter.measures.merge!(measures)
          add_system_calls(meter) { |many| client.command(many) }
        end

        def add_system_calls(meter, &command)
          calls = SystemCalls.each_time(&command)
          meter.measures["system_calls"] = calls * count if calls
        end
      end
    end
  end
end

require_relative "stall/racket"
