# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "net/http"
require "heddle"
require "heddle/memcached"

# A deadline's error points to the first wait that it ended. Libraries try again, in vain, and raise what the last try
# met: Net::HTTP says that a connect has failed, though the answer did not come.
class FirstWaitTest < Minitest::Test
  include LoopHelpers

  mode :mixed

  def setup
    @server = TCPServer.new("127.0.0.1", 0)
    @port = @server.addr[1]
    @accepted = []
    @acceptor = Thread.new { loop { @accepted << @server.accept } }
  end

  def teardown
    @acceptor.kill.join
    [@server, *@accepted].each(&:close)
  end

  WAIT = /net\/protocol\.rb:\d+:in ['`](?:\S*#)?(?:io_wait|wait_readable)'/
  SECONDS = 0.5 # beside other tests a request may not have begun to wait sooner
  OVER = "the 0.5 s of Heddle.deadline(0.5) are over: every wait in its block fails until the block ends"
  THREAD = /\A#{Regexp.escape(OVER)}; first in \S*#{WAIT}\z/

  def test_a_retried_request_in_a_thread
    error = assert_raises(Heddle::DeadlineExceeded) { request }
    assert_match THREAD, error.message
    assert_match WAIT, error.backtrace.first
    assert_kind_of Heddle::DeadlineExceeded, error.cause
  end

  def test_a_retried_request_in_a_task
    error = assert_raises(Heddle::DeadlineExceeded) { Heddle.run { request } }
    assert_includes error.message, "ends; it ended a wait for 127.0.0.1:#{@port} to be readable; first in "
    assert_match WAIT, error.backtrace.first
    assert_match(/Failed to open TCP connection/, error.cause.message)
  end

  # A library's own error, and none at all.
  def test_other_endings
    endings = {"its own error" => -> { raise IOError, "gave up" }, "an answer" => -> { :half }, "nothing" => nil}
    endings.each do |name, ending|
      [->(&block) { block.call }, ->(&block) { Heddle.run(&block) }].each do |place|
        error = assert_raises(Heddle::DeadlineExceeded, name) do
          place.call do
            Heddle.deadline(0.1) do
              a_place_to_wait
            rescue Heddle::DeadlineExceeded
              ending ? ending.call : raise
            end
          end
        end
        assert(error.backtrace.any? { |line| line.include?("a_place_to_wait") }, "#{name}: #{error.backtrace.first(3)}")
        assert_kind_of IOError, error.cause if name == "its own error"
      end
    end
  end

  def test_a_deadline_that_is_used_again_names_its_own_wait
    2.times do
      error = assert_raises(Heddle::DeadlineExceeded) { Heddle.run { request } }
      assert_equal 1, error.message.scan("it ended a wait").size
    end
  end

  def test_a_silent_memcached
    [->(&block) { block.call }, ->(&block) { Heddle.run(&block) }].each do |place|
      client = Heddle::Memcached.new("127.0.0.1:#{@port}", timeout: 0.1)
      error = assert_raises(Heddle::DeadlineExceeded) { place.call { client.get("key") } }
      assert_match(/\Amemcached 127\.0\.0\.1:#{@port} did not answer a new connection within the client's timeout: /,
        error.message)
      outer = assert_raises(Heddle::DeadlineExceeded) do
        place.call { Heddle.deadline(0.05) { Heddle::Memcached.new("127.0.0.1:#{@port}", timeout: 5).get("key") } }
      end
      assert_match(/\Athe 0\.05 s of Heddle\.deadline\(0\.05\)/, outer.message)
    end
  end

  private

  def request = Heddle.deadline(SECONDS) { Net::HTTP.get(URI("http://127.0.0.1:#{@port}/")) }

  def a_place_to_wait = sleep
end
