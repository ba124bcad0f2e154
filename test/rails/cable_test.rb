# frozen_string_literal: true

require "test_helper"
require "rails/cable_application"
require "support/cable_client" if Gem.loaded_specs.key?("actioncable")

# ActionCable's server, mounted in an application on Puma with plugin :heddle. It takes each connection over, and serves
# it by threads of its own: a connection costs no fiber. Broadcasts come from requests, which are tasks.
class RailsCableTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120
  mode :fiber

  CLIENTS = 100
  EVENTS = 40

  def setup
    skip "the bundle has no ActionCable for this Ruby" unless defined?(CableClient)
  end

  # With the server that each needs.
  {async: nil, inline: nil, redis: :redis, postgresql: :postgresql}.each do |adapter, server|
    define_method("test_#{adapter}") do
      with_application(adapter.to_s, server && Servers.public_send(server).url) do |app|
        clients = subscribe(app)
        assert_requests_have_ended(app)
        assert_broadcasts(app, clients)
        assert_clients_leave(app, clients)
      ensure
        clients&.each(&:close)
      end
    end
  end

  private

  def with_application(adapter, url)
    app = CableApplication.new(adapter, url).start
    yield app
  ensure
    app&.stop
  end

  # @return [Array<CableClient>] that have all got an event
  def subscribe(app)
    clients = Array.new(CLIENTS) { CableClient.new(app.host, app.port, "EventsChannel") }
    wait_until(20, what: "the subscriptions") do
      clients.each { |client| client.take(0) }
      app.state["subscribed"] == CLIENTS
    end
    # With Redis a subscription is complete some time after the channel has asked for it.
    wait_until(20, what: "an event for each") do
      app.publish("ready")
      clients.all? { |client| client.take(0).any? }
    end
    clients
  end

  # Only the request for the state runs. A client has an answer before the task that gave it has ended.
  def assert_requests_have_ended(app)
    wait_until(20, what: "the ends of the requests") { app.state["running"] == 1 }
    assert_equal CLIENTS, app.state["connections"]
    assert_operator app.state["threads"], :<, 40
  end

  # At once, from as many tasks: each client gets each event once.
  def assert_broadcasts(app, clients)
    Heddle::FiberPool.new(EVENTS).map(1..EVENTS) { |event| app.publish(event) }
    got = -> { clients.map { |client| client.take(0) - ["ready"] } }
    wait_until(20, what: "the events") { got.call.all? { |events| events.size >= EVENTS } }
    assert_equal [(1..EVENTS).map(&:to_s).sort], got.call.map(&:sort).uniq
  end

  def assert_clients_leave(app, clients)
    clients.each(&:close)
    wait_until(20, what: "the ends of the connections") { app.state["disconnects"] == CLIENTS }
    wait_until(20, what: "rest") { app.state.values_at("connections", "running", "busy") == [0, 1, 0] }
  end
end
