# frozen_string_literal: true

require "test_helper"
require "heddle/db"
require "tmpdir"

# The name of this process's time zone, for servers that are told of it.
class TimeZoneTest < Minitest::Test
  ZONE = Heddle::DB.const_get(:TimeZone)
  private_constant :ZONE

  def test_names
    {"Europe/Vienna" => "Europe/Vienna", ":Europe/Vienna" => "Europe/Vienna", "" => "UTC",
     "CET-1CEST,M3.5.0,M10.5.0/3" => "CET-1CEST,M3.5.0,M10.5.0/3", "/nowhere/at/all" => "UTC"}.each do |tz, name|
      with_tz(tz) { assert_equal name, ZONE.name, tz }
    end
  end

  def test_the_name_is_in_the_path_of_a_zone_s_file
    Dir.mktmpdir do |folder|
      FileUtils.mkdir_p("#{folder}/zoneinfo/posix/America")
      FileUtils.touch(file = "#{folder}/zoneinfo/posix/America/New_York")
      FileUtils.ln_s(file, protocol = "#{folder}/localtime")
      with_tz(protocol) { assert_equal "America/New_York", ZONE.name }
      FileUtils.touch(copy = "#{folder}/copy")
      with_tz(copy) { assert_nil ZONE.name }
    end
  end

  def test_offsets
    with_tz("CET-1CEST,M3.5.0,M10.5.0/3") { assert_equal [3600, 7200], ZONE.offsets.sort }
    with_tz("<+0530>-05:30") { assert_equal [19_800], ZONE.offsets }
    assert_operator ZONE.moments.max - ZONE.moments.min, :>, 365 * 86_400
  end

  private

  def with_tz(value)
    before, ENV["TZ"] = ENV["TZ"], value
    yield
  ensure
    ENV["TZ"] = before
  end
end
