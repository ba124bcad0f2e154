# frozen_string_literal: true

require "test_helper"
require "heddle"
require "heddle/insight/folder"
require "heddle/lab"

# What README.md and the guides say of commands, figures, errors and options is true, and their links lead
# somewhere.
class GuidesTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  GUIDES = Dir["#{ROOT}/guides/*.md"].sort.to_h { |path| [File.basename(path, ".md"), File.read(path)] }.freeze
  TEXTS = [File.read("#{ROOT}/README.md"), *GUIDES.values].freeze
  ROWS = /\|.*\n\|.*\n((?:\|.*\n)+)/ # below the names of the columns
  TABLE_OF_RESULTS = /^<!-- (bench[^:]+): ([^>]+) -->\n\n#{ROWS}/
  TABLE_OF_ERRORS = /^(?=\| (?:error|`Heddle::(\w+)::…`) \|)#{ROWS}/
  MYSQL_TABLES = ["option of every database", "option of MySQL and PostgreSQL", "option of MySQL"].freeze

  # With existing options.
  def test_commands
    commands = TEXTS.flat_map { |text| text.scan(%r{^bin/(heddle .*?)(?:  +#.*)?$}).flatten }.map(&:split)
    assert_operator commands.size, :>, 10
    named = commands.group_by { |_, command, name| (command == "bench") ? [command, name] : [command] }
    named.each do |words, uses|
      help = StringIO.new
      assert_equal 0, Heddle::Lab::CLI.run([*words, "--help"], out: help)
      uses.flatten.grep(/\A--/).each { |option| assert_match(/#{option}\b/, help.string) }
    end
  end

  # A table below the names of result files has their figures, rounded. Behind the files stands of each row of the table
  # where its figures are: in rows, or in columns, of this name.
  def test_tables_have_the_figures_of_the_benches
    assert_equal TEXTS.sum { |text| text.scan("<!-- bench").size }, (tables = quoted_tables).size
    tables.each do |files, names, rows|
      measured = files.split.flat_map { |file| medians(file) }
      names = names.tr("\n", " ").split("; ")
      assert_equal names.size, rows.lines.size, files
      rows.lines.zip(names) do |row, name|
        values = measured.filter_map { |value, *places| value if places.include?(name) }
        refute_empty figures = row.split("|").drop(2).join("|").scan(/\d+(?:\.\d+)?/)
        assert_empty figures.reject { |figure| values.any? { |value| shown?(value, figure) } }, "#{files}: #{row}"
      end
    end
  end

  # A table lists each class of an error that Heddle raises, with its superclass.
  def test_errors
    named = error_tables.flat_map do |space, rows|
      rows.lines
        .flat_map { |row| row[/\A\| (.*?) \|/, 1].scan(/`([\w:]+)`(?: < ([\w:]+))?/) }.filter_map do |name, parent|
        next if name.match?(/\A(?:Errno|IO|Net|OpenSSL)::/) # Ruby's, of which not every version has all

        found = error_class(space, name)
        assert_equal parent, found.superclass.name.delete_prefix("Heddle::"), name if parent
        found
      end
    end
    modules = [Heddle, Heddle::DB, Heddle::Memcached]
    classes = modules.flat_map { |space| space.constants.map { |name| space.const_get(name) } }.grep(Class)
    assert_empty classes.select { |found| found <= Heddle::Error } - named
  end

  def test_options
    taken = Heddle::Memcached.instance_method(:initialize).parameters
      .filter_map { |kind, name| name.to_s if kind == :key }
    refute_empty options("memcached")
    assert_empty options("memcached") - taken
    refusal = assert_raises(ArgumentError) { Heddle::DB.connect("mysql://localhost", none: 1) }
    told = MYSQL_TABLES.flat_map { |title| options("databases", title) }
    assert_equal refusal.message[/the options are (.*), and of/, 1].split(", ").sort, told.sort
  end

  def test_links
    Dir["#{ROOT}/{*.md,doc/**/*.md,guides/*.md,lab/*.md}"].each do |document|
      File.read(document).scan(/\]\((?!https?:)([^)#]*)(#[^)]*)?\)/) do |path, anchor|
        file = path.empty? ? document : File.expand_path(path, File.dirname(document))
        assert_path_exists file, "#{document} links to it"
        assert_includes anchors(file), anchor, "#{document} links to it" if anchor
      end
    end
  end

  private

  def quoted_tables = TEXTS.flat_map { |text| text.scan(TABLE_OF_RESULTS) }

  # The figures, before their spread or interval if they have one, each with the names of its row and its column.
  def medians(file)
    File.read(File.join(ROOT, file)).scan(/^(\|.*)\n\|.*\n((?:\|.*\n)+)/).flat_map do |head, rows|
      columns = head.split("|").map(&:strip)
      rows.lines.flat_map do |row|
        cells = row.split("|").map(&:strip)
        cells.zip(columns).filter_map do |cell, column|
          (median = cell[/\d+(?:\.\d+)?(?= [(\[])|\A\d+(?:\.\d+)?\z/]) && [median.to_f, cells[1], column]
        end
      end
    end
  end

  def shown?(value, figure)
    digits = figure[/\.(\d+)/, 1].to_s.size
    figure == format("%.#{digits}f", value.round(digits))
  end

  def error_tables = GUIDES.values.flat_map { |text| text.scan(TABLE_OF_ERRORS) }

  def error_class(space, name)
    owners = [*(Heddle.const_get(space) if space), Heddle, Object]
    owners.find { |owner| owner.const_defined?(name, owner == Object) }.const_get(name)
  end

  # Of the table with this title.
  def options(guide, title = "option")
    GUIDES.fetch(guide)[/^(?=\| #{title} \|)#{ROWS}/, 1].scan(/^\| (.*?) \|/).join.scan(/`(\w+)`/).flatten
  end

  # As forges make them from headings.
  def anchors(file)
    headings = File.readlines(file).grep(/\A#/).map { |line| line[/\A#+ (.*)/, 1] }
    headings.map { |heading| "##{heading.downcase.gsub(/[^\w\- ]/, "").tr(" ", "-")}" }
  end
end
