# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# A part of Heddle that is required alone brings what its examples use.
class PartialRequiresTest < Minitest::Test
  include LoopHelpers

  %w[net_http timeout db memcached offload stream map fiber_pool run neverblock blocking_operations].each do |part|
    define_method("test_#{part}_alone") do
      out = in_child(<<~RUBY, heddle: false, env: {"RUBYOPT" => "-W2"})
        require "heddle/#{part}"
        puts Heddle.run { Heddle::FiberPool.new(2).map([1, 2]) { |number| Heddle.spawn { number }.value }.sum }
      RUBY
      assert_equal ["3\n", ""], [out.out, out.err]
    end
  end

  %w[async active_record sequel sidekiq limit executor active_job mysql2 sqlite3 puma].each do |part|
    define_method("test_#{part}_warns_of_nothing_of_its_own") do
      out = in_child(%($VERBOSE = true; require "heddle/#{part}"; puts "loaded"), heddle: false, gems: true)
      assert_equal "loaded\n", out.out, out.err
      assert_empty out.err.lines.grep(%r{/(lib|ext)/heddle})
    end
  end

  # Internal files are in folders: what lib/heddle itself has is for programs. The gem good_job itself does not load
  # without Rails.
  def test_each_file_alone
    out = in_child(<<~RUBY, heddle: false, gems: true, timeout: 120) # thirty processes, one after another
      Dir["#{ROOT}/lib/heddle/*.rb"].grep_v(/good_job/).each do |file|
        Process.wait(fork do
          require file
        rescue LoadError
          raise unless $!.message.match?(/needs the gem .* to your Gemfile/)
        end)
        puts file unless $?.success?
      end
      puts "all"
    RUBY
    assert_equal "all\n", out.out, out.err
  end

  # A constant that an autoload may define says nothing of the rest.
  def test_a_part_behind_another_brings_the_whole
    out = in_child(<<~RUBY, heddle: false)
      require "heddle/stream"
      require "heddle/blocking_operations"
      puts Heddle.map([1]) { |number| number }
    RUBY
    assert_equal ["1\n", ""], [out.out, out.err]
  end

  {
    active_record: "activerecord", sequel: "sequel", mysql2: "mysql2", sqlite3: "sqlite3",
    notifications: "activesupport", async: "async", limit: "redis-client", sidekiq: "sidekiq", active_job: "activejob",
    good_job: "active", executor: "concurrent-ruby", rails: "railties", puma: "puma"
  }.each do |part, gem|
    define_method("test_#{part}_without_its_gem") do
      out = in_child(<<~RUBY, heddle: false)
        require "heddle/#{part}"
      RUBY
      assert_match(/needs the gem #{gem}.*Gemfile \(LoadError\)/, out.err)
    end
  end

  # Older Rubies have it without a gem. No server has to be there: the error comes before the connect.
  %w[mysql://127.0.0.1:9/base postgresql://127.0.0.1:9/base sqlite::memory:].each do |address|
    define_method("test_#{address[/\w+/]}_without_bigdecimal") do
      out = in_child(<<~RUBY)
        begin
          Heddle::DB.connect(#{address.inspect}, timeout: 5)
        rescue LoadError => error
          puts error.message
        rescue Errno::ECONNREFUSED
        end
        puts Heddle.run { "goes on" }
      RUBY
      without = %(Heddle::DB needs the gem bigdecimal: add gem "bigdecimal" to your Gemfile\ngoes on\n)
      (RUBY_VERSION < "3.4") ? refute_match(/bigdecimal/, out.out) : assert_equal(without, out.out, out.err)
    end
  end
end
