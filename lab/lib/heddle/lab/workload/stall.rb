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
          name, library, = Peers::OF[@kind]
          return [load_gem(name, library)] if name
          return [RacketProgram.version] if @kind == "racket"

          load_heddle.tap { require "heddle/db/odbc" if @params["database"] == "odbc" }
        end

        # @see Workload#perform
        def perform(meter)
          ENV.update(@params.fetch("environment"))
          @url = @params.fetch("url")
          if Peers::OF[@kind] then peer(meter)
          elsif @kind == "racket" then racket(meter)
          else heddle(meter)
          end
        end

        private

        def count = (((@kind == "nagle_flushed") ? FEW : MANY) * @params.fetch("scale")).ceil

        def repeated(meter, segments: nil, calls: nil)
          (count / 10).times { |n| check(yield(-n), -n) }
          before = [segments&.call, calls&.call]
          meter.measure do
            (1..count).each { |n| check(yield(n), n) }
            {"operations" => count}
          end
          meter.measures["segments"] = segments.call - before[0] if segments
          meter.measures["system_calls"] = calls.call - before[1] if calls
        end

        def check(value, expected)
          raise "#{value.inspect} instead of #{expected}" unless value == expected
        end

        # PostgreSQL alone takes an argument without a type for text.
        def sql(number) = "select #{number} as a, ?#{"::int" if @params["database"] == "postgresql"} as b"

        def segments_of(socket)
          -> { socket.getsockopt(Socket::IPPROTO_TCP, Socket::TCP_INFO).data.unpack1("@#{SEGMENTS_SENT}L") }
        end

        def heddle(meter)
          db = Heddle::DB.connect(@url)
          flushed = @kind.end_with?("flushed")
          one_flight = @kind.start_with?("one_flight")
          repeated(meter, **(@params.fetch("wire") ? watched(db.driver.stream) : {})) do |n|
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

        def watched(stream)
          stream.to_io.setsockopt(:TCP, :NODELAY, !@kind.start_with?("nagle"))
          {segments: segments_of(stream.to_io), calls: -> { stream.statistics[:system_calls] }}
        end

        def peer(meter)
          client = Peers.open(@kind, @url)
          socket = client.socket
          repeated(meter, segments: (segments_of(socket) if socket)) { |n| client.one(n) }
          add_system_calls(meter) { |many| Peers.command(@kind, @url, many) } if @params.fetch("wire")
        end

        def racket(meter)
          client = Racket.new(URI(@url))
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

require_relative "stall/peers"
require_relative "stall/racket"
