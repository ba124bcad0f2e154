# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/puma_process"
require "heddle/puma"

runs_on rubies: :ends, also: %i[oldest_puma]

# What plugin :heddle does with a Puma, an application or a configuration that it cannot work with.
class PumaCompatibilityTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  Compatibility = Heddle::PumaSupport.const_get(:Compatibility)

  def test_the_installed_puma_is_known
    assert_silent { Compatibility.check }
  end

  def test_a_puma_without_a_method_is_refused
    pool = Class.new(Puma::ThreadPool) { undef_method :spawn_thread, :shutdown }
    error = assert_raises(LoadError) { Compatibility.check(pool, "9.9.9") }
    assert_equal "heddle/puma cannot run on Puma 9.9.9: its ThreadPool has no shutdown, spawn_thread. Update " \
      "Heddle, or remove plugin :heddle from config/puma.rb", error.message
  end

  def test_a_puma_with_another_method_or_version_is_warned_of
    pool = Class.new(Puma::ThreadPool) { def overtake = nil }
    assert_output(nil, /\Aheddle: Puma 8\.9\.9 .* its ThreadPool also has overtake\n\z/) do
      Compatibility.check(pool, "8.9.9")
    end
    assert_output(nil, /\Aheddle: Puma 99\.0\.0 is not one of the versions that this Heddle was tested with .*\n\z/) do
      Compatibility.check(Puma::ThreadPool, "99.0.0")
    end
  end

  def test_a_pool_with_other_variables_is_refused
    error = assert_raises(LoadError) { Compatibility.check_state(Object.new, "9.9.9") }
    assert_match(/\Aheddle\/puma cannot run on Puma 9\.9\.9: its ThreadPool has no @auto_trim, /, error.message)
  end

  def test_pools_of_other_servers_stay_as_they_are
    pool = Puma::ThreadPool.new("test", {min_threads: 0, max_threads: 1}) {}
    assert_instance_of Puma::ThreadPool, pool
  ensure
    pool&.shutdown(-1)
  end

  def test_wrong_numbers
    {"fibers: 0" => "fibers must be an Integer of 1 or more, not 0",
     "fibers: 'x'" => "fibers must be an Integer of 1 or more, not \"x\"",
     "fibers: 1, stall: 0" => "stall must be a number of seconds above 0, not 0"}.each do |arguments, message|
      assert_includes failed_start("plugin :heddle\nheddle #{arguments}"), "heddle: #{message}"
    end
  end

  # Requests would see each other's attributes.
  def test_isolation_by_thread_is_refused
    output = failed_start("plugin :heddle\nheddle fibers: 10",
      "require 'active_support'; require 'active_support/isolated_execution_state'\nrun ->(_) { [200, {}, []] }")
    assert_includes output, "Write config.active_support.isolation_level = :fiber in config/application.rb"
  end

  private

  # @return [String] what a Puma says that ends at once
  def failed_start(configuration, application = "run ->(_) { [200, {}, []] }")
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "puma.rb"), "#{configuration}\nbind 'unix://web'")
      File.write(File.join(folder, "config.ru"), application)
      out = IO.popen({"RUBYOPT" => "-W0 -rbundler/setup -I#{PumaProcess::ROOT}/lib"},
        [RbConfig.ruby, Gem.bin_path("puma", "puma"), "-C", "puma.rb"], chdir: folder, err: %i[child out], &:read)
      refute_predicate $?, :success?, out
      out
    end
  end
end
