# frozen_string_literal: true

require "test_helper"
require "json"
require "rexml/document"
require "stringio"
require "lab/trial_bench"

class LabReportTest < Minitest::Test
  Report = Heddle::Lab::Report

  def summary
    record = Heddle::Lab::Record.new({
      "bench" => "trial", "seed" => 1, "rounds_asked" => 3, "cases" => %w[x1 x2],
      "models" => [{"name" => "good"}, {"name" => "heddle"}]
    })
    add(record, "good", "x1", [100, 100, 100])
    add(record, "good", "x1", [99, 101, 100], twin: true)
    add(record, "heddle", "x1", [150, 160, 170])
    add(record, "good", "x2", [100, 110, 120])
    add(record, "heddle", "x2", [101, 109, 120])
    record.rounds <<
      Heddle::Lab::Record::Round.new(round: 4, case: "x2", model: "heddle", twin: false, error: "no answer, \"at all\"")
    Heddle::Lab::Summary.new(record)
  end

  def add(record, model, name, values, twin: false)
    values.each.with_index(1) do |value, round|
      measures = {"operations" => value, "extrapolated" => model == "good"}
      record.rounds << Heddle::Lab::Record::Round.new(round: round, case: name, model: model, twin: twin,
        measures: measures)
    end
  end

  def tables = TrialBench.new.tables(summary)

  def test_text_is_aligned_and_marks_noise
    text = Report::Text.new(colour: false).render("A trial", tables, ["a fact"])
    assert_includes text, "good    100 (100–100)*  110 (100–120)*\nheddle   160 (150–170)   109 (101–120)"
    assert_includes text, "heddle  1.60 [1.50–1.70]  ≈ 1.00 [0.99–1.01]"
    assert_includes text, "noise floor (good against itself): x1 ±1.0 %, x2 –"
    assert_includes text, "* extrapolated"
    assert_match(/What went wrong\n.*\n.*\nheddle  x2    no answer, "at all"/, text)
    refute_includes text, "\e["
    assert_includes Report::Text.new(colour: true).render("A trial", tables, []), "\e[32m"
  end

  def test_a_table_wider_than_the_terminal_is_shown_in_parts
    table = Report::Table.new(title: "Wide", columns: ["", *"A".."F"], notes: ["a note"],
      rows: %w[one two].map { |name| [name, *Array.new(6) { "0123456789" }] })
    text = Report::Text.new(width: 30).render("A trial", [table], [])
    text.lines.each { |line| assert_operator line.chomp.size, :<=, 30 }
    assert_equal 3, text.scan(/^one  0123456789  0123456789$/).size
    assert_match(/^ +A +B\n.*^ +C +D\n.*^ +E +F\n.*^a note$/m, text)
    # A column that is wider than the terminal has a part of its own.
    assert_equal 6, Report::Text.new(width: 3).render("A trial", [table], []).scan(/^two  0123456789$/).size
  end

  # In the case in which the first has failed the second is the reference.
  def test_the_next_model_is_the_reference_where_the_first_failed
    record = summary.record
    record.header["models"].unshift({"name" => "peer"})
    add(record, "peer", "x1", [50, 50, 50])
    record.rounds <<
      Heddle::Lab::Record::Round.new(round: 1, case: "x2", model: "peer", twin: false, error: "undefined method")
    ratios = TrialBench.new.tables(Heddle::Lab::Summary.new(record))[1]
    rows = ratios.rows.map { |row| row.map(&:to_s) }
    assert_equal [["peer", "1", "–"], ["good", "2.00 [2.00–2.00]", "1"],
      ["heddle", "3.20 [3.00–3.40]", "≈ 1.00 [0.99–1.01]"]], rows
    assert_equal ["noise floor (peer against itself): x1 –", "noise floor (good against itself): x2 –"],
      ratios.notes.first(2)
  end

  # As where the record comes from a machine with more libraries.
  def test_a_case_that_the_bench_does_not_have_here
    record = summary.record
    record.header["cases"] << "x3"
    add(record, "good", "x3", [100, 110, 120])
    add(record, "heddle", "x3", [50, 55, 60])
    ratios = TrialBench.new.tables(Heddle::Lab::Summary.new(record))[1]
    assert_equal "0.50 [0.50–0.50]", ratios.rows.last.last.to_s
  end

  def test_a_case_shows_its_unit_where_the_metric_has_none
    bench = TrialBench.new
    matrix = Report::Matrix.new(summary, bench)
    length = Heddle::Lab::Metric.new(**TrialBench::OPERATIONS.to_h, unit_by_case: true)
    assert_equal ["", "x1, mm", "x2, mm"], matrix.values(length).columns
    assert_equal ["", "x1", "x2"], matrix.ratios(length).columns
    assert_equal ["", "x1", "x2"], matrix.values(TrialBench::OPERATIONS).columns
  end

  def test_markdown_tables_are_square
    markdown = Report::Markdown.render("A trial", tables, ["a fact"], graphs: {"rate" => "rate.svg"})
    blocks = markdown.split("\n\n").select { |block| block.start_with?("|") }
    assert_equal 3, blocks.size
    blocks.each { |block| assert_equal 1, block.lines.map { |line| line.count("|") }.uniq.size }
    assert_includes markdown, "![rate](rate.svg)"
  end

  def test_csv_has_every_round
    lines = Report::CSV.render(summary.record).lines
    assert_equal "bench,case,model,round,twin,error,operations,extrapolated\n", lines.first
    assert_equal 1 + summary.record.rounds.size, lines.size
    assert_equal "trial,x2,heddle,4,false,\"no answer, \"\"at all\"\"\",,\n", lines.last
  end

  def test_json_follows_its_schema
    _, summary = TrialBench.run(%w[good fail absent], rounds: 1)
    record = JSON.parse(summary.record.to_json)
    schema = JSON.parse(File.read(File.expand_path("../../lab/schema/record.json", __dir__)))
    assert_schema(schema, record, "record")
  end

  def test_svg_is_well_formed_and_has_a_bar_a_value
    series = [Report::BarChart::Series.new(name: "a & <b>", values: [10.0, nil], lows: [9.0, nil], highs: [12.0, nil]),
      Report::BarChart::Series.new(name: "c", values: [-5.0, 200.0])]
    document =
      REXML::Document.new(Report::BarChart.new(title: "T < U", unit: "u", clusters: %w[x y], series: series).to_svg)
    assert_equal 3, REXML::XPath.match(document, "//svg:rect[svg:title]", "svg" => "http://www.w3.org/2000/svg").size
    assert_includes document.to_s, "a &amp; &lt;b&gt;"
  end

  def test_long_labels_lean_and_stay_inside
    clusters = ["a" * 40] + Array.new(15) { |i| "a label of some length #{i}" }
    chart = Report::BarChart.new(
      title: "T", unit: "u", clusters: clusters, series: [Report::BarChart::Series.new(name: "a", values: [1] * 16)]
    )
    document = REXML::Document.new(chart.to_svg)
    left, _, width, height = document.root.attributes["viewBox"].split.map(&:to_f)
    labels = REXML::XPath.match(document, "//svg:text[starts-with(@transform, 'rotate(-35')]",
      "svg" => "http://www.w3.org/2000/svg")
    assert_equal clusters, labels.map(&:text)
    labels.each do |label|
      assert_operator label.attributes["x"].to_f - label.text.size * 6 * Math.cos(35 * Math::PI / 180), :>=, left
      assert_operator label.attributes["y"].to_f + label.text.size * 6 * Math.sin(35 * Math::PI / 180), :<=, height
    end
    assert_equal document.root.attributes["width"].to_f, width
  end

  def test_svg_of_nothing
    chart = Report::BarChart.new(
      title: "T", unit: "u", clusters: %w[x], series: [Report::BarChart::Series.new(name: "a", values: [nil])]
    )
    assert REXML::Document.new(chart.to_svg).root
  end

  private

  # As much of JSON Schema as the record's schema uses: type, required, properties, additionalProperties, items,
  # const.
  def assert_schema(schema, value, where)
    types = {
      "object" => [Hash], "array" => [Array], "string" => [String], "integer" => [Integer], "number" => [Numeric],
      "boolean" => [true, false]
    }
    assert_equal schema["const"], value, where if schema.key?("const")
    allowed = Array(schema["type"]).flat_map { |type| types.fetch(type) }
    if allowed.any?
      fits = allowed.any? { |type| type === value } # rubocop:disable Style/CaseEquality
      assert fits, "#{where} is a #{value.class}"
    end
    case value
    when Hash
      assert_empty schema.fetch("required", []) - value.keys, "missing in #{where}"
      if schema["additionalProperties"] == false
        assert_empty value.keys - schema["properties"].keys, "not in the schema of #{where}"
      end
      schema.fetch("properties", {}).each do |key, inner|
        assert_schema(inner, value[key], "#{where}.#{key}") if value.key?(key)
      end
    when Array
      if schema["items"]
        value.each_with_index { |item, index| assert_schema(schema["items"], item, "#{where}[#{index}]") }
      end
    end
  end
end
