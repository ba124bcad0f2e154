# frozen_string_literal: true

require "etc"
require "fileutils"
require "open3"
require "tmpdir"

# The commands of README.md, the guides, CONTRIBUTING.md and bench/README.md, and a fresh clone to run them in.
module FreshClone
  ROOT = File.expand_path("../..", __dir__)
  DOCUMENTS = ["README.md", "CONTRIBUTING.md", "bench/README.md", *Dir.glob("guides/*.md", base: ROOT).sort].freeze
  COMMANDS = DOCUMENTS.flat_map { |document|
    text = File.read(File.join(ROOT, document))
    blocks = text.scan(/^```sh\n(.*?)^```$/m).flatten.flat_map(&:lines) + text.lines.grep(/\A    bin/)
    blocks.map { |line| line.strip.sub(/ +#.*/, "") }
  }.sort.reverse.uniq { |command| # two documents name the same bench
    command.sub(/ (?:--(?:rounds|deadline) \d+ )*--out \S+/, "")
  }.freeze

  # What compiling leaves, of this process's Ruby.
  BUILT = ["tmp/sources", "tmp/*/heddle{,_odbc}/#{RUBY_VERSION}", "tmp/*/stage",
    "{lib/heddle,odbc/lib/heddle/db/odbc}/#{RUBY_VERSION[/\A\d+\.\d+/]}", "lab/ext/server/heddle-server"].freeze

  class << self
    # What bin/setup --all has said there, or nil.
    attr_accessor :set_up

    # Lets the clone have this checkout's compiled code: for tests of commands that only need it.
    def built
      @built ||= Dir.glob(BUILT, base: ROOT).each do |path|
        place = File.join(folder, path)
        FileUtils.mkdir_p(File.dirname(place))
        FileUtils.cp_r(File.join(ROOT, path), place, preserve: true)
      end
    end

    # The tree as a fresh clone has it, with uncommitted changes. Files keep their times, which make and rake compare.
    def folder
      @folder ||= Dir.mktmpdir("heddle-clone").tap do |made|
        Minitest.after_run { FileUtils.remove_entry(made) }
        files = IO.popen(%w[git ls-files -z --cached --others --exclude-standard],
          chdir: ROOT, err: File::NULL) { |list| list.read.split("\0") }
        files.select { |file| File.file?(File.join(ROOT, file)) }.each do |file|
          FileUtils.mkdir_p(File.dirname(File.join(made, file)))
          FileUtils.cp(File.join(ROOT, file), File.join(made, file), preserve: true)
        end
      end
    end
  end

  def setup
    skip "this is no checkout of the repository" if Dir.empty?(FreshClone.folder)
  end

  private

  # Once for all commands that need what it installs.
  def set_up
    FreshClone.set_up ||= run_there("bin/setup --all")
  end

  def run_there(command, attempts: 1, settings: {})
    words = command.is_a?(Array) ? command : command.split
    out, status = Open3.capture2e({**environment, **settings}, *words, chdir: FreshClone.folder)
    return run_there(command, attempts: attempts - 1, settings: settings) if !status.success? && attempts > 1

    assert_predicate status, :success?, "#{command}\n#{out}"
    out
  end

  # Removes the variables that point Bundler at this process's bundle. ccache shall know again what it compiled in
  # another clone: the folder is part of the debug information. The make of `gem install` uses all processors, as
  # that of `rake compile` does.
  def environment
    ENV.keys.grep(/\A(BUNDLER?_|GEM_|RUBY(OPT|LIB)\z|HEDDLE_)/).to_h { |name| [name, nil] }
      .merge("CCACHE_NOHASHDIR" => "1", "MAKEFLAGS" => "-j#{Etc.nprocessors}")
  end
end
