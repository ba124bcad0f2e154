# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class DB < Queries
        # The floor: the bytes that Heddle sends, over plain sockets, without a client. The answers are not parsed: an
        # answer is complete when as many bytes have come as Heddle got for the same request.
        class Raw
          SLEEP = "select sleep(0.01)"
          # In MariaDB since 2017, the number of the statement that was prepared last.
          LAST = 0xffffffff
          # Bytes that are read at once.
          MOST = 64 << 10
          private_constant :SLEEP, :LAST, :MOST

          # @param db [Heddle::DB::Connection] logs in, and gives the number of bytes of an answer
          # @param count [Integer] of queries
          def initialize(db, count)
            @db = db
            @count = count
          end

          # A kept statement, executed with one number.
          def kept(meter)
            statement = @db.prepare("select 1 as a, ? as b")
            2.times { statement.query(1) } # the second answer and later ones omit the columns
            answer = received(@db) { statement.query(1) }
            id = statement.handle.id
            repeated(meter, answer) { |n| packet(0x17, [id, 0, 1, 0, 1, 8, n].pack("VCVCCvq<")) }
          end

          # New SQL, rows that are not parsed, and as many objects as a client makes of them.
          def rows(meter, sql, rows)
            answer = new_answer(@db, sql)
            repeated(meter, answer) do
              Objects.rows(rows)
              new_sql(sql)
            end
          end

          # New SQL on all these connections at once.
          def pool(meter, clients)
            answer = clients.map { |client| new_answer(client, SLEEP) }.max
            sockets = clients.map { |client| client.driver.stream.to_io }
            buffer = String.new(capacity: MOST)
            turns = @count / clients.size
            meter.measure do
              turns.times { at_once(sockets, new_sql(SLEEP), answer, buffer) }
              {"operations" => turns * clients.size, "ideal" => 0.01 / clients.size}
            end
          end

          private

          def packet(command, payload) = [payload.bytesize + 1, command].pack("VC").b + payload

          def new_sql(sql) = packet(0x16, sql) + packet(0x17, [LAST, 0, 1].pack("VCV"))

          def new_answer(client, sql)
            received(client) { client.query(sql) }.tap { client.flush_closes }
          end

          def received(client)
            before = client.driver.stream.statistics[:bytes_received]
            yield
            client.driver.stream.statistics[:bytes_received] - before
          end

          def repeated(meter, answer)
            socket = @db.driver.stream.to_io
            buffer = String.new(capacity: MOST)
            once = lambda do |n|
              socket.write(yield(n))
              left = answer
              left -= socket.readpartial(MOST, buffer).bytesize while left > 0
              raise "#{-left} bytes too many" if left < 0
            end
            (@count / 10).times(&once)
            meter.measure do
              @count.times(&once)
              {"operations" => @count}
            end
          end

          def at_once(sockets, request, answer, buffer)
            sockets.each { |socket| socket.write(request) }
            left = sockets.to_h { |socket| [socket, answer] }
            until left.empty?
              ready, = IO.select(left.keys)
              ready.each do |socket|
                got = socket.read_nonblock(MOST, buffer, exception: false)
                next if got == :wait_readable

                left.delete(socket) if (left[socket] -= got.bytesize) <= 0
              end
            end
          end
        end
        private_constant :Raw
      end
    end
  end
end
