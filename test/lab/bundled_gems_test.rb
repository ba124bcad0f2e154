# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "tmpdir"

# The processes that a bench starts load the gems of the lock file, not the newest on the machine.
class LabBundledGemsTest < Minitest::Test
  LAB = File.expand_path("../../lab/lib", __dir__)
  LIBRARY = File.expand_path("../../lib", __dir__)

  # A bench's process that reports which versions it gets.
  BENCH = <<~RUBY
    require "heddle/lab"
    class GemsBench < Heddle::Lab::Bench
      bench "gems", about: "", default_models: [], kinds: {}
    end
    answer = Heddle::Lab::Child.new(paths: [__dir__])
      .run({"bench" => "gems", "kind" => "", "params" => {}, "probe" => true})
    puts answer["error"] || answer["versions"]
  RUBY
  WORKLOAD = <<~RUBY
    class GemsWorkload < Heddle::Lab::Workload
      for_bench "gems"

      def prepare
        [load_gem("heddle_peer"), Gem.loaded_specs["heddle_dependency"].version.to_s, HEDDLE_PEER, absent]
      end

      def absent
        load_gem("heddle_stranger")
      rescue LoadError => error
        error.message[/not installed/]
      end
    end
  RUBY

  def test_the_versions_of_the_lock_file
    Dir.mktmpdir("heddle-bundle") do |folder|
      ["1.0", "2.0"].each do |version|
        add_gem(folder, "heddle_dependency", version)
        add_gem(folder, "heddle_peer", version, needs: "heddle_dependency")
        add_gem(folder, "heddle_stranger", version)
      end
      write(folder, "Gemfile", %(source "https://gems.example"\ngem "heddle_peer"\n))
      write(folder, "Gemfile.lock", <<~LOCK)
        GEM
          remote: https://gems.example/
          specs:
            heddle_dependency (1.0)
            heddle_peer (1.0)
              heddle_dependency

        PLATFORMS
          ruby

        DEPENDENCIES
          heddle_peer
      LOCK
      assert_equal ["heddle_peer 1.0", "1.0", "1.0 with 1.0", "not installed"], versions(folder, "-rbundler/setup")
      assert_equal ["heddle_peer 2.0", "2.0", "2.0 with 2.0", "heddle_stranger 2.0"], versions(folder)
    end
  end

  private

  def versions(folder, *options)
    write(folder, "heddle/lab/workload/gems.rb", WORKLOAD)
    write(folder, "bench.rb", BENCH)
    env = ENV.keys.grep(/\A(BUNDLE|RUBY(OPT|LIB)\z|GEM_)/).to_h { |name| [name, nil] } # this process's own bundle
    env.update(
      "GEM_HOME" => "#{folder}/gems", "BUNDLE_GEMFILE" => "#{folder}/Gemfile", "BUNDLE_APP_CONFIG" => "#{folder}/config"
    )
    out, status = Open3.capture2e(env, RbConfig.ruby, *options, "-I", LAB, "-I", LIBRARY, "#{folder}/bench.rb")
    assert status.success?, out
    out.lines(chomp: true)
  end

  def add_gem(folder, name, version, needs: nil)
    write(folder, "gems/gems/#{name}-#{version}/lib/#{name}.rb", <<~RUBY)
      #{"require #{needs.inspect}" if needs}
      #{name.upcase} = #{needs ? "\"#{version} with \#{#{needs.upcase}}\"" : version.inspect}
    RUBY
    write(folder, "gems/specifications/#{name}-#{version}.gemspec", <<~RUBY)
      # -*- encoding: utf-8 -*-
      # stub: #{name} #{version} ruby lib

      Gem::Specification.new do |spec|
        spec.name = #{name.inspect}
        spec.version = #{version.inspect}
        spec.summary = spec.author = "heddle"
        spec.require_paths = ["lib"]
        spec.files = ["lib/#{name}.rb"]
        spec.installed_by_version = "3.3.0" if spec.respond_to?(:installed_by_version=)
        #{"spec.add_dependency #{needs.inspect}" if needs}
      end
    RUBY
  end

  def write(folder, path, text)
    path = File.join(folder, path)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text)
  end
end
