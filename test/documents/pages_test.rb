# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../rakelib/pages"

runs_on rubies: :newest, backends: :one, short: false

# `rake pages`, with pages of the API as `rake doc` names them.
class PagesTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)

  def setup
    @folder = Dir.mktmpdir
    api = File.join(@folder, "api")
    FileUtils.mkdir_p(api)
    names = Dir["#{ROOT}/{*.md,guides/*.md,doc/*.md}"].map { |path| "file.#{File.basename(path, ".md")}.html" }
    FileUtils.touch(["index.html", *names].map { |name| File.join(api, name) })
    @pages = Pages.new(api: api, results: [File.join(ROOT, "bench/results/http-local-ruby4.0.5.json")])
    @site = File.join(@folder, "site")
  end

  def teardown = FileUtils.rm_rf(@folder)

  def test_the_index_links_the_api_each_guide_and_the_results
    @pages.write(@site)
    index = File.read(File.join(@site, "index.html"))
    links = index.scan(/href="([^"]+)"/).flatten
    guides = Dir["#{ROOT}/guides/*.md"].map { |path| "api/file.#{File.basename(path, ".md")}.html" }
    assert_empty ["api/index.html", "results.html", *guides] - links
    assert_empty links.reject { |link| File.exist?(File.join(@site, link)) }
    assert_includes File.read(File.join(@site, "results.html")), "http-local-ruby4.0.5"
  end

  def test_a_missing_page_is_named
    FileUtils.rm(File.join(@folder, "api/file.puma.html"))
    error = assert_raises(RuntimeError) { @pages.write(@site) }
    assert_equal "the index links to pages that are missing: api/file.puma.html", error.message
  end
end
