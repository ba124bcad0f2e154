# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "tmpdir"
require "support/keep_alive_helpers"

runs_on rubies: :ends, except: %i[portable]

# Sessions that do not share a persistent connection. The settings of TLS: keep_alive_tls_test.rb.
class KeepAliveKeysTest < Minitest::Test
  include KeepAliveHelpers

  mode :thread

  def test_settings_that_prevent_sharing_a_connection
    server = serve
    alike = -> { Net::HTTP.new("127.0.0.1", server.port, nil) }
    different = {
      "another name" => -> { Net::HTTP.new("localhost", server.port, nil).tap { |http| http.ipaddr = "127.0.0.1" } },
      "an address" => -> { alike.call.tap { |http| http.ipaddr = "127.0.0.1" } },
      "a local address" => -> { alike.call.tap { |http| http.local_host = "127.0.0.1" } },
      "a local port" => -> { alike.call.tap { |http| http.local_host, http.local_port = "127.0.0.1", free_port } },
      "a proxy" => -> { Net::HTTP.new("127.0.0.1", server.port, "127.0.0.1", server.port) },
      "credentials of a proxy" => -> { Net::HTTP.new("127.0.0.1", server.port, "127.0.0.1", server.port, "me", "pw") },
      "others" => -> { Net::HTTP.new("127.0.0.1", server.port, "127.0.0.1", server.port, "me", "pw2") },
      "a subclass" => -> { subclass.new("127.0.0.1", server.port, nil) }
    }
    numbers = [alike, *different.values].map do |make|
      2.times { make.call.start { |http| http.get("/") } }
      server.connections.last(2)
    end
    numbers.each { |pair| assert_equal 1, pair.uniq.size, "each kind shares with itself" }
    assert_equal numbers.size, numbers.uniq.size, different.keys.inspect
  end

  def test_a_name_that_changes_in_place
    server = serve
    name = +"127.0.0.1"
    Net::HTTP.start(name, server.port) { |http| http.get("/") }
    name.replace("127.0.0.2")
    get(server)
    assert_equal [1, 1], server.connections
  end

  def test_an_object_that_is_exempt
    server = serve
    2.times { Net::HTTP.start("127.0.0.1", server.port, keep_alive: false) { |http| http.get("/") } }
    http = Net::HTTP.new("127.0.0.1", server.port)
    assert http.keep_alive
    http.keep_alive = false
    refute http.keep_alive
    http.start { http.get("/") }
    assert_equal [1, 2, 3], server.connections
    assert_counted opened: 0, reused: 0
  end

  # As a program does that finds out something about a connection.
  def test_an_object_that_becomes_exempt_in_its_session
    server = serve
    start(server) { |http| http.get("/") && http.keep_alive = false }
    get(server)
    assert_equal [1, 2], server.connections
  end

  def test_a_block_chooses_the_key
    server = serve
    tenant = :one
    Heddle::NetHTTP.keep_alive { |http| tenant if http.port == server.port }
    get(server)
    get(server)
    tenant = :two
    get(server)
    tenant = nil
    get(server)
    tenant = :one
    get(server)
    assert_equal [1, 1, 2, 3, 1], server.connections
  end

  def test_a_negative_keep_alive_timeout
    server = serve
    get(server)
    Net::HTTP.start("127.0.0.1", server.port, keep_alive_timeout: 0) { |http| http.get("/") }
    assert_equal [1, 2], server.connections
  end

  # What such a program sends on a new connection, it would send again.
  def test_programs_that_change_how_connections_are_made
    server = serve
    get(server)
    klass = Class.new(Net::HTTP) { def on_connect = nil }
    klass.new("127.0.0.1", server.port).start { |http| http.get("/") }
    http = Net::HTTP.new("127.0.0.1", server.port)
    http.define_singleton_method(:connect) { super() }
    http.start { http.get("/") }
    assert_equal [1, 2, 3], server.connections
    get(server)
    assert_equal 1, server.connections.last
  end

  # The overrides of some libraries only watch: by where their files are inside of their gems, not by any folder above.
  def test_an_override_in_a_folder_that_is_named_like_a_gem
    klass = Class.new(Net::HTTP)
    folder = Dir.mktmpdir("heddle-")
    file = File.join(folder, "sentry", "app.rb")
    Dir.mkdir(File.dirname(file))
    File.write(file, "def on_connect = nil")
    klass.class_eval(File.read(file), file) # standard:disable Style/EvalWithLocation
    server = serve
    2.times { klass.new("127.0.0.1", server.port, nil).start { |http| http.get("/") } }
    assert_equal [1, 2], server.connections
  ensure
    FileUtils.rm_rf(folder) if folder
  end

  private

  def free_port = (@free_port ||= Addrinfo.tcp("127.0.0.1", 0).bind { |socket| socket.local_address.ip_port })

  def subclass = (@subclass ||= Class.new(Net::HTTP))
end
