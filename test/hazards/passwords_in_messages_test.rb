# frozen_string_literal: true

require "test_helper"
require "heddle"
require "heddle/memcached"

runs_on backends: :one, except: %i[portable]

# Messages end up in logs; passwords must not.
class PasswordsInMessagesTest < Minitest::Test
  DATABASES = [
    "mysql://me:top#secret@host/base", "mysql://me:secret@host:port/base", "//me:secret@host/base",
    "me:secret@host/base",
    "postgres://me:secret@host/base", "mysql://me:secret@127.0.0.1:1/base",
    "mysql://me:secret@127.0.0.1/base?no=option",
    "mysql://me:top secret@host/base"
  ].freeze
  CACHES = %w[
    memcached://me:top#secret@host:1 memcached://me:secret@host:port me:secret@host:11211 memcached//me:secret@host
  ].freeze

  def test_database_errors_contain_no_password
    DATABASES.each { |url| assert_kept { Heddle::DB.connect(url, timeout: 10) } }
    assert_kept { Heddle::DB::Pool.new(DATABASES.first).query("select 1") }
  end

  def test_memcached_errors_contain_no_password
    CACHES.each { |address| assert_kept(ArgumentError) { Heddle::Memcached.new(address) } }
    refute_includes Heddle::Memcached.new("memcached://me:secret@127.0.0.1:1").inspect, "secret"
  end

  # The rest of the message shows that a URL is wrong.
  def test_the_rest_of_a_wrong_url_is_shown
    assert_match(%r{"mysql://…@host/base" is not a URL},
      assert_raises(ArgumentError) { Heddle::DB.connect(DATABASES.first) }.message)
    assert_match(%r{the port of "mysql://…@host:abc/base" must be a number},
      assert_raises(ArgumentError) { Heddle::DB.connect("mysql://me:secret@host:abc/base") }.message)
    assert_match(%r{"mysql://…" is not a URL|"mysql://….*" is not},
      assert_raises(ArgumentError) { Heddle::DB.connect("mysql://me:sec/ret@host/base") }.message)
    assert_match(%r{"…@host:11211" is not the address of a server},
      assert_raises(ArgumentError) { Heddle::Memcached.new("me:secret@host:11211") }.message)
  end

  private

  def assert_kept(*errors, &block)
    error = assert_raises(*errors, StandardError, &block)
    refute_includes error.full_message(highlight: false).lines.grep_v(/^\s+from /).join, "secret"
    refute_includes error.cause&.message.to_s, "secret"
  end
end
