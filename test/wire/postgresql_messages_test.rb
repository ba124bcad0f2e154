# frozen_string_literal: true

require "test_helper"
require "socket"
require "support/postgresql_wire"
require "support/servers"

# wire/postgresql/messages.c and wire/postgresql/requests.c beside a real server: it understands what is written, and
# what it answers is read.
class PostgreSQLMessagesTest < Minitest::Test
  PROTOCOL = 0x30000

  def setup
    server = Servers.postgresql
    @socket = UNIXSocket.new("#{server.socket_dir}/.s.PGSQL.#{server.port}")
    settings = "user\0#{server.username}\0database\0postgres\0\0"
    @socket.write([8 + settings.bytesize, PROTOCOL].pack("NN") + settings)
    read_to_ready
  end

  def teardown
    @socket&.close
  end

  def test_a_statement_in_one_flight
    assert_equal "1 2 T[a 23][b 25] D[1][seven] D[2][seven] C[SELECT 2] 3 Z[I] 0",
      ask("select a, $1::text as b from generate_series(1, 2) a", "seven")
    assert_equal "E[42P01] Z[I] 0", ask("select $1 from nowhere", "x")
  end

  # Whole messages alone are read; what is left is more to come.
  def test_replies_that_stop_at_every_byte
    @socket.write([PostgreSQLWire.ask("one_flight", "select $1::int4 as a", "7")].pack("H*"))
    reply = read_to_ready
    whole = ["1", "2", "T[a 23]", "D[7]", "C[SELECT 1]", "3", "Z[I]"]
    counts = (0..reply.bytesize).map do |length|
      *messages, left = PostgreSQLWire.ask("messages", reply[0, length]).split(/ (?![^\[]*\])/)
      assert_equal whole.first(messages.size), messages, "after #{length} bytes"
      assert_operator left.to_i, :<=, length
      messages.size
    end
    assert_equal [0, *whole.each_index.map { |index| index + 1 }], counts.uniq
  end

  def test_values_that_cannot_be_sent_are_refused
    assert_equal "NUL in string, too long, too many, out of range, 0", PostgreSQLWire.ask("refusals")
  end

  def test_counts_of_parameters
    assert_match(/\Awritten 2621\d\d\z/, PostgreSQLWire.ask("bind_many"))
    {"bind_too_many" => "too many", "bind_too_few" => "count differs", "bind_one_more" => "count differs",
     "bind_other_formats" => "formats differ"}.each do |question, refusal|
      assert_equal "#{refusal} 0", PostgreSQLWire.ask(question)
    end
  end

  private

  def ask(sql, value)
    @socket.write([PostgreSQLWire.ask("one_flight", sql, value)].pack("H*"))
    PostgreSQLWire.ask("messages", read_to_ready)
  end

  # All up to ReadyForQuery.
  def read_to_ready
    reply = +"".b
    reply << @socket.readpartial(4096) until reply[-6, 5] == "Z\0\0\0\5".b
    reply
  end
end
