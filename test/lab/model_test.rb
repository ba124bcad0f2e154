# frozen_string_literal: true

require "test_helper"
require "heddle/lab"

class LabModelTest < Minitest::Test
  KINDS = {"threads" => :optional, "pool" => :required, "heddle" => :none, "heddle_deadline" => :none,
           "async" => :none}.freeze

  def parse(name) = Heddle::Lab::Model.parse(name, KINDS)

  def test_names
    %w[threads threads:20 pool:5@epoll heddle@uring].each { |name| assert_equal name, parse(name).name }
  end

  def test_backends_become_environment
    assert_equal({"HEDDLE_BACKEND" => "epoll"}, parse("pool:5@epoll").environment)
    assert_equal({"IO_EVENT_SELECTOR" => "URing"}, parse("async@uring").environment)
    assert_equal({"HEDDLE_BACKEND" => "poll"}, parse("heddle_deadline@poll").environment)
    assert_empty parse("heddle").environment
  end

  def test_modes
    assert_equal "heddle@epoll+insight+yjit", parse("heddle@epoll+insight+yjit+insight").name
    assert_equal({"HEDDLE_INSIGHT" => "1"}, parse("heddle_deadline+insight").environment)
    assert_equal({"HEDDLE_WATCH_STALLS" => "0.05", "HEDDLE_BACKEND" => "epoll"},
      parse("pool:5@epoll+watched").environment)
  end

  def test_yjit
    %w[heddle+yjit threads:20+yjit pool:5@epoll+yjit].each { |name| assert_equal name, parse(name).name }
    assert_equal({"RUBY_YJIT_ENABLE" => "1", "HEDDLE_BACKEND" => "epoll"}, parse("pool:5@epoll+yjit").twin.environment)
    refute_predicate parse("heddle"), :yjit?
  end

  def test_bad_names
    {"nope" => /unknown model "nope"; choose from threads, pool/, "pool" => /needs a number, as in pool:100/,
     "heddle:3" => /takes no number/,
     "pool:0" => /at least 1/, "heddle@kqueue" => /unknown backend "kqueue"; it has uring, epoll, poll/,
     "threads@epoll" => /threads has none to choose/, "heddle+jit" => /unknown mode "jit"; heddle has yjit, insight/,
     "async+insight" => /unknown mode "insight"; async has yjit$/,
     "" => /unknown model ""/}.each do |name, message|
      assert_match message, assert_raises(Heddle::Lab::UsageError) { parse(name) }.message
    end
  end
end
