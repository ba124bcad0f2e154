# frozen_string_literal: true

require "test_helper"
require "heddle"
require "heddle/memcached"

# Messages end up in logs, which passwords must not.
class PasswordsInMessagesTest < Minitest::Test
  DATABASES = %w[mysql://me:top#secret@host/base mysql://me:secret@host:port/base //me:secret@host/base me:secret@host/base
    postgres://me:secret@host/base mysql://me:secret@127.0.0.1:1/base mysql://me:secret@127.0.0.1/base?no=option].push("mysql://me:top secret@host/base").freeze
  CACHES = %w[memcached://me:top#secret@host:1 memcached://me:secret@host:port me:secret@host:11211 memcached//me:secret@host].freeze

  def test_of_databases
    DATABASES.each { |url| assert_kept { Heddle::DB.connect(url, timeout: 10) } }
    assert_kept { Heddle::DB::Pool.new(DATABASES.first).query("select 1") }
  end

  def test_of_caches
    CACHES.each { |address| assert_kept(ArgumentError) { Heddle::Memcached.new(address) } }
    refute_includes Heddle::Memcached.new("memcached://me:secret@127.0.0.1:1").inspect, "secret"
  end

  # That a URL is wrong can be seen by what is left of it.
  def test_the_rest_is_shown
    assert_match(%r{"mysql://…@host/base" is no URL}, assert_raises(ArgumentError) { Heddle::DB.connect(DATABASES.first) }.message)
    assert_match(%r{"…@host:11211" is no address}, assert_raises(ArgumentError) { Heddle::Memcached.new("me:secret@host:11211") }.message)
  end

  private

  def assert_kept(*errors, &block)
    error = assert_raises(*errors, StandardError, &block)
    refute_includes error.full_message(highlight: false).lines.grep_v(/^\s+from /).join, "secret"
    refute_includes error.cause&.message.to_s, "secret"
  end
end
