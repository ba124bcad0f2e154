# frozen_string_literal: true

require "test_helper"
require "rails/gems_application"
require "support/cable_client" if Gem.loaded_specs.key?("solid_cable")
require "support/mail_server"
require "support/shaping_proxy"

runs_on rubies: :newest, short: false

# Gems that applications have beside Puma, whose requests are tasks of one thread.
module RailsGems
  include LoopHelpers

  GROUP = 20

  def setup
    skip "the bundle has no Devise for this Ruby" unless Gem.loaded_specs.key?("devise")
    @app = self.class.app
  end

  # No request keeps a connection.
  def teardown
    return if skipped?

    wait_until(what: "the ends of all requests") { @app.get("pool").values_at("busy", "dead") == [0, 0] }
  end

  private

  # A request of each of so many, whose parameters name it and all of them; they run at once.
  def at_once(count = GROUP, &block)
    group = "#{name} #{rand(1 << 30)}"
    Heddle::FiberPool.new(count).map(0...count) { |i| block.call("user#{i}", {group: group, count: count}) }
  end

  def everybody(count = GROUP) = Array.new(count) { |i| "user#{i}" }
end

# Those that use the database.
module RailsGemsOfDatabases
  include RailsGems

  def test_solid_cache
    assert_cached("solidly_cached")
  end

  # A job, which a request has enqueued, writes to the cache and tells a browser.
  def test_solid_queue_cache_and_cable
    cable = CableClient.new(@app.host, @app.port, "NotesChannel")
    told = -> { cable.take(0.1).map { |message| message.fetch("who") } }
    wait_until(20, what: "the channel") do
      @app.get("announce", who: "ready")
      told.call.any?
    end
    at_once { |who, group| @app.get("enqueue", who: who, **group) }
    wait_until(20, what: "the jobs") { (told.call & everybody).size == GROUP }
    assert_equal everybody.sort, (told.call - ["ready"]).sort
    assert_equal [everybody.sort] * 2, @app.get("notes").map(&:sort)
  ensure
    cable&.close
  end

  private

  def get(path, headers = {}) = @app.ask(Net::HTTP::Get.new(path, headers))

  # Each has computed its own value while the others did, and has found it.
  def assert_cached(action)
    assert_equal everybody.map { |who| [who, who] }, at_once { |who, group| @app.get(action, who: who, **group) }
  end
end

class RailsGemsTest < Minitest::Test
  include RailsGemsOfDatabases

  hard_deadline 120
  mode :fiber

  DELAY = 0.2 # seconds of each answer of S3
  LETTERS = 10
  SHARED = "thread_variable"

  class << self
    # One for all tests.
    def app
      @app ||= begin
        s3 = Servers.s3
        proxy = Heddle::Lab::ShapingProxy.start("#{s3.host}:#{s3.port}", delay: DELAY)
        app = GemsApplication.new(database: "sqlite3:storage/shop.sqlite3", jobs: :async, s3: {
          "S3_ENDPOINT" => "http://#{proxy.host}:#{proxy.port}", "S3_BUCKET" => s3.bucket,
          "AWS_ACCESS_KEY_ID" => s3.access_key, "AWS_SECRET_ACCESS_KEY" => s3.secret_key
        }).start
        Minitest.after_run { app.stop && proxy.stop }
        app
      end
    end
  end

  def test_devises_users
    cookies = at_once(GemsApplication::USERS) { |who| [who, sign_in(who)] }.to_h
    answers = at_once(GemsApplication::USERS) do |who, group|
      get("/user?#{URI.encode_www_form(who: who, **group)}", "Cookie" => cookies.fetch(who))
    end
    expected = everybody(GemsApplication::USERS).map { |who| [*["#{who}@example.com"] * 3, who] }
    assert_equal expected, answers.map { |answer| JSON.parse(answer.body) }
    assert_equal "/users/sign_in", URI(get("/user?who=user0")["location"]).path
  end

  def test_the_cache_store
    assert_cached("cached")
  end

  def test_rack_attack
    codes = at_once do |who, _|
      asks_as = (who[/\d+/].to_i.even? ? "ann" : "bob")
      [asks_as, get("/throttled?who=#{asks_as}-#{name}").code]
    end
    allowed = GemsApplication::ALLOWED
    outcomes = %w[ann bob].product([["200", allowed], ["429", GROUP / 2 - allowed]])
    assert_equal outcomes.to_h { |name, (code, count)| [[name, code], count] }, codes.tally
  end

  # What middleware and gems keep for a request; all of them leave it behind.
  def test_places
    2.times do
      at_once { |who, group| [who, @app.get("places", who: who, **group)] }.each do |who, seen|
        before, request, task = seen.values_at("before", "request", "task").map { |places| places.except(SHARED) }
        own = {"fiber_local" => who, "fiber_storage" => who, "current_attributes" => who}
        assert_equal own.transform_values { nil }, before
        assert_equal own, request
        assert_equal own.merge("fiber_local" => nil), task
      end
    end
  end

  # doc/limits.md: Objects and settings that tasks share
  def test_thread_variables_are_shared
    seen = at_once { |who, group| @app.get("places", who: who, **group) }
    assert_equal 1, seen.map { |places| places.fetch("request").fetch(SHARED) }.uniq.size
  end

  def test_letters_wait_at_once
    requests = 5
    mails = MailServer.new(together: requests * LETTERS)
    with_server(mails) do |port|
      at_once(requests) { |who, _| @app.get("letters", who: who, letters: LETTERS, port: port) }
    end
    expected = everybody(requests).product([*1..LETTERS])
      .map { |who, number| ["#{who}@example.com", "letter #{number} to #{who}"] }
    received = mails.received.map { |mail| [mail.to, mail.text[/^letter.*to \w+/]] }
    assert_equal expected.sort, received.sort
  end

  def test_a_mail_server_that_does_not_answer
    server = TCPServer.new("127.0.0.1", 0)
    answer = assert_within(3, at_least: 0.25, remeasure: 0) do
      get("/letters?who=ann&letters=3&port=#{server.addr[1]}", "Request-Timeout" => "0.3")
    end
    assert_equal "503", answer.code
    3.times { assert_within(3, remeasure: 0) { assert_empty server.accept.read } }
  ensure
    server&.close
  end

  # Twenty objects, each of several exchanges.
  def test_active_storage
    together = GROUP * DELAY / 2
    paths = assert_within(together) { at_once { |who, _| @app.get("upload", who: who).fetch("path") } }
    texts = everybody.map { |who| "what #{who} has written\n" * 1000 }
    downloaded = assert_within(together) { at_once { |who, _| @app.get("download", who: who) } }
    assert_equal texts.map { |text| [text, text] }, downloaded
    streamed = assert_within(together) { at_once { |who, _| get(paths.fetch(who[/\d+/].to_i)).body } }
    assert_equal texts, streamed
  end

  private

  def sign_in(who)
    request = Net::HTTP::Post.new("/users/sign_in")
    request.set_form_data("user[email]" => "#{who}@example.com", "user[password]" => GemsApplication::PASSWORD)
    answer = @app.ask(request)
    assert_equal "/", URI(answer["location"].to_s).path, answer.body
    answer["set-cookie"][/\A[^;]+/]
  end
end

class RailsGemsOnPostgresqlTest < Minitest::Test
  include RailsGemsOfDatabases

  hard_deadline 120
  mode :fiber

  class << self
    # One for all tests.
    def app
      @app ||= begin
        require "pg"
        url = Servers.postgresql.url
        database = "rails_gems_#{Process.pid}"
        PG.connect(url).then { |connection| connection.exec("create database #{database}") && connection.close }
        GemsApplication.new(database: url.sub(%r{[^/]+\z}, database), jobs: :fork).start
          .tap { |app| Minitest.after_run { app.stop } }
      end
    end
  end
end
