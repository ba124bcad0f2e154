# frozen_string_literal: true

require "fileutils"
require "yaml"
require_relative "repository"

# What programs that write code are given to read: llms.txt (llmstxt.org), an index of the guides that stands in the
# tree, and context/, the guides in the form that the gem agent-context looks for in a gem, made when the gem is built.
class Context
  # What each guide is about.
  ABOUT = {
    "getting_started" => "install, tasks, pools, blocking code, Rails",
    "deadlines_and_cancellation" => "time limits, clean-up, and a table of all errors",
    "names_and_connects" => "a dead host or a slow name server stops no other task",
    "connect_filter" => "URLs from strangers reach no private address",
    "processes" => "the same work on several cores",
    "net_http" => "unmodified callers of Net::HTTP take less CPU",
    "keep_alive" => "unmodified callers of Net::HTTP reuse connections and TLS sessions",
    "memcached" => "Heddle's own client, its options and errors; Rails' cache store",
    "databases" => "clients for MySQL, MariaDB, PostgreSQL, SQLite, ODBC; ActiveRecord, Sequel, pg, mysql2 and sqlite3",
    "puma" => "Rails on Puma: hundreds of requests at once in one thread",
    "jobs" => "Sidekiq's jobs on fibers, with deadlines and limits",
    "executors_and_limits" => "concurrent-ruby's work as tasks, semaphores and pools, limits for all processes",
    "streams" => "sockets with deadlines, for clients of your own",
    "simulation" => "unmodified code in a world with a virtual clock and a bad network, by a seed",
    "what_is_it_doing" => "heddle ps, tree, top and why; what kept a loop; metrics; traces",
    "measuring" => "the benches, the load server, the proxy",
    "coming_from_async" => "Async's tasks and libraries on Heddle's loop",
    "how_it_works" => "the layers, and the way of a read through them",
    "upgrading_and_versions" => "what may change when, and which Rubies and libraries are supported"
  }.freeze

  # @param root [String] the working tree
  def initialize(root)
    @root = root
    @spec = Gem::Specification.load(File.join(root, "heddle.gemspec"))
  end

  # @return [String] the text of llms.txt
  def index
    <<~TEXT
      # Heddle

      > #{@spec.summary}. #{@spec.description.split.join(" ")}

      ## Guides

      #{guides.map { |name, text| "- [#{title(text)}](guides/#{name}.md): #{ABOUT.fetch(name)}" }.join("\n")}

      ## More

      - [Limits](doc/limits.md): what Heddle cannot do, and what to do instead.
      - [Compatibility](doc/compatibility.md): what was measured of other libraries, with their versions.
      - [Ruby's own defects](doc/ruby.md): what Heddle works around, with a program that shows each.
      - [Decisions](doc/adr/README.md): why it is built as it is.
      - [Signatures](sig): the public API as RBS.
    TEXT
  end

  # @param folder [String] is made anew
  # @return [void]
  def write(folder)
    FileUtils.rm_rf(folder)
    FileUtils.mkdir_p(folder)
    guides.each { |name, text| File.write(File.join(folder, "#{name}.md"), absolute(text)) }
    File.write(File.join(folder, "index.yaml"), YAML.dump(
      "description" => @spec.summary, "version" => @spec.version.to_s,
      "metadata" => @spec.metadata.slice("documentation_uri", "source_code_uri"),
      "files" => guides.map { |name, text|
        {"path" => "#{name}.md", "title" => title(text), "description" => ABOUT.fetch(name)}
      }
    ))
  end

  private

  # In the order of {ABOUT}: what a newcomer reads first.
  def guides
    @guides ||= Dir[File.join(@root, "guides/*.md")].to_h { |path| [File.basename(path, ".md"), File.read(path)] }
      .sort_by { |name, _| ABOUT.keys.index(name) }.to_h
  end

  def title(text) = text[/\A# (.+)/, 1]

  # The copies of a gem's guides are read far from its other pages.
  def absolute(text) = text.gsub("](../", "](#{Repository.files(@spec)}/")
end
