# frozen_string_literal: true

require "test_helper"
require "json"
require "rubygems/package"
require "socket"
require "tmpdir"
require "zlib"
require "support/loop_helpers"

runs_on except: %i[portable newest_net_http]

# RubyGems' own client with an index of gems: it finds, fetches and installs gems, all by the fast path. Its Net::HTTP
# is Ruby's own, and a copy in newer versions.
class NetHTTPRubyGemsTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120
  mode :thread

  # Large enough that a body comes in many pieces.
  PAYLOAD = Random.new(5).bytes(700_000).freeze

  # Gems and their index, in a folder, as `gem generate_index` makes it.
  class Index
    attr_reader :asked

    def initialize(folder)
      @folder = folder
      @files = {}
      @asked = []
      publish("heddle-leaf", "1.2.0", {"payload.bin" => PAYLOAD, "lib/heddle_leaf.rb" => "LEAF = 12\n"})
      publish("heddle-branch", "0.5.0", {"lib/heddle_branch.rb" => "BRANCH = 5\n"}, {"heddle-leaf" => "~> 1.0"})
      list
    end

    # One connection, kept alive.
    def call(connection)
      while (verb, path = connection.gets&.split)
        nil until connection.gets == "\r\n"
        @asked << path
        body = @files[path]
        connection.write("HTTP/1.1 #{body ? "200 OK" : "404 Not Found"}\r\nContent-Length: #{body.to_s.bytesize}\r\n" \
          "ETag: \"#{Zlib.crc32(body.to_s)}\"\r\n\r\n")
        connection.write(body) if body && verb != "HEAD"
      end
    rescue SystemCallError
      nil
    end

    private

    def publish(name, version, files, dependencies = {})
      folder = File.join(@folder, name)
      files.each do |path, content|
        FileUtils.mkdir_p(File.dirname(File.join(folder, path)))
        File.binwrite(File.join(folder, path), content)
      end
      specification = Gem::Specification.new(name, version) do |spec|
        spec.summary = "for a test"
        spec.authors = ["nobody"]
        spec.files = files.keys
        dependencies.each { |other, requirement| spec.add_dependency(other, requirement) }
      end
      add(specification, Dir.chdir(folder) {
        Gem::DefaultUserInteraction.use_ui(Gem::SilentUI.new) { File.binread(Gem::Package.build(specification, true)) }
      })
    end

    def add(specification, packed)
      (@specifications ||= []) << specification
      @files["/gems/#{specification.full_name}.gem"] = packed
      @files["/quick/Marshal.4.8/#{specification.full_name}.gemspec.rz"] = Zlib.deflate(Marshal.dump(specification))
      dependencies = specification.dependencies.map { |other| "#{other.name}:#{other.requirement}" }.join(",")
      @files["/info/#{specification.name}"] =
        "---\n#{specification.version} #{dependencies}|checksum:#{Digest::SHA256.hexdigest(packed)}\n"
    end

    def list
      named = @specifications.map { |specification| [specification.name, specification.version, "ruby"] }
      {"specs" => named, "latest_specs" => named, "prerelease_specs" => []}.each do |name, list|
        @files["/#{name}.4.8.gz"] = Zlib.gzip(Marshal.dump(list))
      end
      versions = @specifications.map { |specification|
        "#{specification.name} #{specification.version} " \
          "#{Digest::MD5.hexdigest(@files["/info/#{specification.name}"])}\n"
      }
      @files["/versions"] = "created_at: 2026-01-01T00:00:00Z\n---\n#{versions.join}"
    end
  end

  def test_gem_fetch
    with_index do |index, port, folder|
      run_gem(folder, "fetch", "heddle-leaf", "--clear-sources", "--source", "http://127.0.0.1:#{port}")
      assert_includes index.asked, "/gems/heddle-leaf-1.2.0.gem"
      fetched = Gem::Package.new(File.join(folder, "heddle-leaf-1.2.0.gem"))
      assert_equal ["heddle-leaf", %w[lib/heddle_leaf.rb payload.bin]], [fetched.spec.name, fetched.contents.sort]
    end
  end

  def test_gem_install
    with_index do |index, port, folder|
      installed = File.join(folder, "home")
      run_gem(folder, "install", "heddle-branch", "--no-document", "--install-dir", installed, "--clear-sources",
        "--source", "http://127.0.0.1:#{port}")
      assert_equal PAYLOAD, File.binread(File.join(installed, "gems/heddle-leaf-1.2.0/payload.bin"))
      assert_equal "BRANCH = 5\n", File.read(File.join(installed, "gems/heddle-branch-0.5.0/lib/heddle_branch.rb"))
      assert_includes index.asked, "/gems/heddle-leaf-1.2.0.gem"
    end
  end

  # In a task other requests of RubyGems' run beside it.
  def test_fetches_side_by_side
    with_index do |_, port, folder|
      out = rubygems(folder, <<~RUBY)
        require "rubygems/remote_fetcher"
        fetcher = Gem::RemoteFetcher.fetcher
        leaf = Heddle.run {
          Array.new(10) { Heddle.spawn { fetcher.fetch_path("http://127.0.0.1:#{port}/gems/heddle-leaf-1.2.0.gem") } }
            .map(&:value)
        }
        puts leaf.map(&:bytesize).uniq.size, leaf.first.bytesize > 700_000
      RUBY
      assert_equal %w[1 true], out.lines(chomp: true).first(2)
    end
  end

  private

  def with_index
    Dir.mktmpdir do |folder|
      index = Index.new(folder)
      with_server(index) { |port| yield index, port, folder }
    end
  end

  def run_gem(folder, *arguments)
    rubygems(folder, "require 'rubygems/gem_runner'\nGem::GemRunner.new.run(#{arguments.inspect})")
  end

  # A process without settings and gems, which answers by the fast path alone.
  def rubygems(folder, code)
    env = {"HOME" => folder, "GEM_HOME" => File.join(folder, "gem_home"), "GEM_PATH" => nil, "GEMRC" => nil,
           "BUNDLE_GEMFILE" => nil,
           "RUBYOPT" => nil, "RUBYLIB" => nil, "http_proxy" => nil, "HTTP_PROXY" => nil, "no_proxy" => nil}
    out = assert_child(<<~RUBY, gems: true, env: env, chdir: folder, timeout: 60)
      require "json"
      begin
        require "rubygems/vendored_net_http"
        client = Gem::Net::HTTP
      rescue LoadError
        require "net/http"
        client = Net::HTTP
      end
      require "heddle/net_http"
      Heddle::NetHTTP.disable
      Heddle::NetHTTP.enable(client)
      begin
        #{code}
      rescue Gem::SystemExitException => e
        abort "gem ended with \#{e.exit_code}" unless e.exit_code.zero?
      end
      puts JSON.generate(Heddle::NetHTTP.stats)
    RUBY
    stats = JSON.parse(out.lines.last)
    assert_operator stats.fetch("fast"), :>, 10
    assert_empty stats.fetch("fallback")
    out
  end
end
