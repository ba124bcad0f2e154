# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/refusals"
require "heddle"
require "heddle/lab"
require "heddle/lab/workload"

# In a container, whose security profile often refuses io_uring, a report says that Heddle waits with another backend,
# and why.
class RefusedBackendTest < Minitest::Test
  include LoopHelpers
  include Refusals

  VERSIONS = <<~RUBY
    $:.unshift("#{ROOT}/lab/lib")
    require "heddle/lab"
    require "heddle/lab/workload"
    puts Heddle::Lab::Workload.allocate.send(:load_heddle)
  RUBY

  def test_a_report_says_which_backend_is_refused
    skip "this build has no io_uring" unless Heddle::Scheduler.backends.include?("uring")
    refusing(IO_URING_SETUP, Errno::EPERM) do |launcher|
      out = assert_child(VERSIONS, env: {"HEDDLE_BACKEND" => nil}, launcher: launcher)
      assert_equal "heddle #{Heddle::VERSION} (epoll; uring is refused: #{Errno::EPERM.new.message})\n", out
    end
  end

  # Such a peer is named as one that is not installed is, and the others are measured. Some gem stands in for it: the
  # true ones want newer Rubies.
  def test_a_peer_that_has_no_other_backend
    peer = Heddle::Lab::Workload.allocate
    assert_match(/\Aminitest \d/, peer.send(:load_on_io_uring, "minitest", "minitest/mock") {}.first)
    {-> { raise "no ring" } => "no ring", -> { exit!(9) } => "exit 9"}.each do |start, reason|
      error = assert_raises(LoadError) { peer.send(:load_on_io_uring, "minitest") { start.call } }
      assert_match(/\Aminitest, which takes io_uring, does not start here: .*#{reason}/, error.message)
    end
  end

  def test_a_report_where_nothing_is_refused
    out = assert_child(VERSIONS, env: {"HEDDLE_BACKEND" => "poll"})
    assert_match(/\Aheddle #{Heddle::VERSION} \(poll[;)]/o, out)
  end
end
