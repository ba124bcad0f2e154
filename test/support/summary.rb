# frozen_string_literal: true

require "json"

# Tells what ran where, from the record that the test processes wrote (see record.rb), and what did not run, with the
# reasons.
class TestSummary
  # The suite of a test file: its folder below test/.
  def self.suite(file)
    file[%r{\Atest/([^/]+)/}, 1] || "-"
  end

  def initialize(record)
    @record = record
    @checks = []
    @not_run = []
    @broken = []
    @newer = []
  end

  # A check that is not a test: style, compilation.
  def check(name, passed, seconds)
    @checks << [name, passed, seconds]
  end

  # Something that this machine cannot run. It counts as a skip.
  def not_run(name, reason)
    @not_run << [name, reason]
  end

  # A run whose results are lost. It counts as an error.
  def broken(name, reason)
    @broken << [name, reason]
  end

  # A gem that has another version than the one that the tests stand on.
  def newer(change) = @newer << change

  def passed?
    totals.values_at("failures", "errors").sum.zero? && totals["runs"].positive?
  end

  def print(seconds:)
    puts "", "== What ran where", ""
    table
    list("Skipped", skipped)
    list("Other versions than the tested ones", @newer)
    list("Not run on this machine", @not_run.map { |name, reason| "#{name}: #{reason}" })
    list("Not run, for the time that was given had ended", left)
    list("Most CPU time", costliest)
    list("Checks", @checks.map { |name, passed, took| "#{passed ? "passed" : "FAILED"}  #{name} (#{took.round} s)" })
    list("Failed beside others, and was run again alone", again)
    list("Failed", failed) # last: where only the end of the output is kept, this is what its reader needs
    puts "", "#{(seconds / 60).floor} min #{(seconds % 60).round} s"
    puts format("%d runs, %d assertions, %d failures, %d errors, %d skips",
      *totals.values_at("runs", "assertions", "failures", "errors", "skips"))
  end

  private

  def rows
    @rows ||= File.readlines(@record).map { |line| JSON.parse(line) }
  end

  def of_type(type) = rows.select { |row| row["type"] == type }

  def classes
    @classes ||= of_type("class")
  end

  # Files that did not end normally. Their processes may have left results unrecorded.
  def lost
    @lost ||= of_type("file").reject { |row| %w[passed failed].include?(row["outcome"]) }
  end

  def totals
    @totals ||= count(classes, lost).tap do |total|
      total["failures"] += @checks.count { |_, passed, _| !passed }
      total["errors"] += @broken.size
      total["skips"] += @not_run.size + of_type("left").size
    end
  end

  def count(classes, lost)
    total = %w[runs assertions failures errors].to_h { |key| [key, classes.sum { |row| row[key] }] }
    total["errors"] += lost.size
    total.merge("skips" => classes.sum { |row| row["skips"].size })
  end

  # Two tables, as wide as a terminal: each place (a Ruby, a backend) with a letter, then each suite with the letters of
  # the places where it ran.
  def table
    places = (classes + lost).map { |row| where(row) }.uniq
      .sort_by { |ruby, backend| [Gem::Version.new(ruby), backend] }
    return puts "nothing" if places.empty?

    letters = places.zip([*"a".."z", *"A".."Z"]).to_h
    rows_of = ->(place) { (classes + lost).select { |row| where(row) == place } }
    columns(places.map { |place| [letters[place], place.join(" "), *cells(rows_of.call(place))] }, "", "Ruby, backend")
    puts
    groups = (classes + lost).group_by { |row| [self.class.suite(row["file"]), row.fetch("mode", "-")] }
    lines = groups.sort.map do |(suite, mode), members|
      ["", "#{suite}, #{mode}", *cells(members), members.map { |row| letters[where(row)] }.uniq.sort.join]
    end
    columns(lines, "", "suite, mode", "where")
  end

  COUNTS = %w[runs failed errors skipped].freeze
  private_constant :COUNTS

  def columns(lines, letter, name, *rest)
    lines = [[letter, name, *COUNTS, *rest], *lines]
    widths = lines.transpose.map { |column| column.map { |text| text.to_s.size }.max }
    lines.each do |line|
      puts line.zip(widths).map.with_index { |(text, width), at|
        (2..COUNTS.size + 1).cover?(at) ? text.to_s.rjust(width) : text.to_s.ljust(width)
      }.join("  ").rstrip
    end
  end

  def where(row)
    row.values_at("ruby", "backend")
  end

  # Nothing in place of 0: what is there is to be seen.
  def cells(members)
    classes, lost = members.partition { |row| row["type"] == "class" }
    total = count(classes, lost)
    [total["runs"], *%w[failures errors skips].map { |key| total[key].positive? ? total[key] : "" }]
  end

  def failed
    of_type("file").reject { |row| row["outcome"] == "passed" }.map { |row|
      "#{row["file"]} (#{where(row).join(" ")}): #{[row["outcome"], row["message"]].compact.join(", ")}"
    } + @broken.map { |name, reason| "#{name}: #{reason}" }
  end

  def again
    of_type("again").map do |row|
      last = of_type("file").find { |other| other["file"] == row["file"] && where(other) == where(row) }
      "#{row["file"]} (#{where(row).join(" ")}): #{last ? last["outcome"] : "lost"}"
    end
  end

  # A line for each place.
  def left
    of_type("left").group_by { |row| where(row) }.map do |place, members|
      suites = members.map { |row| self.class.suite(row["file"]) }.uniq
      "#{place.join(" ")}: #{members.size} files (#{suites.join(", ")})"
    end
  end

  # CPU time bounds how soon bin/test can end: the tests wait beside each other, but compute one after another.
  def costliest(count = 15)
    files = of_type("file")
    all = files.sum { |row| row["cpu"] }
    files.max_by(count) { |row| row["cpu"] }.map { |row|
      format("%6.1f s  %s (%s)", row["cpu"], row["file"], where(row).join(" "))
    } << format("%6.1f s  all %d files", all, files.size)
  end

  # One line for all tests of a class that were skipped for the same reason, with the places.
  def skipped
    skips = classes.flat_map do |row|
      row["skips"].map { |skip| [row["class"], skip["reason"].lines.first&.strip, skip["test"], where(row).join(" ")] }
    end
    skips.group_by { |name, reason| [name, reason] }.map { |(name, reason), members|
      tests, places = members.map { |_, _, test, place| [test, place] }.transpose.map(&:uniq)
      "#{name}#{tests.one? ? "##{tests.first}" : ", #{tests.size} tests"}: #{reason} (#{places.join(", ")})"
    }.sort
  end

  def list(title, lines)
    puts "", "#{title}:", lines.map { |line| "  #{line}" } unless lines.empty?
  end
end
