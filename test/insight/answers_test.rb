# frozen_string_literal: true

require "test_helper"
require "support/insight_helpers"

# What heddle ps makes of answers that no process of Heddle's gives.
class InsightAnswersTest < Minitest::Test
  include InsightHelpers

  def test_answers_that_are_none
    {
      "nonsense\n" => /a line that is no JSON/, "[1]\n" => /a line that is no object/, "" => /before it answered/,
      %({"now":1}\n{"end":true}\n) => /it has no process/,
      %({"heddle":"1","pid":#{Process.pid}}\n) => /it ends in the middle/,
      %({"heddle":"1","pid":#{Process.pid}}\n{"task":"x"}\n{"end":true}\n) => /task is String/,
      "\x00\xff\e[2J\n" => /no JSON/, "#{"[" * 10_000}\n" => /no JSON/
    }.each do |answer, message|
      status, out, err = answered(answer)
      assert_equal [69, ""], [status, out]
      assert_match message, err
      refute_match(/\e/, err)
    end
  end

  def test_an_endless_answer
    assert_match(/a line of more than/, answered("x" * 65_536, endless: true).last)
  end

  def test_an_answer_with_escapes
    row = {"task" => 1, "parent" => 0, "loop" => 1, "state" => "wait\e[2Jing", "name" => "\e]0;x\a",
           "waits_for" => "\e[31m"}
    loop_row = {"loop" => 1, "thread" => "\e[1m", "backend" => "\r"}
    rows = [{"heddle" => "\e[5m", "pid" => Process.pid, "ruby" => "\e[6m", "program" => "\e[7m"}, loop_row, row,
      {"ruby" => {"pools" => ["\e[8m"]}}, {"end" => true}]
    status, out, = answered(rows.map { |one| "#{JSON.generate(one)}\n" }.join)
    assert_equal 0, status
    refute_match(/[\e\a\r]/, out)
  end

  def test_an_answer_with_numbers_that_json_does_not_have
    status, out, err = answered(%({"heddle":"1","pid":#{Process.pid},"x":1e400}\n{"end":true}\n), "ps", "--json")
    assert_equal [69, ""], [status, out]
    assert_match(/this is no answer of Heddle's/, err)
  end

  # What Ruby code said of a task is older than what the native thread says.
  def test_a_task_that_waits_for_something_else_meanwhile
    row = {"task" => 1, "parent" => 0, "loop" => 1, "state" => "waiting", "wait" => "sleep",
           "waits_for" => "the end of a sleep"}
    rows = [{"heddle" => "1", "pid" => Process.pid}, {"loop" => 1, "thread" => "x", "backend" => "x"}, row,
      {"detail" => 1, "waits_for" => "a Thread::Queue", "awaits" => [1]}, {"end" => true}]
    _, out, = answered(rows.map { |one| "#{JSON.generate(one)}\n" }.join, "why", 1)
    assert_match(/^task 1 waiting for -: the end of a sleep$/, out)
    refute_match(/cycle/, out)
  end

  # That of a child that answers is no reason to be silent about it.
  def test_a_process_that_answers_garbage_and_has_a_child_that_answers
    looking_into("puts 'ready'; sleep") do |child|
      status, out, err = answered("nonsense\n")
      assert_equal 69, status
      assert_match(/^process #{child} /, out)
      assert_match(/no JSON/, err)
    end
  end

  # Each level of the tree would be twice as long as the one above.
  def test_an_answer_that_has_tasks_twice
    tasks = 3.times.flat_map { |i| [{"task" => i + 1, "parent" => i, "loop" => 1, "state" => "waiting"}] * 2 }
    rows = [{"heddle" => "1", "pid" => Process.pid}, {"loop" => 1, "thread" => "x", "backend" => "x"}, *tasks,
      {"end" => true}]
    _, out, = answered(rows.map { |one| "#{JSON.generate(one)}\n" }.join, "tree")
    assert_equal 3, out.scan("waiting").size, out
  end
end
