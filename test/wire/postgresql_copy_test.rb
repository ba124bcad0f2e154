# frozen_string_literal: true

require "test_helper"
require "pg"
require "support/postgresql_wire"
require "support/servers"

# wire/postgresql/copy.c beside a real server: what COPY sends is read as the values of the table, and what is
# written for COPY is what the server reads.
class PostgreSQLCopyTest < Minitest::Test
  FORMS = {
    "text" => "format text", "text_other" => "format text, delimiter '|', null 'null'",
    "csv" => "format csv", "csv_other" => "format csv, delimiter ';', quote '''', escape '\\', null 'null'"
  }.freeze
  VALUES = [nil, "", "a", "null", "n|;,", "tab\there", "line\nline\r\n", "\b\f\v", "\\", "\\N", "\\.", "a\\", "\"",
    "say \"no\"", "it's", "'\\'", "ä€", " ", "\e\x01"].freeze

  def setup
    @connection = PG.connect(Servers.postgresql.url)
    @connection.exec("create temp table t (number serial, a text, b text)")
  end

  def teardown
    @connection&.close
  end

  def test_texts_that_the_server_sends_are_read
    VALUES.each { |value| @connection.exec_params("insert into t (a, b) values ($1, 'b')", [value]) }
    FORMS.each do |form, options|
      # The server escapes no value that reads as its NULL, and takes it for one itself.
      expected = VALUES.map { |value| [(value unless form == "text_other" && value == "null"), "b"] }
      data = +""
      @connection.copy_data("copy (select a, b from t order by number) to stdout (#{options})") do
        while (piece = @connection.get_copy_data) do data << piece end
      end
      assert_equal expected, values(PostgreSQLWire.ask("copy_out_#{form}", data)), form
    end
  end

  def test_texts_that_are_written_are_read_by_the_server
    FORMS.each do |form, options|
      @connection.exec("truncate t")
      @connection.copy_data("copy t (a, b) from stdin (#{options})") do
        VALUES.compact.each do |value|
          field = [PostgreSQLWire.ask("copy_in_#{form}", value)].pack("H*").force_encoding("UTF-8")
          delimiter = {"text" => "\t", "text_other" => "|", "csv" => ",", "csv_other" => ";"}[form]
          @connection.put_copy_data("#{field}#{delimiter}#{field}\n")
        end
      end
      read = @connection.exec("select a, b from t order by number").values
      assert_equal VALUES.compact.map { |value| [value, value] }, read, form
    end
  end

  def test_escapes_of_bytes
    answer = PostgreSQLWire.ask("copy_out_text", "\\101\\1\\x42\\0\\\\\t\\N\t\\q\\.\\x\n")
    assert_equal [["A\x01B\x00\\", nil, "q.x"]], values(answer)
  end

  # A carriage return in front of a line's end belongs to it, as files of Windows have it, unless it is escaped.
  def test_carriage_returns
    assert_equal [["a", "b"], ["c", "d\r"]], values(PostgreSQLWire.ask("copy_out_text", "a\tb\r\nc\td\\\r\n"))
    assert_equal [["a", "b"], ["c", "d\r"]], values(PostgreSQLWire.ask("copy_out_csv", "a,b\r\nc,\"d\r\"\n"))
  end

  private

  # The values of each record.
  def values(answer)
    records = answer.split("=").map { |record| record.split.map { |field| value(field) } }
    records.reject(&:empty?)
  end

  def value(field)
    [field.delete("-")].pack("H*").force_encoding("UTF-8") unless field == "NULL"
  end
end
