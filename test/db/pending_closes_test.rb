# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/refusals"
require "support/mariadb_server"
require "support/postgresql_server"

# Statements that are closed while there is no memory to note it: the GC, which frees some of them, must not raise, and
# the connection goes on. Those closes are lost.
class PendingClosesTest < Minitest::Test
  include LoopHelpers
  include Refusals
  include MariaDBHelpers
  include OwnPostgreSQLHelpers

  hard_deadline 60

  def test_mysql = assert_lost_closes(mariadb.url)

  def test_postgresql = assert_lost_closes(postgresql.url)

  private

  def assert_lost_closes(url)
    skip "the allocations are replaced in Linux's way" unless linux?
    compiled("refuse_realloc.c", "-shared", "-fPIC", "-ldl") do |library|
      preload = [ENV["LD_PRELOAD"], library].compact.join(" ")
      assert_child(<<~RUBY, env: {"LD_PRELOAD" => preload}, timeout: 50, gems: true)
        require "fiddle"
        require "heddle/db"
        memory = Fiddle.dlopen(nil)
        refuse = Fiddle::Function.new(memory["refuse_realloc"], [Fiddle::TYPE_INT], Fiddle::TYPE_VOID)
        refusals = Fiddle::Function.new(memory["refusals"], [], Fiddle::TYPE_LONG)
        expect = ->(what, fine) { fine || (puts(what) || exit!(1)) }

        db = Heddle::DB.connect(#{url.inspect}, statement_cache: :never, timeout: 20)
        kept = db.prepare("select 1")
        Array.new(50) { |n| db.prepare("select \#{n}") }.clear
        refuse.call(1)
        kept.close
        expect.("the close of a statement was not refused", refusals.call == 1)
        GC.start
        refuse.call(0)
        expect.("the GC freed no statement", refusals.call > 1)
        expect.("a close that was lost is counted", db.driver.closes == 0)
        expect.("the connection does not work", db.query_value("select 7") == 7)
        db.prepare("select 2").close
        expect.("the next close is not noted", db.driver.closes >= 1)
        db.flush_closes
        expect.("the closes were not sent", db.driver.closes == 0 && db.healthy?)
        db.close
      RUBY
    end
  end
end
