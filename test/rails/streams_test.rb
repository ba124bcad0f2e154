# frozen_string_literal: true

require "test_helper"
require "rails/streams_application"

# Streams of Rails, on Puma with plugin :heddle: each is a task, which ends when its client leaves.
class RailsStreamsTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120
  mode :fiber

  STREAMS = 500
  LEFT = "ActionController::Live::ClientDisconnected"

  class << self
    # One for all tests.
    def app = @app ||= StreamsApplication.new.start.tap { |app| Minitest.after_run { app.stop } }
  end

  def setup
    skip "the bundle has no Rails for this Ruby" unless Gem.loaded_specs.key?("railties")
    skip "without POLLRDHUP the next write notices a client that has left" if portable_build?

    @app = self.class.app
  end

  # On one thread.
  def test_five_hundred_streams_at_once
    threads = @app.state["threads"]
    clients = Array.new(STREAMS) { |id| @app.stream("/streams/events?id=many-#{id}&shard=#{%w[one two][id % 2]}") }
    clients.each.with_index { |client, id| assert_equal "event: #{%w[one two][id % 2]}", client.line("event:") }
    assert_equal [STREAMS, STREAMS + 1, threads], @app.state.values_at("subscribers", "running", "threads")
    3.times do |event|
      @app.publish(event)
      assert_equal [["one"], "one", "writing", nil, "UTC"], @app.get("waiting")
    end
    clients.each.with_index do |client, id|
      3.times do |event|
        assert_equal "data: #{event} for many-#{id} in Heddle::Scheduler", client.line("data: #{event}")
      end
    end
    clients.each(&:close)
    assert_ended(LEFT, Array.new(STREAMS) { |id| "many-#{id}" })
  ensure
    clients&.each(&:close)
  end

  def test_a_client_leaves_while_the_action_sleeps
    client = @app.stream("/streams/sleeps?id=sleeper")
    client.line("begun")
    client.close
    assert_ended(LEFT, ["sleeper"])
    wait_until(what: "the clean-up") { @app.state["endings"]["cleaned up"]&.include?("sleeper") }
  end

  # The request's shard and its Current attributes stay the action's, though the request has long been answered; its
  # deadline covers what comes before the answer.
  def test_what_an_action_has_of_its_request
    [%w[ann one], %w[bob two]].map { |user, shard|
      [@app.stream("/streams/state?id=#{user}&shard=#{shard}"), "#{user} #{shard} #{shard}"]
    }.each do |client, line|
      assert_equal [line] * 3, Array.new(3) { client.line(line[0, 3]) }
      client.close
    end
    assert_match(/^\[\S+\] Processing by StreamsController#state /, @app.written_log)
  end

  def test_an_action_that_ignores_disconnects
    client = @app.stream("/streams/ignores?id=ignoring")
    client.line("begun")
    client.close
    wait_until(what: "the end of the request") { @app.state["running"] == 1 }
    assert_equal 1, @app.state["subscribers"]
    @app.publish(1)
    assert_ended("NilClass", ["ignoring"])
  end

  def test_a_file_that_is_streamed
    response = Net::HTTP.get_response(URI("#{@app.url}/streams/file"))
    assert_equal "0\n1\n2\n3\n4\n", response.body
    assert_match(/\Aattachment; filename="items.csv"/, response["Content-Disposition"])
  end

  def test_an_action_that_fails
    assert_equal "500", Net::HTTP.get_response(URI("#{@app.url}/streams/fails_before")).code
    assert_equal "begun\n", Net::HTTP.get_response(URI("#{@app.url}/streams/fails_behind")).body
    assert_includes @app.written_log, "KeyError (behind)"
  end

  # Its request has a deadline, as it does not ask for events.
  def test_an_action_that_is_late
    assert_equal "503", Net::HTTP.get_response(URI("#{@app.url}/streams/late?id=late")).code
    assert_ended("Heddle::DeadlineExceeded", ["late"], or_else: "Heddle::Cancellation")
  end

  def test_http_1_0
    socket = TCPSocket.new("127.0.0.1", @app.port)
    socket.write("GET /streams/plain HTTP/1.0\r\n\r\n")
    assert_match(/\r\n\r\nplain\z/, socket.read)
  ensure
    socket&.close
  end

  def test_head
    assert_equal "200", Net::HTTP.start("127.0.0.1", @app.port) { |http| http.head("/streams/sleeps?id=head") }.code
    assert_ended(LEFT, ["head"])
  end

  def test_a_rails_that_lacks_a_method
    out = assert_child(<<~RUBY, gems: true, heddle: false)
      require "logger"
      require "rails"
      require "action_controller"
      ActionController::Live.send(:remove_method, :new_controller_thread)
      require "heddle/rails"
      require "heddle/rails/live"
      $stderr = $stdout
      Heddle::Rails.const_get(:Live).install
    RUBY
    assert_equal "heddle: ActionController::Live keeps a thread for each stream: this Rails has no " \
      "ActionController::Live#new_controller_thread. Update Heddle\n", out
  end

  private

  # Streams with these ids ended so, and nothing of theirs is left.
  def assert_ended(ending, ids, or_else: ending)
    state = nil
    wait_until(what: "the end of the streams") do
      state = @app.state
      state["running"] == 1 && state["subscribers"].zero?
    end
    assert_empty ids - state.fetch("endings").values_at(ending, or_else).compact.flatten
    assert_operator state["busy"], :<=, 1 # Rails 7.1: the one of the request that asks
  end
end
