# frozen_string_literal: true

require "cgi"
require "fileutils"
require_relative "context"
$LOAD_PATH.unshift(File.expand_path("../lib", __dir__), File.expand_path("../lab/lib", __dir__))
require "heddle/lab"

# The site: pages of the API and the guides, the results of the benches, and an index that links them. All links are
# relative, so that the folder may lie anywhere, and also opens from a disk.
class Pages
  ROOT = File.expand_path("..", __dir__)
  STYLE = <<~CSS
    :root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
    body { max-width: 44rem; margin: 0 auto; padding: 1rem; }
    h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; }
    a { color: light-dark(#005a8c, #7cc7f2); }
    li { margin: .3rem 0; }
  CSS
  private_constant :ROOT, :STYLE

  # @param api [String] the folder that `rake doc` wrote
  # @param results [Array<String>] records of benches
  def initialize(api:, results:)
    @api = api
    @results = results
  end

  # @param folder [String] is made anew
  # @return [void]
  # @raise [RuntimeError] when the index links to a page that is missing
  # @raise [Heddle::Lab::Error] when a record cannot be read
  def write(folder)
    FileUtils.rm_rf(folder)
    FileUtils.mkdir_p(folder)
    FileUtils.cp_r(@api, File.join(folder, "api"))
    Heddle::Lab::CLI::ReportCommand.new(File.open(File::NULL, "w"), $stderr)
      .run([*@results, "--html", folder, "--name", "results"])
    File.write(File.join(folder, "index.html"), index)
    missing = links.values.flatten(1).map(&:first).reject { |path| File.exist?(File.join(folder, path)) }
    raise "the index links to pages that are missing: #{missing.join(", ")}" if missing.any?
  end

  private

  # What each heading has: paths, with the text of the link and what follows it.
  def links
    {
      "Heddle" => [["api/index.html", "README and API", "every class and method"],
        ["results.html", "Results of the benches", "choose what is drawn: measures, clusters, ratios to any row"]],
      "Guides" => Context::ABOUT.map { |name, about| ["api/file.#{name}.html", title(name), about] },
      "More" => [["api/file.limits.html", "Limits", "what Heddle cannot do, and what to do instead"],
        ["api/file.ruby.html", "Ruby's own defects", "what Heddle works around, with a program that shows each"],
        ["api/file.CHANGELOG.html", "Changelog", "what changed in each version"]]
    }
  end

  def title(guide) = File.read(File.join(ROOT, "guides/#{guide}.md"))[/\A# (.+)/, 1]

  def index
    lists = links.map do |heading, list|
      ["<h2>#{heading}</h2>", "<ul>", *list.map { |link| item(*link) }, "</ul>"].join("\n")
    end
    <<~HTML
      <!doctype html>
      <html lang="en">
      <head>
      <meta charset="utf-8">
      <meta name="viewport" content="width=device-width, initial-scale=1">
      <title>Heddle</title>
      <style>#{STYLE}</style>
      </head>
      <body>
      <main>
      <h1>Heddle</h1>
      <p>#{escape(Gem::Specification.load(File.join(ROOT, "heddle.gemspec")).summary)}.</p>
      #{lists.join("\n")}
      </main>
      </body>
      </html>
    HTML
  end

  def item(path, text, about) = "<li><a href=\"#{path}\">#{escape(text)}</a>: #{escape(about)}</li>"

  def escape(text) = CGI.escapeHTML(text)
end
