# frozen_string_literal: true

require "test_helper"
require "support/fresh_clone"

runs_on rubies: :newest, short: false

# `gem install heddle`, which the documents name. It compiles everything, as one of the other commands does in a clone:
# these two run beside each other.
class GemInstallTest < Minitest::Test
  include FreshClone

  hard_deadline 240 # it compiles

  def test_the_documents_name_no_other_gem
    assert_equal ["gem install heddle"], FreshClone::COMMANDS.grep(/\Agem install/)
  end

  # From the package that the clone makes, where little is as usual: a system of no known kind, no place for temporary
  # files, no locale, and a path that a shell or make would split; the program that uses it has no home either. The
  # signatures are those of the installed gem.
  def test_gem_install_heddle
    Dir.mktmpdir("heddle-gems") do |place|
      gems = File.join(place, "Gems für alle")
      package = File.join(place, "heddle.gem")
      run_there("gem build --strict --output #{package} heddle.gemspec")
      run_there(%W[gem install --local --no-document --install-dir #{gems} #{package}],
        settings: bare(place))
      folder, = Dir["#{gems}/gems/heddle-*"]
      paths = [gems, *Gem.path].join(":")
      installed = {**environment, **bare(place), "HOME" => "#{place}/none", "GEM_HOME" => gems, "GEM_PATH" => paths}
      [["-e", 'require "heddle"; puts Heddle.run { $".select { |path| path.end_with?("heddle.so") } }'],
        %w[-S rbs -r heddle validate]].each do |arguments|
        out, status = Open3.capture2e(installed, RbConfig.ruby, *arguments, chdir: gems)
        assert_predicate status, :success?, out
        assert_includes out.force_encoding(Encoding::UTF_8), folder if arguments.first == "-e"
      end
    end
  end

  private

  def bare(place)
    path = File.join(place, "unknown_system.rb")
    File.write(path, "require 'rbconfig'; RbConfig::CONFIG.update('host_os' => 'unknown9', 'target_os' => 'unknown9')")
    {"RUBYOPT" => "-r#{path}", "TMPDIR" => "#{place}/none", "LC_ALL" => "C", "LANG" => nil}
  end
end
