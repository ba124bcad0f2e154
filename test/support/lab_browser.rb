# frozen_string_literal: true

require "ferrum"
require "heddle/lab"

# Pages of the lab in a real browser: Chromium, which shows what a reader would see and tells where it is. After each
# test no error may have been logged, and nothing asked of a network.
module LabBrowser
  AXE = "4.14.1"

  # One for all tests: it starts in a second or two.
  def self.browser
    @browser ||= begin
      # Chromium has no sandbox for root, and containers have little shared memory.
      flags = %w[no-sandbox disable-gpu disable-dev-shm-usage].to_h { |flag| [flag, nil] }
      Minitest.after_run { @browser.quit }
      Ferrum::Browser.new(browser_path: "chromium", browser_options: flags, process_timeout: 60, timeout: 60,
        window_size: [1280, 1000])
    end
  end

  def setup
    @complaints = []
    @requests = []
    @page = LabBrowser.browser.create_page
    @page.on("Log.entryAdded") { |params| @complaints << params.dig("entry", "text") }
    @page.on("Runtime.consoleAPICalled") { |params| @complaints << params["args"].inspect }
    @page.on("Runtime.exceptionThrown") { |params| @complaints << params.dig("exceptionDetails", "text") }
    @page.on("Network.requestWillBeSent") { |params| @requests << params.dig("request", "url") }
    @page.command("Log.enable")
  end

  def teardown
    assert_empty @complaints
    assert_empty @requests.grep_v(/\Afile:/)
    @page.close
  end

  # @param fragment [String] the view
  def open_file(file, fragment = "")
    @page.go_to("about:blank")
    @requests.clear
    @page.go_to("file://#{file}##{fragment}")
    wait_until { @page.evaluate("performance.getEntriesByName('draw').length > 0") }
  end

  def wait_until
    give_up = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 20
    until (value = yield)
      flunk "not so after 20 s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > give_up
      sleep 0.02
    end
    value
  end

  def choose(id, value)
    @page.at_css("##{id}").select(value, by: :value)
    wait_until { @page.at_css("##{id}").value == value }
  end

  def awaited(promise)
    @page.command("Runtime.evaluate", expression: promise, awaitPromise: true, returnByValue: true)["result"]["value"]
  end

  def click(css)
    @page.at_css(css).scroll_into_view.click
  end

  def fragment = @page.evaluate("location.hash")

  def media(media: "", **features)
    @page.command("Emulation.setEmulatedMedia", media: media,
      features: features.map { |name, value| {name: name.to_s.tr("_", "-"), value: value} })
  end

  def background = @page.evaluate("getComputedStyle(document.body).backgroundColor")

  # Nothing that is serious or worse for axe-core.
  def assert_accessible
    folder = Heddle::Lab::Servers.node_package("axe-core", AXE)
    @page.command("Runtime.evaluate", expression: File.read(File.join(folder, "node_modules/axe-core/axe.min.js")))
    violations = awaited("axe.run().then(result => result.violations.map(violation => " \
      "[violation.impact, violation.id, violation.nodes[0].html]))")
    assert_empty violations.select { |impact, *| %w[serious critical].include?(impact) }
  end
end
