# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"

# Statements as events of ActiveSupport::Notifications.
class DatabaseNotificationsTest < Minitest::Test
  include MariaDBHelpers

  hard_deadline 60

  def setup
    require "heddle/notifications"
    @db = Heddle::DB.connect(mariadb.url, timeout: 20)
    @subscribers = []
  end

  def teardown
    @subscribers.to_a.each { |subscriber| ActiveSupport::Notifications.unsubscribe(subscriber) }
    @db&.close
  end

  def test_events
    events = []
    subscribe { |event| events << event }
    @db.query("select ? union select 2", 1)
    error = assert_raises(Heddle::DB::ServerError) { @db.query("select * from nowhere_at_all") }
    assert_equal [{sql: "select ? union select 2", rows: 2, cached: false},
      {sql: "select * from nowhere_at_all", rows: nil, cached: false,
       exception: [error.class.name, error.message], exception_object: error}], events.map(&:payload)
    assert_operator events.first.duration, :>, 0
    assert_in_delta Time.now, events.first.time, 60
  end

  def test_subscribers_of_a_start_and_an_end
    seen = []
    subscribe { |name, started, ended, id, payload| seen << [name, ended - started, id, payload[:sql]] }
    @db.query("select 1")
    assert_equal ["sql.heddle", "select 1"], seen.first.values_at(0, 3)
    assert_operator seen.first[1], :>, 0
  end

  private

  def subscribe(&block)
    @subscribers << ActiveSupport::Notifications.subscribe("sql.heddle", &block)
  end
end
