# frozen_string_literal: true

require "test_helper"
require "stringio"
require "tmpdir"
require "support/lab_browser"
require "support/lab_histories"

runs_on short: false

# The page of a history in a real browser.
class LabHistoryPageTest < Minitest::Test
  include LabBrowser

  HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)>"
  ROWS = LabHistories::CLIENTS.product(LabHistories::SITES)

  class << self
    # Twelve runs, of which the seventh began a step, and four of another Ruby.
    def file
      @file ||= File.join(Dir.mktmpdir, "history.html").tap do |path|
        folder = File.dirname(path)
        Minitest.after_run { FileUtils.rm_rf(folder) }
        LabHistories.write(File.join(folder, "runs"), factors: {"heddle" => 1.3}, versions: {"stock" => HOSTILE})
        LabHistories.write(File.join(folder, "runs"), runs: 4, ruby: "3.4.11")
        status = Heddle::Lab::CLI.run(["report", "--history", File.join(folder, "runs"), "--html", path, "--commits",
          "https://host.example/compare/{before}...{after}"], out: StringIO.new, err: $stderr)
        raise "no page" unless status.zero?
      end
    end
  end

  def open_page(fragment = "") = open_file(self.class.file, fragment)

  # How many elements there are of the kind.
  def count(css) = @page.evaluate("document.querySelectorAll(#{css.dump}).length")

  def texts(css)
    @page.evaluate("[...document.querySelectorAll(#{css.dump})].map(one => one.textContent)")
  end

  def boxes(css)
    @page.evaluate("[...document.querySelectorAll(#{css.dump})].map(one => one.getBoundingClientRect())" \
      ".map(box => [box.left, box.top, box.right, box.bottom])")
  end

  def test_a_chart_for_each_row
    open_page
    assert_operator File.size(self.class.file), :<, 200_000
    assert_equal ROWS.size, count("#charts svg")
    assert_equal ROWS.size * 12, count("#charts .run")
    assert_equal 2, count("#charts .step")
    assert_equal ROWS.size + 2, count("#charts .floor"), "a step has a level on each side"
    names = texts("figcaption").map { |text| text[/\A\w+, \w+/] }
    assert_equal ROWS.map { |pair| pair.join(", ") }.sort, names.sort
    assert_includes texts("figcaption").join("\n"), "heddle, local: × 1.29 at 0000abc6, worse"
  end

  # All that is drawn lies within its chart, and the step between the runs that it parts.
  def test_places
    open_page("without-model=stock&without-model=curb&without-case=dallas")
    chart, = boxes("#charts svg")
    (boxes("#charts svg circle") + boxes("#charts svg rect")).each do |left, top, right, bottom|
      assert_operator left, :>=, chart[0]
      assert_operator top, :>=, chart[1]
      assert_operator right, :<=, chart[2]
      assert_operator bottom, :<=, chart[3]
    end
    step, = boxes("#charts .step")
    runs = boxes("#charts .run")
    assert_operator runs[5][2], :<=, step[0]
    assert_operator runs[6][0], :>=, step[2]
    assert_operator runs.first(6).map { |run| run[1] }.min, :>, runs.last(6).map { |run| run[3] }.max, "it is higher"
  end

  def test_steps_lead_to_their_commits
    open_page
    steps = texts("#steps > ul > li")
    assert_equal 4, steps.size # two cases, by two measures
    assert_match(/\Aheddle, local: CPU seconds per GB 6\.\d+, then 7\.\d+: × 1\.29, worse; noise floor ±\d\.\d+ %; /,
      steps.first)
    assert_includes steps.first, "between 0000abc5 and 0000abc6."
    assert_equal ["https://host.example/compare/#{"0000abc5" * 5}...#{"0000abc6" * 5}"],
      @page.evaluate("[...document.querySelectorAll('#steps a')].map(link => link.href)").uniq
  end

  def test_hostile_texts_are_text
    open_page
    assert_includes texts("#steps li").join, "also changed: stock: stock 1.0, then #{HOSTILE}"
    assert_equal 2, @page.evaluate("document.scripts.length")
  end

  def test_the_view_is_in_the_link
    open_page
    assert_equal "", fragment
    choose("values", "ratios")
    assert_equal 4, count("#charts svg"), "the reference has no ratio to itself"
    choose("rows", "steps")
    assert_equal 2, count("#charts svg")
    choose("metric", "CPU used, per cent of the time")
    click("#cases input[value=local]")
    before = [fragment, texts("figcaption"), texts("#table td")]
    open_page(fragment.delete_prefix("#"))
    assert_equal before, [fragment, texts("figcaption"), texts("#table td")]
    assert_equal "#metric=CPU+used%2C+per+cent+of+the+time&values=ratios&rows=steps&without-case=local", fragment
  end

  def test_rubies_have_charts_of_their_own
    open_page
    options = texts("#group option")
    assert_equal [1, 1], [options.grep(/ruby 3\.4\.11, quiet/).size, options.grep(/ruby 4\.0\.5, quiet/).size]
    choose("group", options.index { |text| text.include?("3.4.11") }.to_s)
    assert_equal ROWS.size * 4, count("#charts .run")
    assert_includes texts("figcaption").first, "too few runs: steps take 6"
    assert_includes @page.at_css("#steps").text, "No step is larger than the noise."
  end

  def test_nothing_to_draw
    open_page("without-model=stock&without-model=curb&without-model=heddle")
    assert_includes @page.at_css("#charts").text, "Nothing to draw"
  end

  def test_the_table_has_the_figures
    open_page("without-model=stock&without-model=curb&without-case=dallas")
    row = texts("#table td")
    assert_equal 16, row.size
    assert_equal ["heddle", "local"], row.first(2)
    assert_equal texts("#charts .run").map { |text| text[/[\d.]+\z/] }, row.drop(4)
  end

  def test_keyboard_and_pointer
    open_page
    @page.evaluate("document.getElementById('charts').focus()")
    @page.keyboard.type(:Right)
    assert_match(/\Astock, local, 0000abc0 of 2026-11-01: \d+\.\d\z/, first = @page.at_css("#readout").text)
    @page.keyboard.type(:End)
    assert_match(/\Acurb, dallas, 0000abcb of 2026-11-12: /, @page.at_css("#readout").text)
    @page.keyboard.type(:Home)
    assert_equal first, @page.at_css("#readout").text
    @page.at_css("#charts").scroll_into_view
    left, top, right, bottom = boxes("#charts .run")[3]
    @page.mouse.move(x: (left + right) / 2, y: (top + bottom) / 2)
    wait_until { @page.at_css("#readout").text.start_with?("stock, local, 0000abc3") }
    @page.at_css("#models input[value=heddle]").focus
    @page.keyboard.type(:Space)
    assert_equal "heddle", @page.evaluate("document.activeElement.value"), "the focus stays"
    assert_equal 4, count("#charts svg")
  end

  def test_a_phone
    open_page
    @page.resize(width: 320, height: 640)
    wait_until { @page.evaluate("innerWidth") == 320 }
    assert_operator @page.evaluate("document.documentElement.scrollWidth"), :<=, 320
    boxes("#charts svg").each { |box| assert_operator box[2], :<=, 320 }
    assert_accessible
  ensure
    @page.resize(width: 1280, height: 1000)
  end

  def test_colours
    open_page
    assert_equal "rgb(255, 255, 255)", background
    assert_accessible
    media(prefers_color_scheme: "dark")
    assert_equal "rgb(22, 22, 22)", background
    assert_accessible
    choose("theme", "light")
    assert_equal "rgb(255, 255, 255)", background
    media(prefers_color_scheme: "light")
    choose("theme", "dark")
    assert_equal "rgb(22, 22, 22)", background
  end

  def test_print
    open_page("theme=dark")
    media(media: "print")
    assert_equal "rgb(255, 255, 255)", background
    %w[#controls #readout #theme].each do |control|
      refute @page.evaluate("document.querySelector('#{control}').checkVisibility()"), control
    end
    assert @page.evaluate("document.querySelector('#charts svg').checkVisibility()")
    assert_operator @page.pdf(encoding: :binary).bytesize, :>, 10_000
  end
end
