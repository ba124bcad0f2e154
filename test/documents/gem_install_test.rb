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

  # From the package that the clone makes. The signatures are those of the installed gem.
  def test_gem_install_heddle
    Dir.mktmpdir("heddle-gems") do |gems|
      package = File.join(gems, "heddle.gem")
      run_there("gem build --strict --output #{package} heddle.gemspec")
      run_there("gem install --local --no-document --ignore-dependencies --install-dir #{gems} #{package}")
      folder, = Dir["#{gems}/gems/heddle-*"]
      paths = Gem.path.join(":")
      installed = {**environment, "GEM_HOME" => gems, "GEM_PATH" => "#{gems}:#{paths}"}
      [["-e", 'require "heddle"; puts Heddle.run { $".grep(/heddle\.so/) }'],
        %w[-S rbs -r heddle validate]].each do |arguments|
        out, status = Open3.capture2e(installed, RbConfig.ruby, *arguments, chdir: gems)
        assert_predicate status, :success?, out
        assert_includes out, folder if arguments.first == "-e"
      end
    end
  end
end
