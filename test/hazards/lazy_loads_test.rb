# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require "heddle"

# A task loads a class by autoload and waits in the middle of it, while another task uses the class.
class LazyLoadsTest < Minitest::Test
  mode :fiber

  SOURCE = <<~RUBY
    class %<name>s
      LazyLoadsTest.opened.push(true)
      LazyLoadsTest.release.pop
      def initialize(value)
      end
    end
  RUBY

  class << self
    attr_reader :opened, :release
  end

  def setup
    super
    @folder = Dir.mktmpdir
    self.class.instance_variable_set(:@opened, Thread::Queue.new)
    self.class.instance_variable_set(:@release, Thread::Queue.new)
  end

  def teardown
    FileUtils.rm_rf(@folder)
    super
  end

  def test_another_task_sees_half_a_class_on_ruby_3_1
    File.write(File.join(@folder, "half_loaded.rb"), format(SOURCE, name: "HalfLoaded"))
    Object.autoload(:HalfLoaded, File.join(@folder, "half_loaded.rb"))
    first, second = Heddle.run { both }
    assert_equal "HalfLoaded", first
    assert_equal (RUBY_VERSION < "3.2") ? "ArgumentError" : "HalfLoaded", second
  ensure
    Object.send(:remove_const, :HalfLoaded)
  end

  def test_rails_is_warned_once_on_ruby_3_1
    require "heddle/active_record"
    Heddle::ActiveRecordSupport.instance_variable_set(:@advised, nil)
    rails = Struct.new(:env).new("development")
    Object.const_set(:Rails, rails)
    lazy, eager = [false, true].map { |value| Struct.new(:config).new(Struct.new(:eager_load).new(value)) }
    _, quiet = capture_io { Heddle::ActiveRecordSupport.advise(eager) }
    assert_empty quiet
    _, said = capture_io { 2.times { Heddle::ActiveRecordSupport.advise(lazy) } }
    expected = (RUBY_VERSION < "3.2") ? ["config.eager_load = true in config/environments/development.rb"] : []
    assert_equal expected, said.scan(/config\.eager_load.*$/)
  ensure
    Object.send(:remove_const, :Rails) if rails
  end

  private

  def both
    loader = Heddle.spawn { HalfLoaded.new(1).class.name }
    self.class.opened.pop
    user = Heddle.spawn do
      HalfLoaded.new(1).class.name
    rescue ArgumentError => e
      e.class.name
    end
    wait_until(what: "the other task's turn") { user.ended? || user.status == :waiting }
    self.class.release.push(true)
    [loader.value, user.value]
  end
end
