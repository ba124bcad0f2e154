# frozen_string_literal: true

require "test_helper"
require "heddle/db/mysql"

# Rows become Hashes, with conversions by C and by the caller.
class RowHashesTest < Minitest::Test
  RowHashes = Heddle::DB.const_get(:RowHashes)

  def hashes(rows, names, casts = nil) = [].tap { |all| RowHashes.each(rows, names, casts) { |hash| all << hash } }

  def cast(text, how) = hashes([[text]], [:a], [how]).first[:a]

  def test_rows_without_conversions
    assert_equal [{:a => 1, "b" => nil}, {:a => 2, "b" => "x"}], hashes([[1, nil], [2, "x"]], [:a, "b"])
    assert_equal [{a: 2}], hashes([[1, 2]], %i[a a]), "the last one of several with one name"
    assert_equal [{}], hashes([[]], [])
    assert_empty hashes([], [:a])
    many = Array.new(1700) { |n| :"c#{n}" }
    assert_equal [many.zip(0..).to_h], hashes([(0...1700).to_a], many)
  end

  def test_conversions
    {[:integer, "-9223372036854775809"] => -9223372036854775809, [:float, "1.5e-3"] => 0.0015, [:boolean, "t"] => true,
     [:boolean, "f"] => false, [:decimal, "1.50"] => BigDecimal("1.5"), [:upcase.to_proc, "a"] => "A",
     [[:float, ->(text) { text.to_sym }], "NaN"] => :NaN, [[:float, ->(text) { text.to_sym }], "Infinity"] => :Infinity}
      .each { |(how, text), value| assert_equal value, cast(text, how) }
    %i[integer float boolean decimal date time].each { |how| assert_nil cast(nil, how) }
    assert_nil cast(nil, ->(_) { flunk })
  end

  def test_times
    {"2024-02-29 12:34:56" => Time.utc(2024, 2, 29, 12, 34, 56), "0001-01-01 00:00:00" => Time.utc(1, 1, 1),
     "2024-12-31 23:59:59.000001" => Time.utc(2024, 12, 31, 23, 59, Rational(59_000_001, 1_000_000)),
     "1969-12-31 23:59:59.5+02" => Time.utc(1969, 12, 31, 21, 59, 59.5),
     "1899-12-31 00:00:00-00:25:21" => Time.utc(1899, 12, 31, 0, 25, 21),
     "9999-03-01 01:00:00+05:30" => Time.utc(9999, 2, 28, 19, 30)}.each do |text, time|
      assert_equal [time, true], cast(text, [:time, nil, :utc, :utc]).then { |found| [found, found.utc?] }, text
      local = cast(text, [:time, nil, :local, :local])
      refute_predicate local, :utc?
      naive = Time.local(*time.to_a.values_at(5, 4, 3, 2, 1, 0)) + time.subsec
      assert_equal text.match?(/:\d+[+-]|5[+-]/) ? time : naive, local, text
    end
  end

  def test_texts_in_other_forms_go_to_the_callers_block
    ["infinity", "12024-01-01 00:00:00", "2024-01-01 00:00:00 BC", "2024-13-01 00:00:00", "2024-01-01", "",
      "2024-01-01 24:00:00", "2024-01-01 00:00:00.", "2024-01-01 00:00:00+", "2024-01-01 00:00:00+1"].each do |text|
      own = ->(found) { [:own, found] }
      assert_equal [:own, text], cast(text, [:time, own, :utc]), text
      assert_raises(ArgumentError, text) { cast(text, :time) }
      assert_equal [:own, text], cast(text, [:date, own]) unless text == "2024-01-01"
    end
  end

  def test_the_zone_of_a_time
    text, with_offset = "2024-07-01 12:00:00", "2024-07-01 12:00:00+07"
    local = Time.local(2024, 7, 1, 12)
    {[:utc, nil] => [0, 7 * 3600], [:local, nil] => [local.utc_offset, 7 * 3600], [:utc, :utc] => [0, 0],
     [:utc, :local] => [local.utc_offset] * 2, [:local, :utc] => [0, 0]}.each do |(read, made), offsets|
      times = [text, with_offset].map { |each| cast(each, [:time, nil, read, made]) }
      assert_equal offsets, times.map(&:utc_offset), [read, made]
      assert_equal [(read == :utc) ? Time.utc(2024, 7, 1, 12) : local, Time.utc(2024, 7, 1, 5)], times
    end
  end

  def test_dates
    assert_equal [Date.new(2024, 2, 29), Date.new(1, 1, 1)], [cast("2024-02-29", :date), cast("0001-01-01", :date)]
    ["2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "2024-00-01", "2024-01-00"].each do |text|
      assert_raises(ArgumentError, text) { cast(text, :date) }
      assert_raises(ArgumentError, text) { cast("#{text} 00:00:00", :time) }
    end
    assert_equal Date.new(2000, 2, 29), cast("2000-02-29", :date)
  end

  # SQLite stores numbers in any column.
  def test_numbers_in_place_of_text
    assert_equal [7, 1.5], [cast(7, :integer), cast(1.5, :float)]
    {integer: 1.5, float: 7, decimal: 7, date: 2460370, time: 0, boolean: 1}.each do |how, number|
      assert_raises(TypeError) { cast(number, how) }
      assert_equal [:own, number], cast(number, [how, ->(found) { [:own, found] }])
    end
  end

  def test_invalid_arguments
    assert_raises(ArgumentError) { cast("1", :number) }
    assert_raises(TypeError) { hashes([1], [:a]) }
    assert_raises(TypeError) { hashes(nil, [:a]) }
    assert_raises(IndexError) { cast("1", ->(_) { raise IndexError }) }
    rows = [["1"], ["2"]]
    assert_equal [{a: "1"}], [].tap { |all| RowHashes.each(rows, [:a], nil) { |hash| all << hash && rows.clear } }
  end
end
