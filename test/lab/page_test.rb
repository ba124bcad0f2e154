# frozen_string_literal: true

require "test_helper"
require "csv"
require "stringio"
require "tmpdir"
require "support/lab_browser"
require "support/lab_records"

runs_on short: false

# The page of results in a real browser.
class LabPageTest < Minitest::Test
  include LabBrowser

  RESULTS = File.expand_path("../../bench/results", __dir__)

  class << self
    # Two Rubies in one page.
    def folder
      @folder ||= Dir.mktmpdir.tap do |folder|
        Minitest.after_run { FileUtils.rm_rf(folder) }
        {"new" => "4.0.5", "old" => "3.4.11"}.each do |name, ruby|
          File.write(File.join(folder, "#{name}.json"), LabRecords.http(ruby, trouble: HOSTILE).to_json)
        end
        report(folder, *%w[new old].map { |name| File.join(folder, "#{name}.json") })
      end
    end

    def report(folder, *files)
      out, err = StringIO.new, StringIO.new
      status = Heddle::Lab::CLI.run(["report", *files, "--html", folder], out: out, err: err)
      [status, out.string, err.string]
    end
  end

  HOSTILE = "</script><script>alert(1)</script><!-- \u2028 <img src=x onerror=alert(2)>"

  def open_page(fragment = "", file: File.join(self.class.folder, "report.html")) = open_file(file, fragment)

  # Each bar with its place on the screen, and what it says of itself.
  def bars
    found = @page.evaluate(<<~JS)
      [...document.querySelectorAll("#chart .bar")].map(bar => {
        const box = bar.querySelector(".body").getBoundingClientRect();
        return {x: box.x, y: box.y + scrollY, width: box.width, height: box.height, right: box.right,
          bottom: box.bottom + scrollY, fill: bar.querySelector(".body").getAttribute("fill"),
          text: bar.querySelector("title").textContent};
      })
    JS
    found.each { |bar| bar.transform_values! { |value| value.is_a?(Float) ? value.round(1) : value } }
  end

  def table
    @page.evaluate("[...document.querySelectorAll('#table tbody tr')].map(row => " \
      "[...row.cells].map(cell => cell.textContent))")
  end

  # What the page puts on the clipboard.
  def copied(button)
    @page.command("Browser.grantPermissions", permissions: %w[clipboardReadWrite clipboardSanitizedWrite],
      browserContextId: @page.context_id)
    click(button)
    wait_until { @page.at_css("#copied").text.start_with?("Copied") }
    awaited("navigator.clipboard.readText()")
  end

  def summary = @summary ||= Heddle::Lab::Summary.new(LabRecords.http("4.0.5", trouble: HOSTILE))

  def test_twelve_clients_five_sites_and_two_rubies
    open_page
    assert_operator File.size(File.join(self.class.folder, "report.html")), :<, 2_000_000
    found = bars
    assert_equal 2 * 12 * 5 - 2, found.size # of the two that failed there is no bar
    assert_equal found.size, found.map { |bar| bar.values_at("x", "width") }.uniq.size, "some lie upon each other"
    found.each do |bar|
      assert_operator bar["height"], :>, 1, bar["text"]
      assert_operator bar["width"], :>, 4, bar["text"]
    end
    # the heights are as the figures: the scale begins at 0
    heights = found.map { |bar| bar["height"] / bar["text"][/: ([\d.]+)/, 1].to_f }
    assert_operator heights.max / heights.min, :<, 1.05
    # where they stand side by side, the two Rubies have the same colours, and other patterns
    assert_equal 24, found.map { |bar| bar["fill"] }.uniq.size
    assert_equal found.map { |bar| bar["bottom"].round }.uniq.size, 1
    least = @page.evaluate(<<~JS)
      (() => {
        for (let i = 0; i < 5; i++) document.getElementById("dots").click();
        return Math.min(...performance.getEntriesByName("draw").map(entry => entry.duration));
      })()
    JS
    assert_operator least, :<, 300, "milliseconds to draw"
  end

  def test_clusters_by_case_implementation_and_run
    open_page
    labels = lambda do
      @page.evaluate("[...document.querySelectorAll('#chart svg > text:not(.faint)')].map(text => text.textContent)")
    end
    assert_equal LabRecords::SITES, labels.call
    choose("cluster", "model")
    assert_equal LabRecords::CLIENTS, labels.call
    choose("cluster", "run")
    assert_equal %w[4.0.5 3.4.11].product(LabRecords::SITES).map { |ruby, site| "Ruby #{ruby}: #{site}" }, labels.call
    assert_equal "#cluster=run", fragment
  end

  def test_measures_and_a_logarithmic_scale
    open_page
    measures = @page.evaluate("[...document.getElementById('metric').options].map(option => option.value)")
    assert_equal ["CPU seconds per GB", "CPU used, per cent of the time", "KBytes a second", "Wall time, seconds",
      "CPU time, seconds", "User CPU time, seconds", "System CPU time, seconds", "GC time, seconds",
      "Objects allocated", "Peak RSS, MiB", "Chunks", "Mean chunk size, bytes", "Max chunk size, bytes",
      "Min chunk size, bytes"], measures
    choose("metric", "Wall time, seconds")
    assert_includes @page.at_css("#chart-note").text, "Wall time, seconds (less is better)"
    linear = bars
    click("#log")
    logarithmic = bars
    share = ->(list) { list.map { |bar| bar["height"] }.minmax.reduce(:/) }
    assert_operator share.call(logarithmic), :>, share.call(linear), "a log scale makes them more equal"
    assert_equal "#metric=Wall+time%2C+seconds&log=1", fragment
  end

  def test_filters
    open_page
    click("#models input[value=curb]")
    assert_equal 11 * 10 - 2, bars.size
    click("#runs input[value=old]")
    click("#cases button[value=none]")
    assert_empty bars
    assert_includes @page.at_css("#chart").text, "Nothing to draw"
    click("#cases input[value=local]")
    assert_equal 11, bars.size
    assert_equal 11, table.size
    refute_includes table.map { |row| row[2] }, "curb"
  end

  # The page computes as the report does.
  def test_ratios_to_a_reference_that_the_reader_chooses
    open_page("without-run=old")
    choose("values", "ratios")
    choose("reference", "curb")
    metric = Heddle::Lab::Bench::HTTP.new.tap { |bench| bench.operands = [] }.tables(summary).first.metric
    rows = CSV.parse(copied("#copy-csv"), headers: true)
    assert_equal 60, rows.size
    rows.each do |row|
      next assert_includes row["Remark"], "onerror" if row["Median"].nil?

      model, name = row.values_at("Implementation", "Case")
      values = summary.by_round(model, name, metric).values
      assert_in_delta Heddle::Lab::Statistics.median(values), row["Median"].to_f, 1e-4
      low, high = Heddle::Lab::Statistics.interval(values)
      assert_in_delta low, row["Interval low"].to_f, 1e-4
      assert_in_delta high, row["Interval high"].to_f, 1e-4
      ratio = summary.compare(model, "curb", name, metric).ratio
      assert_in_delta ratio.median, row["Ratio"].to_f, 1e-4
      assert_in_delta ratio.low, row["Ratio low"].to_f, 1e-4
      assert_in_delta ratio.high, row["Ratio high"].to_f, 1e-4
      assert_equal "reference", row["Verdict"] if model == "curb"
      assert_nil row["Noise floor, %"] # only the bench's own reference has a twin
    end
  end

  def test_the_noise_floor_and_every_round
    open_page("without-run=old&values=ratios")
    bands = -> { @page.evaluate("document.querySelectorAll('#chart .noise').length") }
    assert_equal 59, bands.call
    band, line = @page.evaluate(<<~JS)
      [".noise", ".one"].map(name => document.querySelector("#chart " + name).getBoundingClientRect())
        .map(box => ({y: box.y, bottom: box.bottom}))
    JS
    assert_operator band["y"], :<, line["y"]
    assert_operator band["bottom"], :>, line["bottom"]
    click("#noise")
    assert_equal 0, bands.call
    click("#dots")
    assert_equal 59 * 5, @page.evaluate("document.querySelectorAll('#chart .round').length")
    floor = table.find { |row| row[2] == "heddle" && row[1] == "london" } || table.find { |row| row[2] == "heddle" }
    refute_equal "–", floor[13]
  end

  def test_the_table_sorts_and_copies
    open_page("without-run=old")
    click("th button[data-column=Median]")
    medians = table.map { |row| row[3] }.reject { |text| text == "–" }.map(&:to_f)
    assert_equal medians.sort, medians
    assert_equal "–", table.last[3], "what failed comes last"
    click("th button[data-column=Median]")
    assert_equal "descending", @page.at_css("th[aria-sort]").attribute("aria-sort")
    descending = table.map { |row| row[3] }.reject { |text| text == "–" }.map(&:to_f)
    assert_equal medians.reverse, descending
    lines = copied("#copy-markdown").lines
    assert_equal 62, lines.size
    assert_equal [17], lines.map { |line| line.gsub("\\|", "").count("|") }.uniq
    assert_equal @page.evaluate("location.href"), copied("#copy-link")
  end

  def test_a_link_shows_the_same_view
    open_page("without-run=old")
    choose("cluster", "model")
    choose("values", "ratios")
    choose("theme", "dark")
    click("#models input[value=excon]")
    click("th button[data-column=Ratio]")
    before = [fragment, bars, table]
    open_page(fragment.delete_prefix("#"))
    assert_equal before, [fragment, bars, table]
  end

  def test_hostile_texts_are_text
    open_page("sort=-Remark")
    assert_includes table.map(&:last), HOSTILE
    assert_equal 2, @page.evaluate("document.scripts.length")
  end

  def test_a_phone
    open_page
    @page.resize(width: 320, height: 640)
    wait_until { bars.first["width"] > bars.first["height"] }
    assert_operator @page.evaluate("document.documentElement.scrollWidth"), :<=, 320
    bars.each { |bar| assert_operator bar["right"], :<=, 320, bar["text"] }
    outside = @page.evaluate(<<~JS)
      [...document.querySelectorAll("#chart text")].filter(text => {
        const box = text.getBoundingClientRect();
        return box.left < 0 || box.right > 320;
      }).map(text => text.textContent)
    JS
    assert_empty outside
    assert_accessible
  ensure
    @page.resize(width: 1280, height: 1000)
  end

  def test_keyboard
    open_page
    @page.at_css("#cluster").focus
    @page.keyboard.type(:Down)
    assert_equal "model", @page.at_css("#cluster").value
    @page.evaluate("document.getElementById('models').querySelector('input').focus()")
    @page.keyboard.type(:Space)
    assert_equal "stock", @page.evaluate("document.activeElement.value"), "the focus stays"
    refute @page.evaluate("document.activeElement.checked")
    @page.evaluate("document.getElementById('chart').focus()")
    @page.keyboard.type(:Right)
    first = @page.at_css("#readout").text
    assert_match(/\Aheddle, .*, Ruby \S+: [\d.]+; 95 % interval/, first)
    @page.keyboard.type(:Right)
    refute_equal first, @page.at_css("#readout").text
    @page.keyboard.type(:Home)
    assert_equal first, @page.at_css("#readout").text
  end

  def test_the_pointer_reads_a_bar
    open_page
    @page.at_css("#chart").scroll_into_view
    bar = bars[3]
    @page.mouse.move(x: bar["x"] + bar["width"] / 2, y: bar["bottom"] - @page.evaluate("scrollY") - 2)
    assert_equal bar["text"], wait_until { @page.at_css("#readout").text[/.+/] }
  end

  def test_colours
    open_page("without-run=old")
    assert_equal "rgb(255, 255, 255)", background
    media(prefers_color_scheme: "dark")
    assert_equal "rgb(22, 22, 22)", background
    assert_accessible
    choose("theme", "light")
    assert_equal "rgb(255, 255, 255)", background
    assert_accessible
    media(prefers_color_scheme: "light")
    choose("theme", "dark")
    assert_equal "rgb(22, 22, 22)", background
  end

  def test_motion
    open_page
    duration = -> { @page.evaluate("getComputedStyle(document.querySelector('#chart .body')).transitionDuration") }
    media(prefers_reduced_motion: "no-preference")
    assert_equal "0.15s", duration.call
    media(prefers_reduced_motion: "reduce")
    assert_equal "0s", duration.call
  end

  def test_print
    open_page("theme=dark&without-run=old")
    media(media: "print")
    assert_equal "rgb(255, 255, 255)", background
    %w[#controls #copy-csv #readout #theme].each do |control|
      refute @page.evaluate("document.querySelector('#{control}').checkVisibility()"), control
    end
    assert @page.evaluate("document.querySelector('#chart svg').checkVisibility()")
    assert_operator @page.pdf(encoding: :binary).bytesize, :>, 20_000
    assert @page.evaluate("[...document.querySelectorAll('details')].every(one => one.open)"), "some is folded"
  end

  def test_the_runs_tell_of_themselves
    open_page
    about = @page.evaluate("document.getElementById('about').textContent")
    assert_includes about, "heddle 1.0"
    assert_includes about, "again: heddle bench http --models stock,heddle"
    assert_includes about, "a CPU, 2 cores, Linux 6.18 x86_64"
    assert_includes about, "The doctor's verdict: the machine is busy: load average 2.13 0.77 2.84."
  end

  def test_without_a_clipboard_the_text_can_be_copied_by_hand
    open_page("without-run=old")
    @page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    click("#copy-markdown")
    area = wait_until { @page.at_css("dialog[open] textarea") }
    assert_match(/\A\| Run \| Case /, area.value)
  end

  # Records of earlier versions of the benches: each opens with bars.
  def test_committed_results
    files = Dir["#{RESULTS}/*.json"].sort
    Dir.mktmpdir do |folder|
      path = File.join(folder, "report.html")
      assert_equal [0, "#{path}\n", ""], self.class.report(folder, *files)
      assert_operator File.size(path), :<, 2_000_000
      open_page(file: path)
      benches = files.map { |file| JSON.parse(File.read(file))["bench"] }.uniq
      assert_equal benches.sort, @page.evaluate("[...document.getElementById('bench').options].map(o => o.value)").sort
      benches.each do |bench|
        choose("bench", bench)
        refute_empty bars, bench
      end
    end
  end

  def test_a_record_of_rubies_that_are_not_here
    text = File.read(File.join(self.class.folder, "new.json")).sub('"--models"', '"--rubies","9.9,9.8","--models"')
    Dir.mktmpdir do |folder|
      File.write(file = File.join(folder, "elsewhere.json"), text)
      assert_equal [0, "#{folder}/report.html\n", ""], self.class.report(folder, file)
    end
  end

  def test_a_broken_record_makes_no_page
    good = File.read(File.join(self.class.folder, "new.json"))
    {"truncated" => [good[0, 2000], /this is not JSON/], "foreign" => ["{}", /this is not a record/],
     "incomplete" => [good.sub(/"cases": .*\n/, ""), /lacks cases/],
     "strange" => [good.sub('"bench": "http"', '"bench": "tea"'), /unknown bench "tea"/],
     "newer" => [good.sub('"--sites"', '"--cities"'), /invalid option: --cities/]}.each do |name, (text, message)|
      Dir.mktmpdir do |folder|
        File.write(file = File.join(folder, "#{name}.json"), text)
        status, out, err = self.class.report(File.join(folder, "page"), File.join(self.class.folder, "old.json"), file)
        refute_equal 0, status
        assert_empty out
        assert_match(/\Aheddle: #{Regexp.escape(file)}: .*#{message.source}/, err)
        refute_path_exists File.join(folder, "page")
      end
    end
  end
end
